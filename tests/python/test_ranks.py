"""Jobs of two ranks, watched with the shipped library and with what was learned from one
data-parallel run: mistakes are found, and what is learned of copies is not said of other ranks.
"""

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import rank_programs

PROGRAMS = Path(rank_programs.__file__)
HEALTHY = (
    "data_parallel epochs_broken_off averaged_by_hand averaged_now_and_then side_by_side stages "
    "losses_of_nothing fewer_samples epoch_resumed"
).split()
LIBRARY_ONLY = ["seeded_alike"]
BUGGY = {  # of the first finding: what is seen
    "sharded_twice": "read only a part of the data set",
    "loss_is_not_a_number": "the loss is not finite",
    "drifts": "0.weight: grad differs between ranks 0 and 1",
}


def tocsin(*arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [os.environ["TOCSIN"], *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def watch(name, *checked_with):
    """The findings of `tocsin run`, rendered."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        tocsin("run", "-q", *checked_with, "--format", "json", "-r", report,
               "-o", Path(folder) / "run", "--", sys.executable, PROGRAMS, name)  # fmt: skip
        return [finding["rendered"] for finding in json.loads(report.read_text())["findings"]]


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("learned")
    tocsin("record", "-q", "-o", folder / "run", "--", sys.executable, PROGRAMS, "data_parallel")
    tocsin("infer", "-q", folder / "run", "-o", folder / "invariants.jsonl")
    return folder / "invariants.jsonl"


@pytest.fixture(scope="module")
def findings(learned):
    names = [*HEALTHY, *LIBRARY_ONLY, *BUGGY]
    with ThreadPoolExecutor(2) as pool:
        watched = pool.map(lambda name: watch(name, "-i", learned, "--library"), names)
        return dict(zip(names, watched))


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy(findings, name):
    assert findings[name] == []


@pytest.mark.parametrize("name", BUGGY)
def test_buggy(findings, name):
    assert findings[name], "nothing was found"
    assert BUGGY[name] in findings[name][0]


def test_ranks_that_are_seeded_alike_differ_from_what_was_learned(findings):
    (finding,) = findings["seeded_alike"]
    assert "random state is the same on ranks 0 and 1" in finding
    assert watch("seeded_alike") == []
