#!/usr/bin/env bash
# Writes a CycloneDX document of what a program links: sbom.sh PROGRAM DOCUMENT VERSION TIME. The time is the commit's, so
# that the same commit gives the same document.
set -euo pipefail
program=$(realpath "$1") document=$(realpath -m "$2")
cd "$(dirname "$0")"
go tool cyclonedx-gomod bin -json -noserial -std -version "$3" -output "$document" "$program"
sed -i -E "s/^(    \"timestamp\": ).*/\1\"$4\",/" "$document"
grep -q "\"timestamp\": \"$4\"" "$document"
