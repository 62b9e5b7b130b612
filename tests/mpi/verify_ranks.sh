#!/bin/bash
# verify_ranks.sh - `mpirun -n N tocsin verify --cache`: the parts are shared, and the verdict, the
# report and what the cache keeps are the same for every number of ranks.
set -u

# Open MPI: as root, and with more ranks than processors, as in a small container.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0

fail() {
    echo "FAIL: $1"
    sed 's/^/    /' "$scratch/out" "$scratch/err" | tail -n 40
    failures=$((failures + 1))
}

verify() { # verify N PLAN: the report without times is $scratch/report, the exit code $code
    local launch=()
    [ "$1" -gt 0 ] && launch=("$MPIRUN" -n "$1")
    timeout -k 5 120 "${launch[@]}" "$TOCSIN" verify "$scratch/l.plan" "$2" \
        --cache "$scratch/cache$1" --format json >"$scratch/out" 2>"$scratch/err" </dev/null
    code=$?
    sed -E 's/"(read_seconds|seconds|peak_rss_bytes)":[0-9.]+,?//g' "$scratch/out" \
        >"$scratch/report"
}

"$PYTHON" "$TOCSIN_SOURCE/bench/plans/parallel_plan.py" "$scratch/l.plan" "$scratch/p.plan" \
    --layers 6 --dp 2 --pp 2 --tp 2 --nm 2 >"$scratch/out" 2>"$scratch/err" ||
    fail "the plans cannot be written"
# A right change (a product the other way round) and a wrong one, in one layer.
sed -E '/label=layers\.3\.feed_forward\.product$/s/mul\((%[^,]+), (%[^)]+)\)/mul(\2, \1)/' \
    "$scratch/p.plan" >"$scratch/changed.plan"
sed -E '/label=layers\.3\.feed_forward\.w2\.reduce$/s/op=sum/op=avg/' \
    "$scratch/p.plan" >"$scratch/wrong.plan"
for plan in changed wrong; do
    ! cmp -s "$scratch/p.plan" "$scratch/$plan.plan" || fail "$plan.plan: nothing changed"
done

for count in 0 1 2 4; do
    for plan in p changed wrong missing; do
        verify "$count" "$scratch/$plan.plan"
        [ "$count" -gt 0 ] || {
            cp "$scratch/report" "$scratch/expected.$plan"
            echo "$code" >"$scratch/code.$plan"
        }
        [ "$code" -eq "$(cat "$scratch/code.$plan")" ] ||
            fail "$plan with $count ranks: exit code $code"
        sed -i "s/cache$count/cache/" "$scratch/report"
        if [ "$plan" != missing ]; then
            # the launcher adds its own lines behind a report with an exit code
            head -n 1 "$scratch/report" | cmp -s - <(head -n 1 "$scratch/expected.$plan") ||
                fail "$plan with $count ranks: another report"
        else
            [ "$(grep -c '^tocsin: error:' "$scratch/err")" -eq 1 ] ||
                fail "$plan with $count ranks: not one error"
        fi
    done
    cmp -s "$scratch"/cache0/*.proof "$scratch/cache$count"/*.proof ||
        fail "$count ranks keep something else"
done
grep -q '"verdict":"PROVED".*"parts_proved":1,"reused":true' "$scratch/expected.changed" ||
    fail "not the changed part alone was proved"
grep -q '"verdict":"REFUTED"' "$scratch/expected.wrong" || fail "the wrong plan is not refuted"

[ "$failures" -eq 0 ] || exit 1
echo "mpi verify: ok"
