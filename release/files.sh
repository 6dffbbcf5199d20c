#!/usr/bin/env bash
# Writes what goreleaser packs beside the programs into release/files: man pages, completions, copyright. Also
# builds what writes the licenses, because later GOOS and GOARCH are those of the programs.
set -euo pipefail
umask 022
cd "$(dirname "$0")/.."
files=release/files
rm -rf "$files"
mkdir -p "$files"/{man,completions,licenses}
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) go run ./docs/man "$files/man"
gzip -9 --no-name --keep "$files"/man/*.1
castle=$(mktemp)
trap 'rm -f "$castle"' EXIT
go build -o "$castle" ./cmd/castle
"$castle" completion bash > "$files/completions/castle.bash"
"$castle" completion zsh > "$files/completions/_castle"
"$castle" completion fish > "$files/completions/castle.fish"
go -C release build -o files/write-licenses ./cmd/licenses
cat > "$files/copyright" <<'END'
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: castle
Source: https://github.com/ephemeral-castle/castle

Files: *
Copyright: The castle authors
License: Apache-2.0
 /usr/share/common-licenses/Apache-2.0 has the text on Debian. The licenses of the modules that the programs link
 are in third-party-licenses beside this file. The Terraform providers and the libraries of HashiCorp and OpenTofu are
 under the Mozilla Public License 2.0; their source is at the addresses that the same file names.
END
