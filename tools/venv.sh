#!/bin/sh
# venv.sh demo|test|bench - the project's own Python environment in .venv, made or completed.
# A stamp in it records what was asked for, so that a second run does nothing.
#   PYTHON             interpreter to make it from (python3 on PATH), 3.10 or later with Python.h
#   TORCH_REQUIREMENT  requirement specifier of PyTorch
set -eu
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
torch=${TORCH_REQUIREMENT:-torch==2.13.0}
case ${1:-} in
demo | bench) packages="$torch numpy scikit-learn" ;;
test) packages="$torch numpy scikit-learn pytest scikit-build-core" ;;
*)
    echo "usage: tools/venv.sh demo|test|bench" >&2
    exit 2
    ;;
esac

usable() { # usable INTERPRETER: new enough, and with the headers to build _core for it
    "$1" - <<'PYTHON'
import os, sys, sysconfig
if sys.version_info < (3, 10):
    sys.exit(f"tools/venv.sh: {sys.executable} is Python {sys.version.split()[0]}; "
             "3.10 or later is needed (set PYTHON)")
header = os.path.join(sysconfig.get_path("include"), "Python.h")
if not os.path.exists(header):
    sys.exit(f"tools/venv.sh: no {header}: install the headers of {sys.executable}, "
             "or set PYTHON to an interpreter that has them")
PYTHON
}

if ! [ -x .venv/bin/python ] || ! .venv/bin/python -c '' 2>/dev/null; then
    usable "$python" || exit 2
    echo "tools/venv.sh: making .venv from $(command -v "$python")" >&2
    "$python" -m venv --clear .venv
fi
usable .venv/bin/python || exit 2

stamp=.venv/tocsin-requirements
if [ -f "$stamp" ]; then
    complete=yes
    for package in $packages; do
        grep -qxF "$package" "$stamp" || complete=no
    done
    [ $complete = no ] || exit 0
fi
echo "tools/venv.sh: installing $packages" >&2
# shellcheck disable=SC2086 # a list of words
.venv/bin/python -m pip install -qq --disable-pip-version-check $packages
printf '%s\n' $packages >"$stamp"
