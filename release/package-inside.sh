#!/usr/bin/env bash
# What release/package.sh runs in the fresh Debian.
set -euo pipefail
files() { # all files with their contents, without the logs and the database of the package manager
  find / -xdev \( -path /packages -o -path /var/lib/dpkg -o -path /var/log -o -path /var/cache/ldconfig \) -prune \
    -o \( -type f -printf '%p %m ' -exec sha256sum {} \; \) -o -printf '%p %m %l\n' | sort
}
! command -v go make gcc git
files > /tmp/before
dpkg --install /packages/castle_*.deb /packages/castle-lab_*.deb
dpkg --verify castle castle-lab
castle version
for file in man/man1/castle-create.1.gz bash-completion/completions/castle zsh/vendor-completions/_castle \
  fish/vendor_completions.d/castle.fish doc/castle/copyright doc/castle/third-party-licenses.txt; do
  [[ -s /usr/share/$file ]]
done
zcat /usr/share/man/man1/castle-create.1.gz | grep -q '^castle-create'
grep -q 'MIT License' /usr/share/doc/castle/third-party-licenses.txt
castle -C /usr/share/castle/example rehearse mini
castle init /root/castles
cd /root/castles
castle new green --template proxmox-talos --set git_url=https://git.example.org/green.git \
  --set proxmox_endpoint=https://192.168.1.10:8006/ --set proxmox_node=pve --set network=192.168.1.0/24 \
  --set gateway=192.168.1.1 --set secrets=local
castle rehearse green -- castle create green
cd /
dpkg --purge castle-lab castle
files > /tmp/after
diff /tmp/before /tmp/after
echo "==> the packages left nothing behind"
