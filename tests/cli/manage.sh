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
finish
