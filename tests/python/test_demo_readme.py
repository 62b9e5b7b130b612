"""README.md shows what the commands really print, and the demo comes out as it says.

A block ```console holds commands ("$ ...") and their output, stdout and stderr together. Commands
run in an empty folder in which examples/ is this repository's. What differs from run to run
(numbers, ids, the width of columns, the order of lines) is left out of the comparison. `make demo`
runs as its last step does.

After a change that is meant: python tests/python/test_demo_readme.py --write
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
TOCSIN = Path(os.environ.get("TOCSIN", ROOT / "build/tocsin")).resolve()
NOT_RUN = {"make test"}  # it would run itself
FENCE = re.compile(r"^```console\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


def parse(text):
    """[[(command, output), ...] for each block]"""
    blocks = []
    for match in FENCE.finditer(text):
        steps = []
        for line in match[1].splitlines():
            if line.startswith("$ "):
                steps.append((line[2:], []))
            else:
                steps[-1][1].append(line)
        blocks.append([(command, "\n".join(output)) for command, output in steps])
    return blocks


def prepare(folder):
    programs = folder / "bin"
    programs.mkdir()
    (programs / "tocsin").symlink_to(TOCSIN)
    (programs / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (programs / "python").chmod(0o755)
    work = folder / "tocsin"
    work.mkdir()
    (work / "examples").symlink_to(ROOT / "examples")
    return work


def answer(command, work):
    """What the command prints."""
    if command in NOT_RUN:
        return ""
    if command == "make demo":
        command = f"python examples/demo/run.py --tocsin '{TOCSIN}'"
    environment = {
        "PATH": f"{work.parent / 'bin'}:{os.environ['PATH']}",
        "HOME": os.environ.get("HOME", "/"),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=work,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.stdout.rstrip("\n").replace(str(work), "/home/you/tocsin")


def comparable(output):
    output = re.sub(r"inv-[0-9a-f]+", "inv-ID", output)
    output = re.sub(r"\d{4}-\d\d-\d\dT[\d:]+Z", "TIME", output)
    output = re.sub(r"^(host +).*$", r"\1HOST", output, flags=re.MULTILINE)
    output = re.sub(r"^( *rank \d+ on )\S+", r"\1HOST", output, flags=re.MULTILINE)
    output = re.sub(r"\d[\d,.]*(e-?\d+)?", "N", output)
    output = re.sub(r"N (bytes|KiB|MiB)", "N BYTES", output)
    # The order in which tocsin's and the program's lines reach the terminal is not fixed.
    return sorted(" ".join(line.split()) for line in output.splitlines())


def test_readme(tmp_path):
    work = prepare(tmp_path)
    steps = [step for block in parse(README.read_text(encoding="utf-8")) for step in block]
    assert len(steps) >= 9
    for command, shown in steps:
        printed = answer(command, work)
        assert comparable(printed) == comparable(shown), f"$ {command}\n{printed}"


def test_readme_shows_a_good_demo():
    text = README.read_text(encoding="utf-8")
    assert "6 of 6 broken runs found by step 2, 0 of 6 healthy runs with a finding" in text


def write():
    import tempfile

    text = README.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        work = prepare(Path(folder))

        def fill(match):
            lines = []
            for command, _ in parse(match[0])[0]:
                lines.append(f"$ {command}")
                lines += answer(command, work).splitlines()
            return "```console\n" + "\n".join(lines) + "\n```\n"

        README.write_text(FENCE.sub(fill, text), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    write()
