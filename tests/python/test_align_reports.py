"""Errors that users have reported, real runs against healthy ones: `tocsin align` names where each
begins."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
RANKS = HERE.parent / "corpus/ranks.py"
TOCSIN = os.environ["TOCSIN"]
FORGOTTEN = ["optimizer", "generator", "scheduler", "sampler"]


def record(folder, which, ranks=()):
    command = [TOCSIN, "record", "-q", "--mode", "trusted", "-o", folder / which, "--"]
    command += [sys.executable, *ranks, HERE / "align_reports.py", which, folder / "saved.pt"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    record(folder, "whole")  # writes the checkpoint of those that are resumed
    resumed = ["resumed", *(f"resumed-{part}" for part in FORGOTTEN)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda which: record(folder, which), ["threads-1", "threads-2", *resumed]))
        list(pool.map(lambda which: record(folder, which, (RANKS, 2)), ["unused", "unused-found"]))
    return folder


def align(runs, a, b, *options):
    command = [TOCSIN, "align", "--format", "json", *options, runs / a, runs / b]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def places(report):
    return [(p["step"], p["fqn"], p["role"], p["op"]) for p in report["pivots"]]


def test_number_of_threads(runs):
    """pytorch#88718: forward is equal; sums over the batch, in backward, are cut by thread."""
    report = align(runs, "threads-1", "threads-2")
    assert ("torch.get_num_threads", "1", "2") in {
        (setting["name"], setting["a"], setting["b"]) for setting in report["settings"]
    }
    assert (1, "1.weight", "grad", "optimizer.step") in places(report)
    assert {place[2] for place in places(report)} == {"grad"}


def test_resumed_as_it_should_be(runs):
    """Steps 4 to 8 are those of the run that was never stopped; settings are the same."""
    report = align(runs, "whole", "resumed", "--skip", "3")
    assert (report["verdict"], report["settings"]) == ("IDENTICAL", [])
    assert report["identical_prefix"][0]["compared"] > 100
    assert "the first 3 steps of run A" in report["not_covered"]


@pytest.mark.parametrize(
    "forgotten,place",
    [  # pytorch#35047, transformers#17032, #11323, #33336
        ("optimizer", (4, "0.weight", "data", "optimizer.step")),
        ("generator", (4, "1", "output", "torch.nn.Module.__call__")),
        ("scheduler", (5, "0.weight", "data", "optimizer.step")),
        ("sampler", (4, "loader0", "samples", "torch.utils.data.DataLoader.__next__")),
    ],
)
def test_resumed_without(runs, forgotten, place):
    report = align(runs, "whole", f"resumed-{forgotten}", "--skip", "3")
    assert report["verdict"] == "DIVERGED" and places(report)[0] == place


def test_skipped_too_much(runs):
    command = [TOCSIN, "align", "--skip", "99", runs / "whole", runs / "resumed"]
    assert subprocess.run(command, capture_output=True).returncode == 3


def test_unused_parameter(runs):
    """pytorch#128949: on both ranks the gradient is the local one."""
    report = align(runs, "unused-found", "unused")
    assert places(report) == 2 * [(1, "a.weight", "grad", "optimizer.step")]
    assert {pivot["rank"] for pivot in report["pivots"]} == {0, 1}
