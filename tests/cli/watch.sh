#!/bin/bash
# The whole way with real torch: record, infer, show, check, run, follow.
. "${TOCSIN_SOURCE:?}/tests/cli/transcript.bash" || exit 1

cat >train.py <<'END'
import sys
import time

import torch

torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    if "forget" not in sys.argv:
        optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).square().mean()
    loss.backward()
    optimizer.step()
    if "slowly" in sys.argv:
        time.sleep(0.3)
print(f"loss {loss.item():.6f}")
sys.exit(3 if "three" in sys.argv else 0)
END
cat >two_steps.py <<'END'
import torch

print(torch.ones(2).sum().item())
END
export OMP_NUM_THREADS=1
transcript_extra='s/[0-9]+ (violated|holds?|unknown|invariants)/N \1/g
    s/(inv-)[0-9a-f]+/\1ID/; s/loss [0-9.]+/loss L/; /^    [0-9]+: /d'
loss=$("$PYTHON" train.py)

# ---- learn -----------------------------------------------------------------------------------

expect 0 tocsin record -q -o healthy -- "$PYTHON" train.py <<'END'
loss L
END
check "the loss is that of the unrecorded run" \
    test "$(tocsin record -q -o again -- "$PYTHON" train.py)" = "$loss"
expect 0 tocsin infer -q healthy again -o inv.jsonl </dev/null
check "each invariant has a sentence" \
    test "$(tocsin show inv.jsonl | grep -c '^inv-[0-9a-f]*  .*\.$')" -ge 10
id=$(tocsin show inv.jsonl | sed -n '1s/  .*//p')
check "one by its id" test "$(tocsin show inv.jsonl "$id" | wc -l)" = 2
check "how it was confirmed" grep -q 'times in 2 runs; .* confirmed by 2 of them$' \
    <(tocsin show --long inv.jsonl)
check "the same invariants whatever the order of the runs" cmp \
    <(tocsin infer -q again healthy -o -) inv.jsonl
expect 0 tocsin infer -q healthy --keep kept </dev/null
expect 0 tocsin infer -q --add kept again -o later.jsonl </dev/null
check "the same invariants when a run is added later" cmp later.jsonl inv.jsonl
check "where they come from" \
    grep -q '"runs":\[{"run":.*"again".*}\]}' later.jsonl.provenance.json
expect 2 tocsin infer --add kept healthy -o other.jsonl <<'END'
! tocsin: error: the same run twice tells nothing new: healthy and healthy
END
expect 2 tocsin infer --add inv.jsonl -o other.jsonl <<'END'
! tocsin: error: no file of counted examples, as infer --keep writes, inv.jsonl
END
expect 0 tocsin infer -q --wide healthy again -o wide.jsonl </dev/null
check "wide learning claims more" test "$(wc -l <wide.jsonl)" -gt "$(wc -l <inv.jsonl)"
expect 2 tocsin infer --wide --add kept again -o other.jsonl <<'END'
! tocsin: error: again was counted wide: all runs must be counted alike
END
check "info on invariants" grep -q '^invariants' <(tocsin info inv.jsonl)

# ---- look ------------------------------------------------------------------------------------

tocsin dump healthy >dump.txt
check "calls with their site" grep -Eq '> torch.optim.Optimizer.step\(.*  at <tmp>/train.py:14 in' \
    <(normalise <dump.txt)
check "states" grep -Eq '= weight.data after: float32\[2,4\] digest [0-9a-f]{32} absmax' dump.txt
check "meta variables" grep -Eq "@ stage = 'training'" dump.txt
check "as many lines as events" \
    test "$(wc -l <dump.txt)" = "$(tocsin dump --format jsonl healthy | wc -l)"
check "a limit" test "$(tocsin dump healthy -n 7 | wc -l)" = 7
check "each line of jsonl is an object" "$PYTHON" -c '
import json, sys
assert all(isinstance(json.loads(line), dict) for line in sys.stdin)' \
    < <(tocsin dump --format jsonl healthy)
check "info counts the steps" grep -Eq '^ +[0-9]+ +- +6 .* complete$' <(tocsin info healthy)
check "a process file by itself" cmp <(tocsin dump healthy/process-*.trace) dump.txt

# ---- check -----------------------------------------------------------------------------------

expect 0 tocsin check -i inv.jsonl healthy <<'END'
HOLDS: healthy: N violated, N hold, N unknown
END
expect 0 tocsin record -q -o broken -- "$PYTHON" train.py forget <<'END'
loss L
END
expect 1 tocsin check -i inv.jsonl broken <<'END'
VIOLATED: broken: N violated, N hold, N unknown

step 2: TOC003 weight and bias: gradient not cleared since the previous step
  expected: Between two calls of optimizer.step that update a parameter, its gradient is cleared.
  at: <tmp>/train.py:14 in <module>
  invariant: inv-ID, violated 10 times, last at step 6

not covered:
  N invariants never judged:
END
tocsin suppress known.jsonl TOC003 --entity '?ei*' --reason 'weights, on purpose'
expect 1 tocsin check -i inv.jsonl --suppress known.jsonl broken <<'END'
VIOLATED: broken: N violated, N hold, N unknown

