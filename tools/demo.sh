#!/bin/sh
# demo.sh - the demonstration, on the build that `make` left.
set -eu
cd "$(dirname "$0")/.."
exec .venv/bin/python examples/demo/run.py --tocsin build/tocsin
