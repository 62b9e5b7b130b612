#!/bin/bash
# Relations of the user, as examples/relation says: built, learned from, checked, watched, missing.
. "${TOCSIN_SOURCE:?}/tests/cli/transcript.bash" || exit 1

cat >train.py <<'END'
import sys

import torch

torch.manual_seed(int(sys.argv[1]))
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(1, 21):
    optimizer.zero_grad()
    loss = model(torch.randn(32, 4)).square().mean() + 1
    if step == 15 and "spike" in sys.argv:
        loss = loss * 10000
    if step == 12 and "resume" in sys.argv:
        optimizer.param_groups[0]["lr"] = 0.0001
    loss.backward()
    optimizer.step()
END
transcript_extra='s/inv-[0-9a-f]{16}/inv-ID/g; s/update has at most/UPDATE/; s/open shared.*/open/
    s/the learning rate of the one before/THAT BEFORE/'
export OMP_NUM_THREADS=1 PYTHONPATH=$TOCSIN_BUILD/python
rate="'$PYTHON' '$TOCSIN_SOURCE/examples/relation/learning_rate.py'"
norm=library/gradient_norm.so
check "the example in C is configured" cmake -S "$TOCSIN_SOURCE/examples/relation" -B library \
    -DTOCSIN_INCLUDE="$TOCSIN_SOURCE/include" -DCMAKE_BUILD_TYPE=Release >/dev/null
check "the example in C is built" cmake --build library >/dev/null
for seed in 1 2; do
    expect 0 tocsin record -q -o "healthy-$seed" -- "$PYTHON" train.py $seed <<'END'
END
done
expect 0 tocsin record -q -o resumed -- "$PYTHON" train.py 3 resume <<'END'
END

# ---- learned, whatever the threads and the way -------------------------------------------------

with=(--relation $norm --relation "$rate")
tocsin infer -q "${with[@]}" -j 1 healthy-1 healthy-2 -o all.jsonl
tocsin infer -q "${with[@]}" -j 2 healthy-2 healthy-1 -o again.jsonl
check "equal on two threads" cmp all.jsonl again.jsonl
tocsin infer -q "${with[@]}" healthy-1 --keep one.examples
tocsin infer -q "${with[@]}" healthy-2 --add one.examples -o again.jsonl --force
check "equal when a run is added" cmp all.jsonl again.jsonl
tocsin infer -q healthy-1 healthy-2 -o plain.jsonl
tocsin filter all.jsonl --relation TOC010 -o user.jsonl 2>/dev/null
tocsin merge plain.jsonl user.jsonl -o again.jsonl --force 2>/dev/null
check "they add to what is learned without" cmp all.jsonl again.jsonl
expect 0 tocsin show user.jsonl <<'END'
inv-ID  gradient_norm: every UPDATE 10 times the gradient norm of those before.
inv-ID  gradient_norm: every UPDATE 100 times the gradient norm of those before.
inv-ID  learning_rate: every update has at least half THAT BEFORE.
inv-ID  learning_rate: every UPDATE twice THAT BEFORE.
END

# ---- checked and watched -----------------------------------------------------------------------

expect 0 tocsin check -q -i user.jsonl "${with[@]}" healthy-2 <<'END'
HOLDS: healthy-2: 0 violated, 4 hold, 0 unknown
END
expect 1 tocsin check -q -i user.jsonl "${with[@]}" resumed <<'END'
VIOLATED: resumed: 1 violated, 3 hold, 0 unknown

step 12: TOC010 torch.optim.Optimizer.step: the learning rate went from 0.05 to 0.0001
  expected: learning_rate: every update has at least half THAT BEFORE.
  at: <tmp>/train.py:16 in <module>
  invariant: inv-ID
END
expect 1 tocsin check -q -i user.jsonl --relation "$rate" resumed <<'END'
VIOLATED: resumed: 1 violated, 1 holds, 2 unknown

step 12: TOC010 torch.optim.Optimizer.step: the learning rate went from 0.05 to 0.0001
  expected: learning_rate: every update has at least half THAT BEFORE.
  at: <tmp>/train.py:16 in <module>
  invariant: inv-ID

not covered:
  2 invariants never judged:
    2: the relation gradient_norm was not given (--relation)
END
tocsin run -q -i user.jsonl "${with[@]}" --fail-on-finding -o watched -- \
    "$PYTHON" train.py 4 spike >/dev/null 2>report
check "what is violated is seen while it trains" test $? = 86
check "the spike is named" grep -q 'step 15: TOC010.*the gradient has norm' report
check "only what they need is recorded" \
    grep -qx 'state optimizer.step enter grad digest parameter' watched/selection

# ---- what is no relation -----------------------------------------------------------------------

expect 2 tocsin infer -q --relation missing.so healthy-1 -o none.jsonl <<'END'
! tocsin: error: cannot load: ./missing.so: cannot open
END
expect 2 tocsin check -q --relation 'exit 5' healthy-1 <<'END'
! tocsin: error: the relation ended with status 5, exit 5
END
expect 2 tocsin check -q -i user.jsonl "${with[@]}" --relation $norm healthy-1 <<'END'
! tocsin: error: there is a relation gradient_norm already, library/gradient_norm.so
END
cat >talkative.py <<'END'
from tocsin.relation import Relation


class Talkative(Relation):
    name = "learning_rate"
    calls = [{"role": "optimizer.step"}]

    def enter(self, at):
        if at.step == 1:
            print("this is no answer")
        fact = "has at least half the learning rate of the one before"
        self.see("update", {fact: at.value("self.lr") > 0.025})


Talkative().main()
END
grep -e tocsin-invariants -e 'at least half' user.jsonl >half.jsonl
expect 0 tocsin check -q -i half.jsonl --relation "'$PYTHON' talkative.py" healthy-1 <<'END'
HOLDS: healthy-1: 0 violated, 1 holds, 0 unknown
! this is no answer
END
cat >absent.py <<'END'
from tocsin.relation import Relation


class Absent(Relation):
    name = "learning_rate"
    calls = [{"role": "optimizer.step"}]

    def enter(self, at):
        raise KeyError(at.function)


Absent().main()
END
expect 2 tocsin check -q -i user.jsonl --relation "'$PYTHON' absent.py 2>log" healthy-1 <<'END'
! tocsin: error: relation learning_rate: KeyError: 'torch.optim.Optimizer.step'
END
check "its traceback is not lost" grep -q 'absent.py.*in enter' log
check "a relation does not import torch" "$PYTHON" -c \
    'import sys, tocsin.relation; sys.exit("torch" in sys.modules)'
finish
