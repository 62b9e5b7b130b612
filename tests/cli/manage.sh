#!/bin/bash
# What is done with files of invariants and of suppressions.
. "${TOCSIN_SOURCE:?}/tests/cli/transcript.bash" || exit 1

# ---- suppressions ------------------------------------------------------------------------------

expect 0 tocsin suppress known.jsonl TOC004 --reason 'the generator steps twice' <<'END'
END
expect 0 tocsin suppress known.jsonl inv-0123456789abcdef --entity 'head.*' --until 2001-01-31 \
    --reason 'frozen at first' <<'END'
END
expect 0 tocsin suppress known.jsonl <<'END'
TOC004: the generator steps twice
inv-0123456789abcdef for head.*, ended 2001-01-31: frozen at first
END
check "a line each" test "$(wc -l <known.jsonl)" = 3
expect 2 tocsin suppress known.jsonl TOC004 <<'END'
! tocsin: error: a suppression needs a reason
END
expect 2 tocsin suppress known.jsonl TOC999 --reason x <<'END'
! tocsin: error: no finding has this code
END
expect 2 tocsin suppress known.jsonl TOC004 --reason x --until soon <<'END'
! tocsin: error: "until" is not a date like 2027-01-31
END
expect 2 tocsin suppress <<'END'
! tocsin: error: tocsin suppress needs a file of suppressions
! hint: tocsin suppress known.jsonl TOC004 --reason TEXT
END
expect 2 tocsin suppress missing.jsonl <<'END'
! tocsin: error: cannot open: No such file or directory, missing.jsonl
END
echo '{"format":"other"}' >other.jsonl
expect 2 tocsin suppress other.jsonl TOC004 --reason x <<'END'
! tocsin: error: line 1: not a file of suppressions: no "format":"tocsin-suppressions", other.jsonl
END
check "a wrong file is left alone" grep -q other other.jsonl

# ---- files of invariants -----------------------------------------------------------------------

rule() { # rule RELATION POPULATION FACT WHEN [SUPPORT]
    printf '{"relation":"%s","population":{%s},"fact":{%s},"when":[%s]' "$1" "$2" "$3" "$4"
    [ $# = 4 ] || printf ',"support":{%s}' "$5"
    echo '}'
}
header='{"format":"tocsin-invariants","version":1}'
dropout='"kind":"call","function":"dropout"'
half='"is":"argument equals","field":"arg.p","value":0.5'
step='"kind":"repeated call","role":"optimizer.step"'
zero='"is":"preceded by","role":"zero_grad"'
stage='[{"kind":"constant","field":"meta.stage","value":"training"}]'
{
    echo "$header"
    rule APIArg "$dropout" "$half" "" '"instances":9,"runs":3'
    rule APISequence "$step" "$zero" "" '"instances":8,"runs":1'
} >a.jsonl
{
    echo "$header"
    rule APIArg "$dropout" "$half" "" '"instances":4,"runs":2'
    rule APISequence "$step" "$zero" "$stage"
    rule EventContain '"kind":"call","role":"backward"' '"is":"calls","function":"f"' ""
} >b.jsonl
transcript_extra='s/inv-[0-9a-f]{16}/inv-ID/g'
expect 0 tocsin show --by call b.jsonl <<'END'
backward (1)
inv-ID  Every call of backward calls f.

dropout (1)
inv-ID  Every call of dropout has arg.p = 0.5.

optimizer.step (1)
inv-ID  Between two calls of optimizer.step, zero_grad is called, when meta.stage is 'training'.
END
check "by relation" grep -qx 'APISequence (1)' <(tocsin show --by relation b.jsonl)
check "by cause" grep -qx 'order of calls (1)' <(tocsin show --by cause b.jsonl)
expect 1 tocsin diff a.jsonl b.jsonl <<'END'
- inv-ID  Between two calls of optimizer.step, zero_grad is called.
+ inv-ID  Every call of backward calls f.
+ inv-ID  Between two calls of optimizer.step, zero_grad is called, when meta.stage is 'training'.
    under another condition than inv-ID
END
expect 0 tocsin diff a.jsonl a.jsonl <<'END'
END
expect 2 tocsin diff a.jsonl <<'END'
! tocsin: error: tocsin diff needs two files of invariants, not 1
! hint: tocsin diff old.jsonl new.jsonl
END
expect 0 tocsin merge a.jsonl b.jsonl -o both.jsonl <<'END'
! tocsin: 4 invariants in both.jsonl
END
expect 2 tocsin merge a.jsonl -o both.jsonl <<'END'
! tocsin: error: the file exists already, both.jsonl
! hint: --force replaces it
END
check "the support of the first" grep -q '"instances":9,"runs":3' both.jsonl
check "not that of the second" test "$(grep -c '"runs":2' both.jsonl)" = 0
tocsin merge b.jsonl a.jsonl -o - >other_order.jsonl
check "merging is the same in any order, but for support" cmp \
    <(tocsin show both.jsonl) <(tocsin show other_order.jsonl)
ids() { sed -n 's/.*"text":"\([^"]*\)".*/\1/p' "$1" | tr '\n' '|'; }
filtered() { # filtered EXPECTED OPTION...
    local wanted=$1
    shift
    check "filter $*" test "$(ids <(tocsin filter both.jsonl -o - "$@"))" = "$wanted"
}
sequence='Between two calls of optimizer.step, zero_grad is called.'
training="${sequence%.}, when meta.stage is 'training'."
argument='Every call of dropout has arg.p = 0.5.'
contain='Every call of backward calls f.'
filtered "$argument|" --call 'drop*'
filtered "$contain|$argument|" --call '*o*t' --relation EventContain --call backward \
    --relation TOC005
filtered "$argument|" --min-runs 2
filtered "$argument|" --cause 'arguments*'
filtered "" --severity error
filtered "$argument|" --min-times 9
filtered "$contain|$argument|" --relation TOC004 --invert
id=$(tocsin show both.jsonl | sed -n 's/  Every call of dropout.*//p')
filtered "$argument|" --id "$id"
check "both orders of calls" test "$(tocsin filter both.jsonl -o - --relation APISequence |
    grep -c -e "$sequence" -e "$training")" = 2
