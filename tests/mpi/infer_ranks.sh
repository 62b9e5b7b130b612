#!/bin/bash
# infer_ranks.sh - `tocsin infer` under mpirun with 1, 2 and 4 ranks and without it: the same
# invariants, provenance and kept examples, byte for byte, and the same failures, told once.
set -u

# Open MPI: as root, and with more ranks than processors, as in a small container.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
patience=120
failures=0

fail() {
    echo "FAIL: $1"
    sed 's/^/    /' out err | tail -n 40
    failures=$((failures + 1))
}

infer() { # infer N ARG...: with N ranks (0: without mpirun); the exit code is $code
    local launch=()
    [ "$1" -gt 0 ] && launch=("$MPIRUN" -n "$1")
    timeout -k 5 "$patience" "${launch[@]}" "$TOCSIN" infer "${@:2}" >out 2>err </dev/null
    code=$?
    [ "$code" -ne 124 ] || fail "$*: hung"
}

"$INFER_RUNS" "$scratch" || exit 1
for count in 0 1 2 4; do
    infer "$count" -q run0 run1 run2 run3 -o inv.jsonl --keep kept --force
    [ "$code" -eq 0 ] || fail "$count ranks: exit code $code"
    for file in inv.jsonl inv.jsonl.provenance.json kept; do
        [ "$count" -gt 0 ] || cp "$file" "expected.$file"
        cmp -s "$file" "expected.$file" || fail "$count ranks: another $file"
    done
done
[ "$(wc -l <expected.inv.jsonl)" -gt 5 ] || fail "too little was learned"

# One run on several ranks: each counts a part of what it shows.
for count in 0 1 2 3 4; do
    infer "$count" -q --wide run0 -o one.jsonl --keep one.kept --force
    [ "$code" -eq 0 ] || fail "one run, $count ranks: exit code $code"
    for file in one.jsonl one.jsonl.provenance.json one.kept; do
        [ "$count" -gt 0 ] || cp "$file" "expected.$file"
        cmp -s "$file" "expected.$file" || fail "one run, $count ranks: another $file"
    done
done

# From what was kept, with more ranks than runs.
infer 0 -q run0 run1 --keep two
infer 4 -q --add two run2 run3 -o inv.jsonl --force
cmp -s inv.jsonl expected.inv.jsonl || fail "--add with 4 ranks: other invariants"

for count in 0 2; do
    infer "$count" -q run0 missing -o other.jsonl
    [ "$code" -eq 2 ] || fail "a missing run, $count ranks: exit code $code"
    [ "$(grep -c 'tocsin: error: .*missing' err)" -eq 1 ] || fail "a missing run: not told once"
    infer "$count" -q run0 -o expected.kept
    [ "$code" -eq 2 ] || fail "a file that exists, $count ranks: exit code $code"
    [ "$(grep -c 'tocsin: error: .*exists already' err)" -eq 1 ] ||
        fail "a file that exists: not told once"
    infer "$count" -q --add run0/run.json -o other.jsonl
    [ "$code" -eq 2 ] || fail "no examples, $count ranks: exit code $code"
    [ ! -e other.jsonl ] || fail "a failure left other.jsonl"
done

[ "$failures" -eq 0 ] && echo "ok"
exit "$((failures > 0))"
