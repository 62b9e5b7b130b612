#!/bin/bash
# test.sh STAGE... - build and run stages of the tests; the last line is "N passed, N failed".
#   test     optimised build with assertions: every test, Python and command line included
#   release  what is used, where assertions are compiled out, and the command line's tests on it
#   asan     C tests and replay of the fuzz corpora under address and undefined-behaviour sanitizers
#   tsan     C tests under the thread sanitizer
#   fuzz     FUZZ_SECONDS (10) of each libFuzzer target, starting from its corpus
set -u
cd "$(dirname "$0")/.."

jobs=$(nproc)
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=1
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1
passed=0
failed=0

count() { # count PASSED FAILED
    passed=$((passed + $1))
    failed=$((failed + $2))
}

build() { # build PRESET [CMAKE ARGUMENT]...
    local preset=$1
    local log=build-$preset/build.log
    shift
    mkdir -p "build-$preset"
    if cmake --preset "$preset" "$@" >"$log" 2>&1 &&
        cmake --build "build-$preset" >>"$log" 2>&1; then
        return 0
    fi
    tail -n 60 "$log"
    echo "the $preset build failed"
    count 0 1
    return 1
}

run_ctest() { # run_ctest PRESET [CTEST ARGUMENT]...
    local preset=$1 log total bad
    shift
    log=build-$preset/ctest.log
    ctest --test-dir "build-$preset" --output-on-failure -j "$jobs" --timeout 900 "$@" 2>&1 |
        tee "$log"
    total=$(sed -n 's/.* tests failed out of \([0-9]*\)$/\1/p' "$log")
    bad=$(sed -n 's/.*, \([0-9]*\) tests failed out of .*/\1/p' "$log")
    if [ -n "$total" ]; then
        count $((total - bad)) "$bad"
    else
        echo "the $preset stage ran no test"
        count 0 1
    fi
}

stage_test() {
    build test -DTOCSIN_PYTHON="$PWD/.venv/bin/python" || return
    run_ctest test
}

stage_release() {
    build release -B build-release -DTOCSIN_PYTHON="$PWD/.venv/bin/python" || return
    local script
    for script in tests/cli/{usage,verify,bad_input}.sh; do
        if TOCSIN=$PWD/build-release/tocsin TOCSIN_SOURCE=$PWD TOCSIN_BUILD=$PWD/build-release \
            PYTHON=$PWD/.venv/bin/python bash "$script" >build-release/cli.log 2>&1; then
            count 1 0
        else
            tail -n 40 build-release/cli.log
            echo "$script fails on the release build"
            count 0 1
        fi
    done
}

stage_asan() {
    build asan || return
    run_ctest asan -L 'unit|prop|fault|fuzz'
}

stage_tsan() {
    build tsan || return
    run_ctest tsan -L 'unit|prop|fault'
}

fuzz_target() { # fuzz_target PROGRAM: new inputs go to the build folder, not into the corpus
    local program=$1 name found
    name=$(basename "$program")
    found=build-fuzz/found/$name
    mkdir -p "$found" "fuzz/corpus/$name"
    if "$program" -max_total_time="${FUZZ_SECONDS:-10}" -timeout=10 -rss_limit_mb=2048 \
        -artifact_prefix="$found/" -print_final_stats=1 "$found" "fuzz/corpus/$name" \
        >"build-fuzz/$name.log" 2>&1; then
        sed -n "s/^stat::number_of_executed_units: */fuzz $name: inputs /p" "build-fuzz/$name.log"
        count 1 0
    else
        tail -n 40 "build-fuzz/$name.log"
        echo "fuzz $name: failed"
        count 0 1
    fi
}

stage_fuzz() {
    build fuzz || return
    local source
    for source in fuzz/fuzz_*.c; do
        fuzz_target "build-fuzz/fuzz/$(basename "$source" .c)"
    done
}

for stage in "$@"; do
    case $stage in
    test | release | asan | tsan | fuzz)
        echo "== $stage"
        "stage_$stage"
        ;;
    *)
        echo "usage: tools/test.sh test|release|asan|tsan|fuzz..." >&2
        exit 2
        ;;
    esac
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
