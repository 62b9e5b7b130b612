#!/bin/bash
# On a terminal: Ctrl-C reaches the command once and tocsin outlives it; colour only where wanted.
. "${TOCSIN_SOURCE:?}/tests/cli/transcript.bash" || exit 1

cat >patient.py <<'END'
import signal
import sys
import time

interrupts = 0


def count(*_):
    global interrupts
    interrupts += 1


signal.signal(signal.SIGINT, count)
print("ready", flush=True)
until = time.monotonic() + 60
while not interrupts and time.monotonic() < until:
    time.sleep(0.01)
time.sleep(0.5)
print(f"interrupts {interrupts}", flush=True)
sys.exit(int(sys.argv[1]))
END
cat >on_terminal.py <<'END'
"""Run a command on a terminal of its own; type Ctrl-C once it prints "ready"."""

import os
import pty
import sys

pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
output = b""
typed = False
while True:
    try:
        piece = os.read(terminal, 4096)
    except OSError:  # the other side has closed
        break
    if not piece:
        break
    output += piece
    if b"ready" in output and not typed:
        typed = True
        os.write(terminal, b"\x03")
_, status = os.waitpid(pid, 0)
sys.stdout.write(output.decode().replace("\r\n", "\n"))
sys.exit(os.waitstatus_to_exitcode(status))
END

"$PYTHON" on_terminal.py "$TOCSIN" record -o interrupted -- "$PYTHON" patient.py 7 >out
check "the command's own status" test "$?" = 7
check "one interrupt, not two" grep -q 'interrupts 1$' out
check "tocsin says how it ended" grep -q '^tocsin: the command ended with exit status 7$' out
check "and writes it down" grep -q '"exit":7' interrupted/run.json

# Of repeats it ends all, also where the command does not mind.
"$PYTHON" on_terminal.py "$TOCSIN" record --repeat 3 -o repeats -- "$PYTHON" patient.py 0 >out
check "the command's own status" test "$?" = 0
check "no further repeat" grep -q '^tocsin: stopped: 0 of 3 repeats are whole, in repeats$' out
check "what is there stays" test "$(ls repeats)" = repeat-1

cat >inv.jsonl <<'END'
{"format":"tocsin-invariants","version":1}
END
on_terminal() { env "$@" "$PYTHON" on_terminal.py "$TOCSIN" check -i inv.jsonl interrupted; }
escape=$'\033'
check "colour on a terminal" grep -q "$escape" <(on_terminal TERM=xterm)
check "not when NO_COLOR is set" test -z "$(on_terminal TERM=xterm NO_COLOR=1 | grep "$escape")"
check "not on a dumb terminal" test -z "$(on_terminal TERM=dumb | grep "$escape")"
check "not in a pipe" test -z "$(TERM=xterm tocsin check -i inv.jsonl interrupted | grep "$escape")"
finish
