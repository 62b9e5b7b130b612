"""What activation checkpointing computes again is what came first, or `tocsin align` says so."""

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parent / "align_checkpoint_program.py"
TOCSIN = os.environ["TOCSIN"]
STEPS, MICRO_BATCHES = 2, 2


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recompute")

    def record(how):
        command = [TOCSIN, "record", "-q", "--mode", "trusted", "-o", folder / how, "--"]
        done = subprocess.run(
            list(map(str, [*command, sys.executable, PROGRAM, how])), capture_output=True,
            text=True, env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(record, ["kept", "fresh", "plain", "shared"]))
    return folder


def align(runs, *names):
    command = [TOCSIN, "align", "--format", "json", *(str(runs / name) for name in names)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("how", ["kept", "shared"])
def test_as_the_first_time(runs, how):
    status, report = align(runs, how)
    assert (status, report["verdict"]) == (0, "IDENTICAL")
    (account,) = report["recompute"]
    # Of each of two calls of a block at least what two modules return; then it may stop.
    assert account["compared"] == account["equal"] >= STEPS * MICRO_BATCHES * 2 * 2


def test_another_dropout(runs):
    status, report = align(runs, "fresh")
    assert (status, report["verdict"]) == (1, "DIVERGED")
    (account,) = report["recompute"]
    assert 0 < account["equal"] < account["compared"]
    first = account["differing"][0]
    assert (first["step"], first["phase"], first["role"]) == (1, "recompute", "output")
    assert first["fqn"] == "blocks.1.drop" and first["micro_batch"] == 1
    done = subprocess.run([TOCSIN, "align", runs / "fresh"], capture_output=True, text=True)
    assert done.stdout.startswith("DIVERGED") and "blocks.1.drop" in done.stdout


def test_nothing_is_recomputed(runs):
    status, report = align(runs, "plain")
    assert (status, report["verdict"]) == (3, "INCOMPARABLE")


def test_with_and_without(runs):
    """The same values: what is computed again has its partner in the forward pass."""
    status, report = align(runs, "plain", "kept")
    assert (status, report["verdict"]) == (0, "IDENTICAL")
    recomputed = [gap for gap in report["gaps"] if gap["reason"] == "recompute"]
    assert {gap["run"] for gap in recomputed} == {"b"}
    assert "blocks.0.first" in {gap["fqn"] for gap in recomputed}
    assert [account["compared"] > 0 for account in report["recompute"]] == [False, True]


def test_certificate(runs, tmp_path):
    """The same bytes for the same runs wherever they lie; others for others."""

    def certify(a, b):
        path = tmp_path / "certificate"
        command = [TOCSIN, "align", "--certificate", path, a, b]
        status = subprocess.run(list(map(str, command)), capture_output=True).returncode
        return status, path.read_bytes()

    status, certificate = certify(runs / "plain", runs / "kept")
    shutil.copytree(runs / "plain", tmp_path / "copy")
    assert (status, certificate) == certify(tmp_path / "copy", runs / "kept")
    facts = json.loads(certificate)
    (rank,) = facts["identical"]
    assert facts["verdict"] == "IDENTICAL" and rank["boundaries"] == rank["compared"] > 100
    assert str(runs).encode() not in certificate and facts["not_covered"]
    _, other = certify(runs / "fresh", runs / "kept")
    assert json.loads(other)["verdict"] == "DIVERGED"
    assert 0 < json.loads(other)["identical"][0]["boundaries"] < rank["boundaries"]
    digests = {json.loads(text)["identical"][0]["digest"] for text in (certificate, other)}
    assert len(digests) == 2
