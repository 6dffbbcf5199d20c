#!/usr/bin/env bash
# Installs the packages in dist/, .deb and then .rpm, and then the archives, in a fresh Debian that has neither Go nor a
# source, by the commands of README.md and docs/install.md. Rehearses the cluster mini there and removes everything:
# nothing may remain. Terraform is this machine's, because no registry of packages has it.
set -euo pipefail
cd "$(dirname "$0")/.."
if (( EUID != 0 )); then
  exec sudo env "PATH=$PATH" "$0"
fi
if [[ ${1-} != inside ]]; then
  root=$(mktemp -d)
  trap 'rm -rf --one-file-system "$root"' EXIT
  release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
  mirror=$(apt-get indextargets --format '$(REPO_URI)' "Release: $release" | head -1) # this machine's own
  echo "==> debootstrap $release"
  debootstrap --variant=minbase --include=git,rpm "$release" "$root" "$mirror" > "$root.log" ||
    { cat "$root.log"; exit 1; }
  rm "$root.log"
  printf '127.0.0.1 localhost\n' > "$root/etc/hosts" # as the installer does
  printf 'APT::Get::Assume-Yes "true";\n' > "$root/etc/apt/apt.conf.d/yes"
  mkdir "$root/dist" "$root/source"
  cp dist/*_amd64.deb dist/*.x86_64.rpm dist/*_linux_amd64.tar.gz "$root/dist"
  cp "$(command -v terraform)" "$root/usr/local/bin/terraform"
  cp README.md docs/install.md release/package-inside.sh "$root/source"
  # Without a network: what the packages need is in them, but for git, on which castle-lab depends, and rpm.
  unshare --mount --pid --net --fork --kill-child "$0" inside "$root"
  exit
fi
root=$2
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/tmp"
mount -t tmpfs tmpfs "$root/root"
cd "$root"
mkdir -p mnt/old
pivot_root . mnt/old
umount -l /mnt/old
rmdir /mnt/old
exec env -i PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root TERM=dumb bash /source/package-inside.sh
