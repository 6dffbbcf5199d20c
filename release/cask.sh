#!/usr/bin/env bash
# Compares the Homebrew cask in dist/ with the archives there: their checksums, and the files that Homebrew links. The
# description of the cask, of the packages and of README.md name the same platforms.
set -euo pipefail
cd "$(dirname "$0")/.."
cask=dist/homebrew/Casks/castle.rb
version=$(sed -n 's/^  version "\(.*\)"$/\1/p' $cask)
mapfile -t urls < <(sed -n 's/^ *url "\(.*\)"$/\1/p' $cask)
mapfile -t sums < <(sed -n 's/^ *sha256 "\(.*\)"$/\1/p' $cask)
mapfile -t linked < <(sed -nE 's/^ *(binary|manpage|bash_completion|zsh_completion|fish_completion) "(.*)"$/\2/p' $cask)
archives=(dist/castle_*.tar.gz)
(( ${#urls[@]} == ${#archives[@]} && ${#sums[@]} == ${#archives[@]} && ${#linked[@]} >= 5 ))
for i in "${!urls[@]}"; do
  url=${urls[i]//'#{version}'/$version}
  # A snapshot has the version of the next tag, and addresses below the last one.
  tag=v$version
  [[ $version != *-snapshot.* ]] || tag=v[0-9]*
  [[ $url == https://github.com/ephemeral-castle/castle/releases/download/$tag/castle_"$version"_* ]] ||
    { echo "the cask downloads $url" >&2; exit 1; }
  name=${url##*/}
  grep -qxF "${sums[i]}  $name" dist/checksums.txt || { echo "the cask has another checksum of $name" >&2; exit 1; }
  files=$(tar -tzf "dist/$name")
  for file in "${linked[@]}"; do
    grep -qxF "$file" <<< "$files" || { echo "the cask links $file, and $name has none" >&2; exit 1; }
  done
  while read -r page; do
    [[ " ${linked[*]} " == *" $page "* ]] || { echo "the cask does not link $page of $name" >&2; exit 1; }
  done < <(grep '^share/man/.*\.1$' <<< "$files")
done
description=$(sed -n 's/^  desc "\(.*\)"$/\1/p' $cask)
(( ${#description} < 80 )) || { echo "the description is too long for Homebrew and Debian" >&2; exit 1; }
synopsis=$(dpkg-deb -f dist/castle_*_amd64.deb Description | sed -n 1p)
[[ $synopsis == "$description" ]] || { echo "the package is described as $synopsis" >&2; exit 1; }
readme=$(tr '\n' ' ' < README.md)
[[ $readme == *" on ${description#* on }"* ]] || { echo "README.md names other platforms than the cask" >&2; exit 1; }
echo "==> the cask fits ${#archives[@]} archives"
