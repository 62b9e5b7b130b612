"""tocsin record --audit: does being recorded change what torch computes here?"""

import json
import os
import subprocess
import sys

from tocsin import observer_audit

TOCSIN = os.environ["TOCSIN"]


def record(folder, *options, **environment):
    command = [TOCSIN, "record", "-q", "--audit", *options, "-o", folder / "run", "--",
               sys.executable, "-c", "import torch"]  # fmt: skip
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )  # fmt: skip


def test_nothing_changed(tmp_path):
    done = record(tmp_path, "--mode", "full")
    assert (done.returncode, done.stderr) == (0, "")
    description = json.loads((tmp_path / "run/run.json").read_text())
    assert description["observer_audit"] == {"boundaries": "full", "changed": False}
    told = subprocess.run([TOCSIN, "info", tmp_path / "run"], capture_output=True, text=True)
    assert "being recorded changed no bit" in told.stdout


def test_a_change_is_seen(tmp_path):
    """A recorder with which a gradient loses a bit."""
    recorder = tmp_path / "recorder"
    fault = "place=gradient name=last.weight step=1 bit=27"
    recorder.write_text(f'#!/bin/sh\nTOCSIN_INJECT="{fault}" exec "{TOCSIN}" "$@"\n')
    recorder.chmod(0o755)
    assert observer_audit.changed(str(recorder)) == [
        "losses", "weights and buffers", "the optimizer's state"
    ]  # fmt: skip


def test_no_answer(tmp_path):
    """A torch that cannot be imported: said, and nothing is recorded."""
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')\n")
    done = record(tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode == 2 and not (tmp_path / "run").exists()
    assert "observer audit" in done.stderr and "no torch here" in done.stderr
