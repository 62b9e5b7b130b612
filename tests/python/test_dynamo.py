"""torch.compile sees the same program, hooked or not: for each program of dynamo_programs.py the
same captured graphs (their code), the same counters (frames, graph breaks, recompiles) and the same
bits."""

import json
import os
import re
import subprocess
import sys

import pytest

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dynamo_programs.py")


def _run(mode, folder):
    """What the programs did; inductor compiles anew, whatever an earlier process left behind."""
    process = subprocess.run(
        [sys.executable, SCRIPT, mode], capture_output=True, text=True, timeout=900,
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / mode)},
    )  # fmt: skip
    assert process.returncode == 0, process.stderr[-2000:]
    return json.loads(process.stdout)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inductor")
    return {mode: _run(mode, folder) for mode in ("plain", "off", "on")}


def _names():
    with open(SCRIPT, encoding="utf-8") as file:
        return re.findall(r"^@program\ndef (\w+)", file.read(), re.MULTILINE)


@pytest.mark.parametrize("mode", ["off", "on"])
@pytest.mark.parametrize("name", _names())
def test_program(results, name, mode):
    plain, hooked = results["plain"][name], results[mode][name]
    assert hooked["value"] == plain["value"]
    assert hooked["graphs"] == plain["graphs"]
    assert hooked["counters"] == plain["counters"]


def test_programs_were_compiled(results):
    assert sum(len(r["graphs"]) for r in results["plain"].values()) >= 20
