#!/bin/bash
# Input that is missing, damaged, of another version or not what it should be: one clear line, the
# right exit status, and what is whole is still used.
. "${TOCSIN_SOURCE:?}/tests/cli/transcript.bash" || exit 1

cat >train.py <<'END'
import os
import signal
import sys
import time
import torch

torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).square().mean()
    time.sleep(0.06)  # a block ends: it is written every 50 ms
    loss.backward()
    time.sleep(0.06)
    optimizer.step()
if "raise" in sys.argv:
    raise RuntimeError("no space left")
if "kill" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
END
export OMP_NUM_THREADS=1
expect 0 tocsin record -q -o whole -- "$PYTHON" train.py </dev/null
expect 0 tocsin infer -q whole -o inv.jsonl </dev/null
trace=$(basename whole/process-*.trace)
size=$(stat -c %s "whole/$trace")
transcript_extra='s/[0-9]+ (violated|holds?|unknown|invariants)/N \1/g
    s/[0-9.]+ (bytes|KiB)/N bytes/; s/process-.*\.trace/<trace>/
    s/unexpected token near end of file/<what>/
    s/(6 steps recorded), .* (in <tmp>)/\1, ... \2/
    /^    [0-9]+: /d'

# ---- a script that dies: what it did until then is there and checked -------------------------

expect 1 tocsin record -o raised -- "$PYTHON" train.py raise <<'END'
! Traceback (most recent call last):
!   File "<tmp>/train.py", line 18, in <module>
!     raise RuntimeError("no space left")
! RuntimeError: no space left
! tocsin: 6 steps recorded, ... in <tmp>/raised
! tocsin: the command ended with exit status 1
! tocsin: recorded 1 process, N bytes, in raised
! hint: tocsin infer raised -o inv.jsonl
END
expect 0 tocsin check -i inv.jsonl raised <<'END'
HOLDS: raised: N violated, N hold, N unknown
END
expect 137 tocsin record -q -o killed -- "$PYTHON" train.py kill </dev/null
expect 0 tocsin check -i inv.jsonl killed <<'END'
HOLDS: killed: N violated, N hold, N unknown

not covered:
  the end of 1 process: killed, or the file is cut off
END
check "all six steps of the killed process" grep -Eq ' +6 .*killed$' <(tocsin info killed)

# ---- traces ----------------------------------------------------------------------------------

expect 2 tocsin check -i inv.jsonl missing <<'END'
! tocsin: error: cannot open: No such file or directory, missing
! hint: tocsin record -o missing -- python train.py makes a recording
END
mkdir empty
expect 2 tocsin info empty <<'END'
! tocsin: error: not a run: it has no run.json, empty
END

damage() { # damage NAME: a copy of the recording to be damaged
    cp -r whole "$1"
}
damage cut
truncate -s $((size / 2)) "cut/$trace"
expect 2 tocsin check -i inv.jsonl cut <<'END'
HOLDS: cut: N violated, N hold, N unknown

not covered:
  N invariants never judged:
  the end of 1 process: killed, or the file is cut off
! tocsin: error: cut off: N bytes after the last whole block, cut/<trace>
END
damage flipped
printf '\377' | dd of="flipped/$trace" bs=1 seek=$((size / 2)) conv=notrunc status=none
transcript_extra="$transcript_extra
    s/^(HOLDS|UNKNOWN): flipped/HOLDS or UNKNOWN: flipped/" # by what the block in the middle named
expect 2 tocsin check -i inv.jsonl flipped <<'END'
HOLDS or UNKNOWN: flipped: N violated, N hold, N unknown

not covered:
  N invariants never judged:
  1 corrupt block: the events in it are lost, and what follows it is not judged
! tocsin: error: damaged: 1 block skipped, flipped/<trace>
END
for part in $(seq 40); do
    rm -rf flipped-again
    damage flipped-again
    printf '\377' |
        dd of="flipped-again/$trace" bs=1 seek=$((size * part / 41)) conv=notrunc status=none
    tocsin check -i inv.jsonl flipped-again 2>/dev/null
done >flips
check "what is lost is no violation" test "$(grep -c '^VIOLATED' flips)" -eq 0
check "dump goes on after the damage" test "$(tocsin dump flipped 2>/dev/null | wc -l)" -gt 10
damage v2
printf '\177' | dd of="v2/$trace" bs=1 seek=8 conv=notrunc status=none
expect 2 tocsin check -i inv.jsonl v2 <<'END'
! tocsin: error: trace version 127 (features 0) is not the version 1 read here, v2/<trace> at byte 8
END
damage nonsense
echo 'not a trace at all, whatever its name says' >"nonsense/$trace"
expect 2 tocsin check -i inv.jsonl nonsense <<'END'
! tocsin: error: not a Tocsin trace, nonsense/<trace> at byte 0
END
damage nothing
: >"nothing/$trace"
expect 3 tocsin check -i inv.jsonl nothing <<'END'
UNKNOWN: nothing: N violated, N hold, N unknown

not covered:
  N invariants never judged:
  the end of 1 process: killed, or the file is cut off
END
damage badjson
echo '{"format":' >badjson/run.json
expect 2 tocsin info badjson <<'END'
! tocsin: error: not valid JSON (line 2, column 0): <what>, badjson/run.json at byte 11
END
damage other
echo '{"format":"something-else","version":1}' >other/run.json
expect 2 tocsin info other <<'END'
! tocsin: error: not the description of a Tocsin run, other/run.json
END
damage newer
sed -i 's/"version":1/"version":99/' newer/run.json
expect 2 tocsin info newer <<'END'
! tocsin: error: run version 99 is not the version 1 read here, newer/run.json
END

# ---- invariants ------------------------------------------------------------------------------

expect 2 tocsin show missing.jsonl <<'END'
! tocsin: error: cannot open: No such file or directory, missing.jsonl
END
: >empty.jsonl
expect 2 tocsin show empty.jsonl <<'END'
! tocsin: error: the file is empty, empty.jsonl
END
printf '\216\377\001\002' >binary.jsonl
expect 2 tocsin check -i binary.jsonl whole <<'END'
! tocsin: error: line 1: not valid JSON (line 1, column 0): unable to decode byte 0x8e, binary.jsonl
END
sed 's/"version":1/"version":2/' inv.jsonl >newer.jsonl
expect 2 tocsin check -i newer.jsonl whole <<'END'
! tocsin: error: version 2 of the format is not supported, only 1, newer.jsonl
END
sed '3s/.*/{"id":/' inv.jsonl >broken.jsonl
expect 2 tocsin run -i broken.jsonl -o never -- "$PYTHON" train.py <<'END'
! tocsin: error: line 3: not valid JSON (line 1, column 6): <what>, broken.jsonl
END
check "nothing was started" test ! -e never
expect 2 tocsin show train.py <<'END'
! tocsin: error: line 1: not valid JSON (line 1, column 6): invalid token near 'import', train.py
END
expect 2 tocsin infer whole -o inv.jsonl <<'END'
! tocsin: error: inv.jsonl exists already
! hint: choose another name with -o, or add --force to replace it
END
expect 2 tocsin infer train.py -o other.jsonl <<'END'
! tocsin: error: cannot open: Not a directory, train.py
END
expect 2 tocsin infer whole -o no/such/folder.jsonl <<'END'
! tocsin: error: cannot create: No such file or directory, no/such/folder.jsonl
END
finish
