#!/bin/sh
# Writes the licenses of what a program links: licenses.sh PROGRAM PLATFORM
set -eu
cd "$(dirname "$0")"
name=$(basename "$1" | sed 's/_v.*//')
mkdir -p "files/licenses/$2"
exec files/write-licenses -o "files/licenses/$2/$name.txt" "$1"
