#!/usr/bin/env bash
# What release/package.sh runs in the fresh Debian.
set -euo pipefail
cd /
files() { # all files with their contents, without the logs and the databases of the package managers
  find / -xdev \( -path /dist -o -path /source -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/lib/rpm \
    -o -path /var/cache -o -path /var/log \) -prune -o \( -type f -printf '%p %m ' -exec sha256sum {} \; \) \
    -o -printf '%p %m %l\n' | sort
}
# documented FILE PATTERN: runs the one command of the file that begins so, as root.
documented() {
  local command
  command=$(grep -E "^    $2" "/source/$1" | sed 's/^    //; s/sudo //g')
  [[ -n $command && $command != *$'\n'* ]]
  echo "\$ $command"
  bash -euo pipefail -c "$command"
}
# installed ZSH: castle is complete, with zsh's completion in the folder ZSH, and its lab rehearses.
installed() {
  local file
  castle version
  for file in man/man1/castle-create.1.gz bash-completion/completions/castle "$1/_castle" \
    fish/vendor_completions.d/castle.fish doc/castle/copyright doc/castle/third-party-licenses.txt; do
    [[ -s /usr/share/$file ]]
  done
  zcat /usr/share/man/man1/castle-create.1.gz | grep -q '^castle-create'
  grep -q 'MIT License' /usr/share/doc/castle/third-party-licenses.txt
  documented README.md 'castle rehearse mini -C /usr/share/'
}
# removed WHAT: nothing is left of what was installed.
removed() {
  files > /tmp/after
  diff /tmp/before /tmp/after
  echo "==> the $1 left nothing behind"
}
for program in go make gcc castle; do
  if command -v $program; then exit 1; fi
done
files > /tmp/before

documented README.md 'sudo apt install '
dpkg --verify castle castle-lab
installed zsh/vendor-completions
# The stages and templates are in castle.
castle init /root/castles
castle new green -C /root/castles --template proxmox-talos --set git_url=https://git.example.org/green.git \
  --set proxmox_endpoint=https://192.168.1.10:8006/ --set proxmox_node=pve --set network=192.168.1.0/24 \
  --set gateway=192.168.1.1 --set secrets=local
castle check green -C /root/castles
documented install.md 'sudo apt purge '
removed 'Debian packages'

# dnf would bring git, which no database of RPM knows here.
requires=$(rpm --query --package --requires dist/castle*.x86_64.rpm | grep -v '^rpmlib(' | sort | xargs)
[[ $requires == 'castle git' ]]
rpm --force-debian --install --nodeps dist/castle*.x86_64.rpm
rpm --verify --nodeps castle castle-lab
installed zsh/site-functions
rpm --force-debian --erase castle castle-lab
removed 'RPM packages'

documented README.md 'cat dist/'
hash -r
[[ $(command -v castle) == /usr/local/bin/castle ]]
documented README.md 'castle rehearse mini -C /usr/local/'
documented install.md 'cat dist/[^ ]* [|] tar -tzi'
documented install.md 'sudo rm -r /usr/local/'
folder=' [0-9]+ $'
diff <(grep -vE "$folder" /tmp/before) <(files | grep -vE "$folder")
echo "==> the archives rehearse, too, and their files are gone"
