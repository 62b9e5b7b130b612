#!/bin/bash
# `tocsin verify` and `tocsin plan show`: verdicts, exit statuses, the report, and bad input.
. "${TOCSIN_SOURCE:?}/tests/cli/transcript.bash" || exit 1

cat >one.plan <<'END'
tocsin-plan 1
mesh one=1
role one=0
in %x:float32[4,6] = x
in %w:float32[8,6] = up.weight
in %v:float32[6,8] = down.weight
segment step
%u:float32[4,8] = linear(%x, %w) fw @up src=model.py:7 label=up
%a:float32[4,8] = silu(%u) fw @act src=model.py:8 label=act
%y:float32[4,6] = linear(%a, %v) fw @down src=model.py:9 label=down
%s:float32[4,6] = pow(%y) {exponent=2.0} fw src=model.py:10 label=square
%l:float32[] = mean(%s) {dims=[0,1]} fw src=model.py:10 label=mean
out loss loss = %l
end
END
parallel() { # parallel GROUP: two tensor-parallel ranks; the sum runs over the group
    cat <<END
tocsin-plan 1
mesh tp=2
group tp = (tp=0) (tp=1)
group self0 = (tp=0)
group self1 = (tp=1)
END
    for rank in 0 1; do
        cat <<END
role tp=$rank
in %x:float32[4,6] = x[0 : 4, 0 : 6]
in %w:float32[4,6] = up.weight[$((rank * 4)) : 4, 0 : 6]
in %v:float32[6,4] = down.weight[0 : 6, $((rank * 4)) : 4]
segment step
%u:float32[4,4] = linear(%x, %w) fw @up src=model.py:7 label=up
%a:float32[4,4] = silu(%u) fw @act src=model.py:8 label=act
%p:float32[4,6] = linear(%a, %v) fw @down src=model.py:9 label=down
%y:float32[4,6] = all_reduce(%p) {op=sum} group=${1/self/self$rank} fw label=down.reduce
%s:float32[4,6] = pow(%y) {exponent=2.0} fw src=model.py:10 label=square
%l:float32[] = mean(%s) {dims=[0,1]} fw src=model.py:10 label=mean
out loss loss[] = %l
end
END
    done
}
parallel tp >two.plan
parallel self >alone.plan
transcript_extra='s/[0-9.e-]+ s to/N s to/g'

expect 0 tocsin verify one.plan two.plan <<'END'
PROVED: two.plan against one.plan
  2 of 2 outputs proved (100 %), 0 of 0 gradients; 100 % of the needed operators known
  12 operators listed for 2 ranks, 12 executed (all replicas and micro-batches at once)
  N s to read, N s to prove

assumed:
  - equality is over the real numbers: rounding and the order of sums are outside the claim
END
expect 1 tocsin verify one.plan alone.plan <<'END'
REFUTED: alone.plan against one.plan
  0 of 2 outputs proved (0 %), 0 of 0 gradients; 66.67 % of the needed operators known
  12 operators listed for 2 ranks, 12 executed
  N s to read, N s to prove
  confirmed: run over a finite field, the two plans differ too

1. down.reduce: wrong-group
    ranks     tp=0; tp=1 (ranks 0, 1)
    group     self0 {0}
    is        down[0:4, 0:6] partial k in [0,4) of 8
    should be the whole sum
    fix       let down.reduce run over all ranks that hold a part of the sum
    seen      2 times

assumed:
  - equality is over the real numbers: rounding and the order of sums are outside the claim
END
sed 's/silu(%u)/swoosh(%u)/' one.plan >strange.plan
sed 's/silu(%u)/swoosh(%u)/' two.plan >strange2.plan
check "an operator without a rule is UNKNOWN" grep -q '"verdict":"UNKNOWN"' \
    <(tocsin verify strange.plan strange2.plan --format json)
tocsin verify strange.plan strange2.plan >/dev/null
check "its exit status is 3" test $? = 3
echo 'op swoosh [...] -> [...]' >mine.ops
check "declared, it is proved" grep -q "^PROVED" \
    <(tocsin verify strange.plan strange2.plan --ops mine.ops)
check "what plan show prints reads back" cmp <(tocsin plan show two.plan) \
    <(tocsin plan show <(tocsin plan show two.plan))
check "JSON is JSON" python -c 'import json, sys; json.load(sys.stdin)' \
    < <(tocsin verify one.plan alone.plan --format json)

# Bad input.
expect 2 tocsin verify one.plan <<'END'
! tocsin: error: tocsin verify needs two plans, not 1
! hint: tocsin verify LOGICAL PARALLEL
END
expect 2 tocsin verify one.plan missing.plan <<'END'
! tocsin: error: cannot open: No such file or directory, missing.plan
END
expect 2 tocsin verify two.plan one.plan <<'END'
! tocsin: error: the logical plan is itself parallel: it has 2 ranks
END
expect 2 tocsin verify one.plan two.plan --world dp=x <<'END'
! tocsin: error: --world dp=x: it is written dp=2,pp=2,tp=2,nm=2
END
for cut in 1 20 200 600; do
    head -c "$cut" two.plan >cut.plan
    tocsin verify one.plan cut.plan >out 2>err
    status=$?
    check "a plan cut off at $cut bytes is an input error" test "$status" = 2
    check "said in one line" test "$(wc -l <err)" -le 2 -a ! -s out
done
printf '\200\004\225' >bad.pkl
tocsin verify one.plan bad.pkl >out 2>err
check "a damaged pickle is an input error" test $? = 2
check "it names the file" grep -q bad.pkl err

finish
