#!/usr/bin/env bash
# Fuzzes one target, folder:name, with the binary that `make fuzz` has built. A find stays as a file below the
# package's testdata/fuzz, which every `go test` reads; the last lines say how to run it again.
set -euo pipefail
folder=${1%:*} name=${1#*:}
binary=$PWD/bin/fuzz/${folder##./internal/}.test
cache=$(go env GOCACHE)/fuzz/castle/${folder##./internal/}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
cd "$folder"
# On a busy machine Go before 1.27 may report that the time is over as a failure, without a failing input
# (https://go.dev/issue/75804).
time_over() { grep -qx '    context deadline exceeded' "$log" && ! grep -q 'Failing input written' "$log"; }
if "$binary" -test.run '^$' -test.fuzz "^$name\$" -test.fuzztime "$FUZZ_TIME" -test.fuzzminimizetime 10x \
  -test.parallel 1 -test.fuzzcachedir "$cache" > "$log" 2>&1 || time_over; then
  grep '^fuzz: elapsed' "$log" | tail -1 | sed "s|^fuzz: |$folder $name: |"
  exit
fi
cat "$log"
sed -n 's|.*Failing input written to \(.*\)|\1|p' "$log" | while read -r input; do
  echo "$folder/$input:"
  cat "$input"
  echo "Again: go test -run '$name/$(basename "$input")' $folder"
done
exit 1
