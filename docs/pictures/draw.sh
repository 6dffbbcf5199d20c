#!/usr/bin/env bash
# Draws the pictures of README and docs from rehearsals of mini: a create in a terminal, a gate that stays closed, and
# a report. docs/blue.svg is drawn by `make docs`.
set -euo pipefail
cd "$(dirname "$0")/../.."
pictures=docs/pictures
work=$(mktemp -d)
tmux() { command tmux -S "$work/socket" -f /dev/null -u "$@"; }
tmux new-session -d -s server cat # it outlives the others
trap 'tmux kill-server 2>/dev/null || true; rm -rf "$work"' EXIT

# screen FILE ROWS PATTERN COMMAND…: runs the command in a terminal and draws the screen that first has the pattern.
screen() {
  local file=$1 rows=$2 pattern=$3
  shift 3
  printf '%q ' "$@" > "$work/command"
  tmux new-session -d -s screen -x 104 -y "$rows" "bash '$work/command'; exec cat"
  for (( i = 0; i < 3000; i++ )); do
    if tmux capture-pane -t screen -p | grep -Eq "$pattern"; then
      tmux capture-pane -t screen -e -p > "$work/screen"
      go run "./$pictures" 104 < "$work/screen" > "$file"
      tmux kill-session -t screen
      return
    fi
    sleep 0.1
  done
  tmux capture-pane -t screen -p
  echo "the screen never had $pattern" >&2
  return 1
}

screen "$pictures/create.svg" 24 'longhorn .*gate' bin/castle rehearse mini -- castle create mini
short='stage "metallb" {\n  source = "networking/metallb"\n  gate "webhook" "objects" { timeout = "15s" }\n}'
# What follows the create would be the rehearsal's own; a home of its own keeps names of this machine out.
screen "$pictures/closed.svg" 26 '^Resume: ' env HOME="$work" bin/castle rehearse mini --fault webhook-refuses=10m -- \
  sh -c "sed -i 's|^stage \"metallb\" .*|$short|' clusters/mini/proxmox/cluster.hcl; castle create mini; sleep 3"
bin/castle rehearse mini --report "$work/report.html" > /dev/null 2>&1
sandbox=()
(( EUID != 0 )) || sandbox=(--no-sandbox)
chromium --headless "${sandbox[@]}" --disable-gpu --hide-scrollbars --force-device-scale-factor=1 \
  --window-size=1000,720 --screenshot="$PWD/$pictures/report.png" "file://$work/report.html" 2> /dev/null
for file in "$pictures"/*.{svg,png}; do
  size=$(stat -c %s "$file")
  echo "$file: $(( size / 1024 )) KB"
  (( size <= 100 * 1024 )) || { echo "$file is larger than 100 KB" >&2; exit 1; }
done
