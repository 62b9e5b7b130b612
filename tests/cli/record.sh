#!/bin/bash
# `tocsin record` around commands that do not import torch: launching, signals, exit statuses.
. "${TOCSIN_SOURCE:?}/tests/cli/transcript.bash" || exit 1

nothing='! tocsin: nothing was recorded: no Python of the command imported torch under the recorder
! hint: the command must end in a Python that does not ignore its environment (-E, -I)'

expect 0 tocsin record -o run -- echo hello <<END
hello
$nothing
END
check "run.json is there" test -f run/run.json
expect 0 tocsin info run <<'END'
command   echo hello
folder    <tmp>
host      <host>
mode      record
started   <time>
ended     <time>
exit      0
tocsin    <version>
nothing was recorded
END

expect 3 tocsin infer run -o inv.jsonl <<'END'
! tocsin: error: nothing could be inferred from 1 recording with 0 events
! hint: tocsin info run
END
check "no invariants were written" test ! -e inv.jsonl
expect 2 tocsin infer run -o no/such/inv.jsonl <<'END'
! tocsin: error: cannot create: No such file or directory, no/such/inv.jsonl
END

# Nothing is overwritten unless asked.
expect 2 tocsin record -o run -- echo again <<'END'
! tocsin: error: run exists already
! hint: choose another name with -o, or add --force to replace the recording
END
expect 0 tocsin record --quiet --force -o run -- echo again <<'END'
again
END
expect 0 tocsin record -q --force --sample 5 -o run -- sh -c 'echo "$TOCSIN_SAMPLE"' <<'END'
5
END
TOCSIN_SAMPLE=7 expect 0 tocsin record -q --force -o run -- sh -c 'echo "$TOCSIN_SAMPLE"' <<'END'
7
END
mkdir precious
echo data >precious/file
expect 2 tocsin record --force -o precious -- echo no <<'END'
! tocsin: error: precious exists already and is not a recording
! hint: choose another name with -o
END
check "the file is still there" test "$(cat precious/file)" = data
echo >occupied
expect 2 tocsin record -o occupied -- true <<'END'
! tocsin: error: cannot use occupied: Not a directory
END
expect 2 tocsin record -o no/such/folder -- true <<'END'
! tocsin: error: cannot create no/such/folder: No such file or directory
END

# What cannot start leaves nothing behind.
expect 2 tocsin record -o gone -- no-such-program <<'END'
! tocsin: error: command not found, no-such-program
END
expect 2 tocsin record -o gone -- "$PYTHON" missing.py --steps 3 <<'END'
! tocsin: error: cannot read the script: No such file or directory, missing.py
END
expect 2 tocsin record -o gone -- "$PYTHON" -u -X dev -W ignore missing.py <<'END'
! tocsin: error: cannot read the script: No such file or directory, missing.py
END
echo '#!/no/such/interpreter' >broken
chmod +x broken
expect 2 tocsin record -o gone -- ./broken <<'END'
! tocsin: error: cannot execute: No such file or directory, ./broken
END
check "no folder was left" test ! -e gone

# The status and the output are the command's.
expect 3 tocsin record -q -o status -- "$PYTHON" -c 'print("out"); raise SystemExit(3)' <<'END'
out
END
expect 1 tocsin record -o raises -- "$PYTHON" -c 'raise ValueError("mine")' <<END
! Traceback (most recent call last):
!   File "<string>", line 1, in <module>
! ValueError: mine
! tocsin: the command ended with exit status 1
$nothing
END
expect 137 tocsin record -o killed -- bash -c 'kill -KILL $$' <<END
! tocsin: the command was killed by signal 9 (Killed)
$nothing
END
check "the status is in run.json" grep -q '"exit":137' killed/run.json
expect 0 tocsin record -q -o words -- printf '[%s]\n' 'a b' '' '--help' <<'END'
[a b]
[]
[--help]
END
expect 0 tocsin record -q -o no-dashes printf '%s\n' -o <<'END'
-o
END

# The default name says what ran.
expect 0 tocsin record -q -- echo named <<'END'
named
END
check "one default name" test "$(ls -d tocsin-echo-* | normalise)" = "tocsin-echo-<time>-<pid>"

# The environment of the command: ours is added, the user's PYTHONPATH stays behind it.
mkdir modules
echo 'value = 7' >modules/mine.py
export PYTHONPATH=$PWD/modules
expect 0 tocsin record -q -o path -- "$PYTHON" -c 'import mine; print(mine.value)' <<'END'
7
END
unset PYTHONPATH
check "no secrets in run.json" bash -c '! SECRET=hunter2 "$TOCSIN" record -q -o secret -- true ||
    ! grep -q hunter2 secret/run.json'

# Signals sent to tocsin reach the command, which decides.
cat >patient.py <<'END'
import signal
import sys
import time

signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
print("ready", flush=True)
time.sleep(60)
END
"$TOCSIN" record -q -o signalled -- "$PYTHON" patient.py >ready &
for _ in $(seq 400); do
    grep -qs ready ready && break
    sleep 0.05
done
kill -TERM "$!"
wait "$!"
check "the command's own answer to SIGTERM" test "$?" = 5
check "the end is recorded" grep -q '"exit":5' signalled/run.json
cat >asked.py <<'END'
import signal
import sys
import time

seen = []
for name in (signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(name, lambda number, _: seen.append(number))
print("ready", flush=True)
while len(seen) < 2:
    time.sleep(0.02)
sys.exit(7)
END
"$TOCSIN" record -q -o asked -- "$PYTHON" asked.py >ready-too &
for _ in $(seq 400); do
    grep -qs ready ready-too && break
    sleep 0.05
done
kill -USR1 "$!"
kill -USR2 "$!"
wait "$!"
check "a scheduler's signals reach the command" test "$?" = 7

# A parent that ignores SIGCHLD would have the kernel throw the status away; a reader of the
# messages that has gone must not cost it either.
cat >careless.py <<'END'
import os
import signal
import sys

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])
END
timeout 20 "$PYTHON" careless.py "$TOCSIN" record -q -o careless -- "$PYTHON" -c '
import signal
raise SystemExit(3 if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN else 4)'
check "the status under a careless parent" test "$?" = 3
{
    "$TOCSIN" record -o unheard -- bash -c 'sleep 0.5; exit 6'
    echo "$?" >unheard/status
} 2>&1 | true
check "the status without a reader" test "$(cat unheard/status)" = 6

# A report that its file does not take goes to stderr.
echo '{"format":"tocsin-invariants","version":1}' >inv.jsonl
expect 2 tocsin run -q -i inv.jsonl -o reported -r no/such/report -- true <<'END'
! UNKNOWN: reported: 0 violated, 0 hold, 0 unknown
! tocsin: error: cannot write no/such/report: No such file or directory
END
# Where boundaries are recorded.
expect 2 tocsin record --mode full --boundaries modules,layers -- true <<'END'
! tocsin: error: --boundaries: 'modules,layers' is not a list of modules, ops, collectives
END
expect 2 tocsin record --boundaries modules -- true <<'END'
! tocsin: error: --boundaries: 'modules' is not collectives; the others need --mode
END
expect 0 tocsin record -q -f -o run --mode trusted --boundaries modules,collectives -- \
    printenv TOCSIN_BOUNDARIES <<'END'
trusted:modules,collectives
END
expect 0 tocsin record -q -f -o run --boundaries collectives -- printenv TOCSIN_BOUNDARIES <<'END'
online:collectives
END
finish