step 2: TOC003 bias: gradient not cleared since the previous step
  expected: Between two calls of optimizer.step that update a parameter, its gradient is cleared.
  at: <tmp>/train.py:14 in <module>
  invariant: inv-ID, violated 5 times, last at step 6

suppressed:
  TOC003 for ?ei*, 5 times: weights, on purpose

not covered:
  N invariants never judged:
END
tocsin suppress known.jsonl TOC003 --reason 'all of them'
expect 0 tocsin check -i inv.jsonl --suppress known.jsonl broken <<'END'
HOLDS: broken: N violated, N hold, N unknown, 1 suppressed

suppressed:
  TOC003 for ?ei*, 5 times: weights, on purpose
  TOC003, 5 times: all of them

not covered:
  N invariants never judged:
END
tocsin check -i inv.jsonl --format json broken >report.json
check "the JSON report" "$PYTHON" - <<'END'
import json

report = json.load(open("report.json"))
assert report["schema"] == 1 and report["verdict"] == "violated"
assert report["violated"] == len(report["findings"]) > 0
assert {"code", "invariant", "step", "rank", "rendered"} <= set(report["findings"][0])
assert all(finding["step"] == 2 for finding in report["findings"])
END
expect 0 tocsin record -q -o idle -- "$PYTHON" two_steps.py <<'END'
2.0
END
expect 3 tocsin check -i inv.jsonl idle <<'END'
UNKNOWN: idle: N violated, N hold, N unknown

not covered:
  N invariants never judged:
END

check "why nothing was judged" grep -Eq '^    [0-9]+: optimizer.step was never called$' \
    <(tocsin check -i inv.jsonl idle)
tocsin check -i inv.jsonl --format json --counts broken >counts.json
check "each invariant is counted, and each one not judged has its reason" "$PYTHON" - <<'END'
import json

report = json.load(open("counts.json"))
counts = report["invariants"]
assert len(counts) == report["holds"] + report["violated"] + report["unknown"]
assert sum(one["violated"] > 0 for one in counts) == report["violated"]
never = {one["id"] for one in counts if one["judged"] == 0}
assert never == {one["invariant"] for one in report["not_judged"]} and never
assert all(one["why"] and one["reason"] for one in report["not_judged"])
assert "invariants" not in json.load(open("report.json"))
END

# ---- run -------------------------------------------------------------------------------------

expect 0 tocsin run -q -i inv.jsonl -o watched -- "$PYTHON" train.py <<'END'
loss L
! HOLDS: watched: N violated, N hold, N unknown
END
{
    echo '{"format":"tocsin-invariants","version":1}'
    echo '{"relation":"EventContain","population":{"kind":"call","function":"gelu"},' \
        '"fact":{"is":"calls","function":"tanh"},"when":[]}'
} >other.jsonl
expect 3 tocsin check -i other.jsonl --all watched <<'END'
UNKNOWN: watched: N violated, N hold, N unknown

not covered:
  1 invariant never judged:
      inv-ID  Every call of gelu calls tanh.
END
check "a call may not have been recorded" \
    grep -q 'gelu was not called, or is not among what was recorded' \
    <(tocsin check -i other.jsonl watched)
check "the loss is that of the unwatched run" \
    test "$(tocsin run -q -i inv.jsonl -- "$PYTHON" train.py 2>/dev/null)" = "$loss"
check "less is recorded than by record" \
    test "$(cat watched/*.trace | wc -c)" -lt "$(cat healthy/*.trace | wc -c)"
check "a finding does not change the status" \
    tocsin run -q -i inv.jsonl -r report.txt -- "$PYTHON" train.py forget >/dev/null
check "the report is in its file" grep -q '^VIOLATED' report.txt
tocsin run -q -i inv.jsonl --fail-on-finding -r - -- "$PYTHON" train.py forget >out 2>err
check "unless asked to" test "$?" = 86
check "the report on stdout" grep -q '^VIOLATED' out
tocsin run -q -i inv.jsonl --fail-on-finding -- "$PYTHON" train.py three >out 2>err
check "the command's own status" test "$?" = 3
tocsin run -i inv.jsonl --format json -- "$PYTHON" train.py forget >out 2>err
check "JSON after the command's output" "$PYTHON" -c '
import json
lines = open("out").read().splitlines()
assert lines[0].startswith("loss") and json.loads(lines[1])["verdict"] == "violated"'
check "findings as they are found" grep -q '^tocsin: step 2: TOC00[0-9] ' err

# ---- follow ----------------------------------------------------------------------------------

"$TOCSIN" record -q -o growing -- "$PYTHON" train.py slowly forget >/dev/null &
for _ in $(seq 400); do
    compgen -G 'growing/*.trace' >/dev/null && break
    sleep 0.05
done
check "what is read of a growing run is a part" \
    grep -q '^[A-Z]* (partial): growing: ' <(tocsin check -i inv.jsonl growing)
tocsin check -i inv.jsonl --follow growing >out 2>err
check "following finds it" test "$?" = 1
check "and says so at once" grep -q '^tocsin: step 2: TOC00[0-9] ' err
check "and waits for the end" grep -q 'last at step 6' out
wait
finish
