"""Run cases with --prove: does the mistake really happen, and in the twin not?

Each program asserts it at its end, unless the mistake breaks the run: then it breaks the bug, not
the twin. torch is imported once and each program is a fork of this process, so that many can be
proved in a short time. Exit status 0 only if all hold.
"""

import argparse
import contextlib
import json
import os
import runpy
import signal
import socket
import sys
import traceback
from pathlib import Path

import torch
import torch.distributed
import torch.nn.parallel  # noqa: F401

HERE = Path(__file__).resolve().parent
SECONDS = 240


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(path, variant, rank, ranks, port):
    """Fork a process that runs the program; its id."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        signal.alarm(SECONDS)
        torch.set_num_threads(1)
        if ranks > 1:
            os.environ.update(
                RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks),
                MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
            )  # fmt: skip
        sys.argv = [str(path), variant, "--prove"]
        sys.path[0] = str(path.parent)
        with contextlib.redirect_stdout(sys.stderr):
            runpy.run_path(str(path), run_name="__main__")
        status = 0
    except SystemExit as ending:
        status = int(ending.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def prove(case):
    """The variants that do not do what they say."""
    path = HERE / "cases" / f"{case['program']}.py"
    ranks = case.get("ranks", 1)
    failed = []
    for variant in ("healthy",) if case.get("control") else ("bug", "healthy"):
        port = free_port()
        children = [start(path, variant, rank, ranks, port) for rank in range(ranks)]
        broke = any([os.waitpid(child, 0)[1] for child in children])
        if broke != (variant == "bug" and case.get("breaks", False)):
            failed.append(variant)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="beginnings of names of cases; default: all")
    args = parser.parse_args()
    cases = json.loads((HERE / "cases.json").read_text(encoding="utf-8"))["cases"]
    if args.names:
        cases = [case for case in cases if case["id"].startswith(tuple(args.names))]
    failures = 0
    for case in cases:
        failed = prove(case)
        failures += bool(failed)
        verdict = f"NOT PROVED: {', '.join(failed)}" if failed else "proved"
        print(f"{case['id']}: {verdict}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
