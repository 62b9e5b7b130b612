# transcript.bash - what a person types and what the command answers; sourced by the tests here.
#
#   expect STATUS COMMAND [ARGUMENT]... <<'END'
#   line on stdout
#   ! line on stderr
#   END
#
# runs the command in the test's own folder and compares exit status, stdout, then stderr. What
# differs from run to run is shown as a word: <tmp> the folder, <time> a UTC time, <pid>; a test may
# add a sed expression of its own in transcript_extra.
set -uo pipefail

: "${TOCSIN:?}" "${TOCSIN_SOURCE:?}" "${TOCSIN_BUILD:?}" "${PYTHON:?}"
transcript_folder=$(mktemp -d)
trap 'rm -rf "$transcript_folder"' EXIT
mkdir "$transcript_folder/work"
cd "$transcript_folder/work" || exit 1
transcript_failures=0
unset PYTHONPATH TERM

tocsin() { "$TOCSIN" "$@"; }
python() { "$PYTHON" "$@"; }

normalise() {
    sed -E -e "s#$transcript_folder/work#<tmp>#g" -e "s#$TOCSIN_SOURCE#<source>#g" \
        -e "s#$TOCSIN_BUILD#<build>#g" -e "s#$PYTHON#<python>#g" \
        -e 's#[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z#<time>#g' \
        -e 's#-[0-9]{8}T[0-9]{6}Z-[0-9]+#-<time>-<pid>#g' \
        -e 's#^(host      ).*#\1<host>#' -e 's#^(tocsin    )[0-9.]+$#\1<version>#' \
        -e "${transcript_extra:-}"
}

expect() {
    local wanted_status=$1 status
    shift
    cat >"$transcript_folder/wanted"
    "$@" >"$transcript_folder/out" 2>"$transcript_folder/err" </dev/null
    status=$?
    {
        normalise <"$transcript_folder/out"
        normalise <"$transcript_folder/err" | sed 's/^/! /'
    } >"$transcript_folder/got"
    if [ "$status" != "$wanted_status" ] ||
        ! cmp -s "$transcript_folder/wanted" "$transcript_folder/got"; then
        echo "FAILED: $*"
        echo "exit status $status, wanted $wanted_status"
        diff -u --label wanted --label got "$transcript_folder/wanted" "$transcript_folder/got"
        transcript_failures=$((transcript_failures + 1))
    fi
}

# check WHAT COMMAND...: a condition on what is left behind.
check() {
    local what=$1
    shift
    if ! "$@"; then
        echo "FAILED: $what: $*"
        transcript_failures=$((transcript_failures + 1))
    fi
}

finish() {
    [ "$transcript_failures" -eq 0 ] || exit 1
    echo "ok"
}
