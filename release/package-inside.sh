#!/usr/bin/env bash
# What release/package.sh runs in the fresh Debian.
set -euo pipefail
cd /
files() { # all files with their contents, without the logs and the databases of the package manager
  find / -xdev \( -path /dist -o -path /source -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/cache \
    -o -path /var/log \) -prune -o \( -type f -printf '%p %m ' -exec sha256sum {} \; \) -o -printf '%p %m %l\n' | sort
}
# readme PATTERN: runs the one command of README.md that begins so, as root.
readme() {
  local command
  command=$(grep -E "^    $1" /source/README.md | sed 's/^    //; s/sudo //g')
  [[ -n $command && $command != *$'\n'* ]]
  echo "\$ $command"
  bash -euo pipefail -c "$command"
}
! command -v go make gcc git castle
files > /tmp/before

readme 'sudo apt install '
dpkg --verify castle castle-lab
castle version
for file in man/man1/castle-create.1.gz bash-completion/completions/castle zsh/vendor-completions/_castle \
  fish/vendor_completions.d/castle.fish doc/castle/copyright doc/castle/third-party-licenses.txt; do
  [[ -s /usr/share/$file ]]
done
zcat /usr/share/man/man1/castle-create.1.gz | grep -q '^castle-create'
grep -q 'MIT License' /usr/share/doc/castle/third-party-licenses.txt
readme 'castle rehearse mini -C /usr/share/'
# The stages and templates are in castle.
castle init /root/castles
castle new green -C /root/castles --template proxmox-talos --set git_url=https://git.example.org/green.git \
  --set proxmox_endpoint=https://192.168.1.10:8006/ --set proxmox_node=pve --set network=192.168.1.0/24 \
  --set gateway=192.168.1.1 --set secrets=local
castle check green -C /root/castles
dpkg --purge castle-lab castle
files > /tmp/after
diff /tmp/before /tmp/after
echo "==> the packages left nothing behind"

readme 'cat dist/'
hash -r
[[ $(command -v castle) == /usr/local/bin/castle ]]
readme 'castle rehearse mini -C /usr/local/'
echo "==> the archives rehearse, too"
