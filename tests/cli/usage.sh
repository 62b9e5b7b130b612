#!/bin/bash
# What the command answers when it is asked for help or used wrongly.
. "${TOCSIN_SOURCE:?}/tests/cli/transcript.bash" || exit 1

check "the overview" cmp <(tocsin) "$TOCSIN_SOURCE/tests/golden/cli/overview.txt"
check "tocsin help" cmp <(tocsin help) <(tocsin)
check "tocsin --help" cmp <(tocsin --help) <(tocsin)
check "15 lines at most" test "$(tocsin | wc -l)" -le 15

# Each command explains itself, on stdout, in at most 80 columns and one screen.
for command in record infer show run check info dump explain verify plan suppress filter merge \
    diff import export align env inject guard; do
    check "help of $command" cmp <(tocsin "$command" --help) \
        "$TOCSIN_SOURCE/tests/golden/cli/help_$command.txt"
    check "help of $command both ways" cmp <(tocsin help "$command") <(tocsin "$command" -h)
    check "help of $command has a status of 0" tocsin "$command" --help >/dev/null
    check "$command fits a screen" test "$(tocsin "$command" -h | wc -l)" -le 30
    check "$command is in the overview" grep -q " $command " <(tocsin)
    check "$command is in docs/cli.md" grep -q "tocsin $command" "$TOCSIN_SOURCE/docs/cli.md"
done

version=$(sed -n 's/^project(tocsin VERSION \([0-9.]*\) .*/\1/p' "$TOCSIN_SOURCE/CMakeLists.txt")
check "the version is that of the build" test "$(tocsin version)" = "tocsin $version"
check "--version too" test "$(tocsin --version)" = "tocsin $version"

expect 2 tocsin recrod <<'END'
! tocsin: error: unknown command 'recrod'
! hint: did you mean tocsin record?
END
expect 2 tocsin prove <<'END'
! tocsin: error: unknown command 'prove'
! hint: tocsin help
END
expect 2 tocsin help chek <<'END'
! tocsin: error: unknown command 'chek'
! hint: did you mean tocsin check?
END
expect 2 tocsin --verison <<'END'
! tocsin: error: unknown option '--verison'
! hint: did you mean tocsin version?
END
expect 2 tocsin check --formt json <<'END'
! tocsin: error: unknown option --formt of tocsin check
! hint: did you mean --format?
END
expect 2 tocsin check --format xml <<'END'
! tocsin: error: option --format does not accept 'xml' (it accepts text|json)
! hint: tocsin check --help
END
expect 2 tocsin record -o <<'END'
! tocsin: error: option --output needs RUN
! hint: tocsin record --help
END
expect 2 tocsin record <<'END'
! tocsin: error: no command to record
! hint: tocsin record -- python train.py
END
expect 2 tocsin run <<'END'
! tocsin: error: no command to run
! hint: tocsin run -- python train.py
END
expect 2 tocsin check -i inv.jsonl <<'END'
! tocsin: error: tocsin check needs one recording, not 0
! hint: tocsin check -i inv.jsonl RUN
END
expect 2 tocsin infer <<'END'
! tocsin: error: no recording to infer from
! hint: tocsin infer RUN... -o inv.jsonl
END
expect 2 tocsin infer healthy <<'END'
! tocsin: error: no output file
! hint: tocsin infer RUN... -o inv.jsonl
END
expect 2 tocsin show <<'END'
! tocsin: error: tocsin show needs a file of invariants
! hint: tocsin show inv.jsonl
END
expect 2 tocsin dump --limit many x <<'END'
! tocsin: error: option --limit needs a whole number that is not negative
! hint: tocsin dump --help
END
expect 2 tocsin explain TOC98765 <<'END'
! tocsin: error: no finding has the code TOC98765
! hint: tocsin explain lists all codes
END

# A full disk is an error, not a success with half an answer.
expect 2 bash -c '"$TOCSIN" help >/dev/full' <<'END'
! tocsin: error: cannot write to the standard output
END
# Control characters in arguments do not reach the terminal.
expect 2 tocsin $'\033[31mred' <<'END'
! tocsin: error: unknown command '?[31mred'
! hint: tocsin help
END
# A fault that cannot be one is said before the command starts.
expect 2 tocsin inject -- true <<'END'
! tocsin: error: no place
! hint: tocsin inject --place gradient --name layer.weight --step 3 -- COMMAND
END
expect 2 tocsin inject --place gradient -- true <<'END'
! tocsin: error: --step: the first step is 1
! hint: tocsin inject --place gradient --name layer.weight --step 3 -- COMMAND
END
expect 2 tocsin inject --place gradiant --step 1 -- true <<'END'
! tocsin: error: --place: there is no place 'gradiant'
! hint: did you mean gradient?
END
expect 2 tocsin inject --place weight --step 1 --pattern kitten -- true <<'END'
! tocsin: error: --pattern: there is no pattern 'kitten'
! hint: tocsin inject --list
END
expect 2 tocsin inject --place weight --step 1 --name "a;b" -- true <<'END'
! tocsin: error: --name: ' and ; cannot stand in it
END
expect 2 tocsin inject --place weight --step 1 <<'END'
! tocsin: error: no command to inject a fault into
! hint: tocsin inject --place gradient --name layer.weight --step 3 -- COMMAND
END
expect 0 env -u TOCSIN_INJECT "$TOCSIN" inject -p weight -n a.b -s 3 -r 1 --persistent -- \
    "$TOCSIN" inject -p collective -s 4 --late --all-calls -- printenv TOCSIN_INJECT <<'END'
step=3 place='weight' name='a.b' rank=1 persistent=1; step=4 place='collective' late=1 calls=all
END
finish
