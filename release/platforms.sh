#!/usr/bin/env bash
# Compares what dist/ holds for each platform: every archive and package has the files of linux/amd64, and its programs
# are for its platform. Those for arm64 start where QEMU emulates it.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
archives=(dist/castle_*.tar.gz dist/castle-lab_*.tar.gz)
(( ${#archives[@]} == 6 )) || { echo "dist/ has the archives ${archives[*]}: run make release-snapshot" >&2; exit 1; }
for archive in "${archives[@]}"; do
  [[ $archive =~ ^dist/([^_]+)_.*_([a-z]+)_([a-z0-9]+)\.tar\.gz$ ]]
  name=${BASH_REMATCH[1]} os=${BASH_REMATCH[2]} arch=${BASH_REMATCH[3]}
  diff <(tar -tzf dist/"$name"_*_linux_amd64.tar.gz | sort) <(tar -tzf "$archive" | sort)
  folder=$work/${name}_${os}_$arch
  mkdir "$folder"
  tar -xzf "$archive" -C "$folder"
  programs=$(find "$folder" -type f -perm -u+x)
  [[ -n $programs ]]
  while read -r program; do
    built=$(go version -m "$program" | awk '$1 == "build" && $2 ~ /^GO(OS|ARCH)=/ { print $2 }' | sort | xargs)
    [[ $built == "GOARCH=$arch GOOS=$os" ]] || { echo "$archive: $program is for $built" >&2; exit 1; }
  done <<< "$programs"
done
for name in castle castle-lab; do
  diff <(dpkg-deb --fsys-tarfile dist/"$name"_*_amd64.deb | tar -t | sort) \
    <(dpkg-deb --fsys-tarfile dist/"$name"_*_arm64.deb | tar -t | sort)
done
echo "==> ${#archives[@]} archives have the files of linux/amd64, and programs of their platform"
if qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64); then
  "$qemu" "$work/castle_linux_arm64/bin/castle" version
  "$qemu" "$work/castle-lab_linux_arm64/lib/castle/castle-lab" --help > "$work/help" 2>&1 || { cat "$work/help"; exit 1; }
  head -1 "$work/help"
  echo "==> castle and castle-lab start on arm64"
else
  echo "==> no QEMU here: nothing for arm64 was started"
fi
