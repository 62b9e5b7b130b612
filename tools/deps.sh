#!/bin/sh
# deps.sh demo|test|bench - install the system packages that this purpose needs and that are
# missing. The only list of them. Without root it prints the one command to run and exits 2. On a
# system without dpkg it only says what is needed: the build then reports what it does not find.
set -eu

demo="gcc libc6-dev make cmake ninja-build libzstd-dev libxxhash-dev libjansson-dev"
test="$demo g++ git libcmocka-dev clang libclang-rt-dev llvm zstd libopenmpi-dev openmpi-bin
 protobuf-compiler"
bench="$demo time"

# The interpreter's headers and venv module come from Debian only if the interpreter does.
case $(command -v "${PYTHON:-python3}" || echo /usr/bin/python3) in
/usr/bin/* | /bin/*) python="python3 python3-dev python3-venv" ;;
*) python="" ;;
esac

case ${1:-} in
demo) needed="$demo $python" ;;
test) needed="$test $python" ;;
bench) needed="$bench $python" ;;
*)
    echo "usage: tools/deps.sh demo|test|bench" >&2
    exit 2
    ;;
esac

if ! command -v dpkg-query >/dev/null; then
    echo "tools/deps.sh: not a Debian system; needed (Debian's names): $needed" >&2
    exit 0
fi

missing=""
for package in $needed; do
    # shellcheck disable=SC2016 # ${...} is dpkg-query's own notation
    state=$(dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | head -n 1) || true
    [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ]; then
    echo "tools/deps.sh: missing packages; run:" >&2
    echo "sudo apt-get install -y --no-install-recommends$missing" >&2
    exit 2
fi
echo "tools/deps.sh: installing$missing" >&2
export DEBIAN_FRONTEND=noninteractive
# Package lists may be absent or old; one update, then no second try.
# shellcheck disable=SC2086 # a list of words
apt-get update -q && apt-get install -q -y --no-install-recommends $missing
