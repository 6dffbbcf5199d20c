#!/usr/bin/env bash
# Builds the commit that is checked out twice, in two folders and at two times, and compares all files. They are
# in dist/ then. One platform is enough: the others differ in GOOS and GOARCH alone.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ -z $(git status --porcelain) ]] || echo "==> what is not committed is not built"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/b"
folders=("$work/a" "$work/b/another-name")
for folder in "${folders[@]}"; do
  git clone -q --no-hardlinks . "$folder"
  git -C "$folder" remote remove origin
done
find "${folders[1]}" -exec touch -h -d 2001-02-03 {} +
(cd "${folders[0]}" && umask 022 && make -s release-snapshot ONLY=linux_amd64)
(cd "${folders[1]}" && umask 077 && make -s release-snapshot ONLY=linux_amd64)
diff "$work/a/dist/checksums.txt" "${folders[1]}/dist/checksums.txt"
rm -rf dist
mv "$work/a/dist" dist
wc -l < dist/checksums.txt | sed 's/.*/==> & files, byte for byte the same/'