expect 2 tocsin filter both.jsonl --relation TOC999 -o - <<'END'
! tocsin: error: there is no relation TOC999
! hint: tocsin explain lists all codes and relations
END
expect 2 tocsin filter both.jsonl --relation TOC004 <<'END'
! tocsin: error: no output file
! hint: tocsin filter FILE --relation NAME -o some.jsonl
END
expect 0 tocsin filter both.jsonl --relation TOC001 -o none.jsonl <<'END'
! tocsin: 0 invariants in none.jsonl
END
expect 0 tocsin explain "$id" -i both.jsonl <<'END'
Every call of dropout has arg.p = 0.5.
Judged at calls of dropout.
A violation (warning) points to: arguments of a call.
Seen to hold 9 times in 3 runs.

TOC005 (APIArg): an argument is not what it always is

A function was called with another argument than in all healthy runs, repeated the arguments
of an earlier call of the step, or two ranks entered different collectives (the run may hang
right after). Look at the call site and at what computes the argument.
END
id=$(tocsin show --library |
    sed -n 's/  .*each parameter that has a non-zero gradient.*//p' | head -n 1)
check "one of the library by its id" grep -q '^Judged at calls of optimizer.step' \
    <(tocsin explain "$id")
check "the library's, by its id" test "$(tocsin show --library "$id" | wc -l)" = 2
expect 2 tocsin explain inv-0 -i both.jsonl <<'END'
! tocsin: error: there is no invariant inv-0 here
END

# ---- orders of calls, put together -------------------------------------------------------------

between() { # between CALL OTHER [CONDITION]
    rule APISequence "\"kind\":\"repeated call\",\"role\":\"$1\"" \
        "\"is\":\"preceded by\",\"role\":\"$2\"" "${3:-}"
}
after() { # after CALL OTHER [CONDITION]
    rule APISequence "\"kind\":\"call before another\",\"role\":\"$1\"" \
        "\"is\":\"followed by\",\"role\":\"$2\"" "${3:-}"
}
{
    echo "$header"
    for call in backward optimizer.step zero_grad; do
        for other in backward optimizer.step zero_grad; do
            [ $call = $other ] || between $call $other
        done
    done
    between lr_scheduler.step optimizer.step
    after zero_grad backward
    after zero_grad optimizer.step
    after backward optimizer.step
    after backward zero_grad "$stage"
    between backward clip_grad "$stage"
    between clip_grad backward "$stage"
    between zero_grad clip_grad "$stage"
    rule APIArg "$dropout" "$half" ""
} >order.jsonl
expect 0 tocsin show --chains order.jsonl <<'END'
backward and clip_grad take turns, when meta.stage is 'training'.
clip_grad between two calls of zero_grad, when meta.stage is 'training'.
zero_grad -> backward -> optimizer.step take turns.
optimizer.step between two calls of lr_scheduler.step.
END
finish
