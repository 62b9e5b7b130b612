#!/bin/bash
# ranks.sh - lib/scale under mpirun with 1, 2 and 4 ranks and without it: the same results and
# errors for every number of ranks, and no rank that waits for ever. Drives $SCALE_RANKS
# (scale_ranks.c) by $MPIRUN.
set -u

# Open MPI: as root, and with more ranks than processors, as in a small container.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
patience=120 # seconds after which a rank counts as hung
failures=0

fail() {
    echo "FAIL: $1"
    sed 's/^/    /' "$scratch/out" "$scratch/err" | tail -n 40
    failures=$((failures + 1))
}

ranks() { # ranks N MODE: run it (N 0: without mpirun); the exit code is $code
    local launch=()
    [ "$1" -gt 0 ] && launch=("$MPIRUN" -n "$1")
    rm -rf "$scratch/jobs"
    mkdir "$scratch/jobs"
    timeout -k 5 "$patience" "${launch[@]}" "$SCALE_RANKS" "$2" "$scratch/jobs" \
        >"$scratch/out" 2>"$scratch/err" </dev/null
    code=$?
    [ "$code" -ne 124 ] || fail "$2 with $1 ranks: hung"
}

for count in 0 1 2 4; do
    for mode in work broadcast together fail limits agree faults thread leave; do
        ranks "$count" "$mode"
        [ "$code" -eq 0 ] || fail "$mode with $count ranks: exit code $code"
        [ "$count" -gt 0 ] || cp "$scratch/out" "$scratch/expected.$mode"
        cmp -s "$scratch/out" "$scratch/expected.$mode" ||
            fail "$mode with $count ranks: not what one process prints"
    done
done
[ "$(wc -l <"$scratch/expected.work")" -eq 4 ] || fail "work: not four lines"

# The exit code of all ranks: rank 0's, or if it is 0 another's.
for expected in 00:0 30:3 02:2 31:3 13:1; do
    ranks 2 "codes-${expected%:*}"
    [ "$code" -eq "${expected#*:}" ] || fail "codes-${expected%:*}: exit code $code"
done

# A rank that dies takes the job with it, and the launcher says why.
for mode in exit seven killed; do
    ranks 4 "$mode"
    if [ "$code" -eq 0 ] || [ "$code" -eq 124 ]; then
        fail "$mode: exit code $code"
    fi
    [ -s "$scratch/err" ] || [ -s "$scratch/out" ] || fail "$mode: no message"
    ! grep -q outlived "$scratch/err" || fail "$mode: ranks went on"
done

# Interrupted, as by Ctrl-C: no rank stays.
rm -rf "$scratch/jobs"
mkdir "$scratch/jobs"
timeout -k 5 "$patience" "$MPIRUN" -n 4 "$SCALE_RANKS" forever "$scratch/jobs" \
    >"$scratch/out" 2>"$scratch/err" </dev/null &
launcher=$!
while kill -0 "$launcher" 2>/dev/null && [ "$(find "$scratch/jobs" -type f | wc -l)" -lt 4 ]; do
    sleep 0.1
done
kill -INT "$launcher" # timeout passes it on
wait "$launcher"
code=$?
if [ "$code" -eq 0 ] || [ "$code" -eq 124 ]; then
    fail "interrupted: exit code $code"
fi
waited=0
while grep -qs "$scratch/jobs" /proc/[0-9]*/cmdline && [ "$waited" -lt "$patience" ]; do
    sleep 1
    waited=$((waited + 1))
done
[ "$waited" -lt "$patience" ] || fail "interrupted: ranks stay"

# Started by a launcher that this MPI does not know, or that is to be ignored.
launched() { # launched NAME=VALUE...: one process, as if it were one of several
    env "$@" timeout -k 5 "$patience" "$SCALE_RANKS" agree "$scratch" \
        >"$scratch/out" 2>"$scratch/err"
    code=$?
}
if "$MPIRUN" --version 2>/dev/null | grep -q "Open MPI"; then
    launched PMI_RANK=0 PMI_SIZE=4
else
    launched OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4
fi
[ "$code" -eq 2 ] || fail "another MPI's launcher: exit code $code"
grep -q "started 4 processes, but the MPI of this build sees 1" "$scratch/err" ||
    fail "another MPI's launcher: message"
launched OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 TOCSIN_MPI=off
[ "$code" -eq 0 ] || fail "TOCSIN_MPI=off: exit code $code"

[ "$failures" -eq 0 ] && echo "scale: ranks agree"
exit $((failures > 0))
