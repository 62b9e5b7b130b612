#!/bin/bash
# bench.sh all|NAME - run benchmarks: bench/bench_NAME.c (built in build/bench) or bench/NAME.py.
# Each prints lines "figure NAME VALUE UNIT" and writes JSON into TOCSIN_BENCH_OUT (build/bench);
# at the end all figures of this run stand together.
set -euo pipefail
cd "$(dirname "$0")/.."

wanted=${1:-all}
export TOCSIN_BENCH_OUT=${TOCSIN_BENCH_OUT:-$PWD/build/bench}
export TOCSIN=$PWD/build/tocsin
export PYTHONPATH=$PWD/build/python
mkdir -p "$TOCSIN_BENCH_OUT"
output=$TOCSIN_BENCH_OUT/figures.txt
: >"$output"
ran=0

for source in bench/bench_*.c bench/*.py; do
    [ -e "$source" ] || continue
    name=$(basename "${source%.*}")
    name=${name#bench_}
    [ "$wanted" = all ] || [ "$wanted" = "$name" ] || continue
    ran=$((ran + 1))
    echo "== $name"
    case $source in
    *.c) build/bench/bench_"$name" | tee -a "$output" ;;
    *.py) .venv/bin/python "$source" | tee -a "$output" ;;
    esac
done
if [ $ran -eq 0 ]; then
    echo "tools/bench.sh: no benchmark called '$wanted' in bench/" >&2
    exit 2
fi
echo "== figures"
grep '^figure ' "$output" || true
