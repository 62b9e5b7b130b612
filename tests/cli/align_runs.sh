#!/bin/bash
# `tocsin align --replay` and `--drill` around commands that do not import torch.
. "${TOCSIN_SOURCE:?}/tests/cli/transcript.bash" || exit 1
transcript_extra='s/^(  - this is a replay: if it is smaller) .* (no divergence)/\1 ... \2/'

echo weights >model.pt
shows='echo "$TOCSIN_REPLAY $1"; [ "$(cat "$TOCSIN_REPLAY")" = weights ]'
expect 3 tocsin align --replay model.pt -o two -- sh -c "$shows" sh '<{ckpt}>' -- true <<'END'
INCOMPARABLE: two/a (A) and two/b (B)

not covered:
  - this is a replay: if it is smaller ... no divergence here proves nothing about the original
  - what was not recorded, and what happens between two boundaries
! tocsin: recording command A in two/a
! <tmp>/model.pt <<tmp>/model.pt>
! tocsin: recording command B in two/b
END
expect 2 tocsin align --replay model.pt -o two -- true -- true <<'END'
! tocsin: error: two exists already
! hint: choose another name with -o, or add --force to replace them
END
expect 2 tocsin align --replay model.pt -o two -f -- true -- sh -c 'exit 7' <<'END'
! tocsin: recording command A in two/a
! tocsin: recording command B in two/b
! tocsin: error: command B ended with exit status 7: sh
! hint: what it did until then is in two/b
END
expect 2 tocsin align --replay model.pt -o killed -- sh -c 'kill -9 $$' -- true <<'END'
! tocsin: recording command A in killed/a
! tocsin: error: command A ended with signal 9: sh
! hint: what it did until then is in killed/a
END
check "B was not run" test ! -e killed/b
expect 2 tocsin align --replay missing.pt -- true -- true <<'END'
! tocsin: error: cannot read the checkpoint missing.pt: No such file or directory
END
for words in "model.pt" "model.pt -- true" "model.pt -- true --" \
    "model.pt two/a -- true -- true"; do
    # shellcheck disable=SC2086
    expect 2 tocsin align --replay $words <<'END'
! tocsin: error: --replay needs two commands, and no recorded run
! hint: tocsin align --replay CKPT -- COMMAND_A -- COMMAND_B
END
done
expect 2 tocsin align --replay model.pt -o no -- no-such-program -- true <<'END'
! tocsin: error: command not found, no-such-program
END
check "nothing was made" test ! -e no

# Runs that do not part are not run again.
expect 3 tocsin align --drill -o no two/a two/a -- true <<'END'
INCOMPARABLE: two/a (A) and two/a (B)

not covered:
  - what was not recorded, and what happens between two boundaries
END
check "nothing was run" test ! -e no
expect 2 tocsin align two/a two/b -- true <<'END'
! tocsin: error: tocsin align needs one or two recorded runs, not 3
! hint: tocsin align RUN_A RUN_B
END
finish
