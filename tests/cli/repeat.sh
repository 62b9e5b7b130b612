#!/bin/bash
# `tocsin record --repeat` around commands that do not import torch: folders, ends, signals.
. "${TOCSIN_SOURCE:?}/tests/cli/transcript.bash" || exit 1

expect 0 tocsin record --repeat 2 -o twice -- echo hello <<'END'
hello
hello
! tocsin: repeat 1 of 2
! tocsin: repeat 2 of 2
! tocsin: repeat 2: nothing to compare was recorded
! tocsin: 0 boundaries do not repeat in 2 repeats: twice/unstable.jsonl
END
check "each is a run" test -f twice/repeat-1/run.json -a -f twice/repeat-2/run.json
expect 0 cat twice/unstable.jsonl <<'END'
{"format":"tocsin-unstable","version":1,"repeats":2}
END
expect 2 tocsin info twice <<'END'
! tocsin: error: a folder of several runs: name one of them, as twice/repeat-1, twice
END

# Nothing is overwritten unless asked, and then only runs.
expect 2 tocsin record --repeat 3 -o twice -- true <<'END'
! tocsin: error: twice exists already
! hint: choose another name with -o, or add --force to replace them
END
echo mine >twice/notes
expect 3 tocsin record --repeat 3 --force -o twice -- sh -c 'exit 3' <<'END'
! tocsin: repeat 1 of 3
! tocsin: the command ended with exit status 3
! tocsin: stopped: 1 of 3 repeats are whole, in twice
END
check "what is no run stays, older runs do not" \
    test "$(ls twice | tr '\n' ' ')" = "notes repeat-1 "
mkdir precious
echo data >precious/file
expect 2 tocsin record --repeat 2 --force -o precious -- true <<'END'
! tocsin: error: precious exists already and holds no such runs
! hint: choose another name with -o
END

# Only a later repeat fails: the series goes on, and its status is not lost.
expect 1 tocsin record -q --repeat 3 -o fails -- sh -c '[ ! -e once ] && : >once' <<'END'
END
check "all were run" test -f fails/repeat-3/run.json

# A signal stops the series; what is whole stays.
"$TOCSIN" record -q --repeat 50 -o stopped -- sleep 0.3 &
series=$!
until [ -e stopped/repeat-3/run.json ] || ! kill -0 $series 2>/dev/null; do sleep 0.05; done
kill -TERM $series
wait $series
check "the exit status is the signal's" test $? = 143
check "the series ended" test ! -e stopped/repeat-40
check "the map is of the whole ones" grep -q tocsin-unstable stopped/unstable.jsonl

# What cannot be.
expect 2 tocsin record --repeat 1 -o no -- true <<'END'
! tocsin: error: --repeat needs a number from 2 to 1024
END
expect 2 tocsin record --repeat 2 -o no -- no-such-program <<'END'
! tocsin: error: command not found, no-such-program
END
expect 2 tocsin record --repeat 2 -o no <<'END'
! tocsin: error: no command to repeat
! hint: tocsin record --repeat 4 -o repeats -- python train.py
END
expect 2 tocsin record --jitter 3 -o no -- true <<'END'
! tocsin: error: --jitter is for --repeat
! hint: tocsin record --repeat 4 --jitter 1 -- COMMAND
END
check "nothing was made" test ! -e no
expect 2 tocsin align --unstable twice/notes twice/repeat-1 twice/repeat-1 <<'END'
! tocsin: error: line 1: not valid JSON (line 1, column 4): invalid token near 'mine', twice/notes
END
expect 0 tocsin record -q --repeat 2 --jitter 5 -o moved -- \
    sh -c 'echo "${TOCSIN_JITTER:-none}" | sed "s/[0-9][0-9]*/a seed/"' <<'END'
none
a seed
END
finish
