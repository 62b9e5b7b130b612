#!/bin/bash
# bench.sh all|NAME - run benchmarks: bench/bench_NAME.c (built in build/bench) or bench/NAME.py.
# Each prints lines "figure NAME VALUE UNIT", which are kept in TOCSIN_BENCH_OUT (build/bench) as
# NAME.json, beside what the benchmark itself stores there; at the end all figures of this run stand
# together.
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

store_figures() { # store_figures NAME: the figures among the lines of NAME.txt, as NAME.json
    sed -n 's/^figure \([^ ]*\) \([^ ]*\) \(.*\)$/{"name":"\1","value":\2,"unit":"\3"}/p' \
        "$TOCSIN_BENCH_OUT/$1.txt" | paste -sd, |
        sed "s/.*/{\"bench\":\"$1\",\"figures\":[&]}/" >"$TOCSIN_BENCH_OUT/$1.json"
}

for source in bench/bench_*.c bench/*.py; do
    [ -e "$source" ] || continue
    name=$(basename "${source%.*}")
    name=${name#bench_}
    [ "$wanted" = all ] || [ "$wanted" = "$name" ] || continue
    ran=$((ran + 1))
    echo "== $name"
    case $source in
    *.c) build/bench/bench_"$name" | tee "$TOCSIN_BENCH_OUT/$name.txt" ;;
    *.py) .venv/bin/python "$source" | tee "$TOCSIN_BENCH_OUT/$name.txt" ;;
    esac
    store_figures "$name"
    cat "$TOCSIN_BENCH_OUT/$name.txt" >>"$output"
done
if [ $ran -eq 0 ]; then
    echo "tools/bench.sh: no benchmark called '$wanted' in bench/" >&2
    exit 2
fi
echo "== figures"
grep '^figure ' "$output" || true
