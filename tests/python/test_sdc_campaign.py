"""A slice of bench/sdc.py: faults in all places are found, the right rank is named, nothing wrong
is published, and a healthy training is left alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parent.parent.parent / "bench/sdc.py"
FAULTS = (
    "cnn/weight/bit/once", "cnn/weight/rows/persistent", "moe/weight, before the update/tile/once",
    "gpt/optimizer state/bit/once", "moe/averaged gradient/warp/once", "cnn/gradient/rows/device",
    "gpt/activation/stuck/device", "moe/output/sign/device", "gpt/gradient/nan/once",
    "moe/all-reduce, received/warp/once", "gpt/staged tensor/sign/once",
    "cnn/staged bytes/stuck/once", "gpt/all-reduce, given/sign/persistent",
    "moe/all-reduce, given/stuck/persistent",
)  # fmt: skip
# A file that differs, and a sum that is wrong, say nothing of a rank.
NOBODY = ("staged tensor", "staged bytes", "all-reduce, given")


def bench(tmp_path, *arguments):
    command = [sys.executable, BENCH, *arguments]
    done = subprocess.run(command, env={**os.environ, "TOCSIN_BENCH_OUT": str(tmp_path)},
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    printed = bench(folder, "faults", "--only", *FAULTS)
    assert "healthy trainings differ" not in printed, printed
    lines = (folder / "sdc-faults.jsonl").read_text().splitlines()
    return {each["case"]: each for each in map(json.loads, lines)}


def test_every_fault_is_found(judged):
    assert set(judged) == set(FAULTS)
    for name, each in judged.items():
        assert each["struck"] > 0 and each["alike"], each
        assert not each["masked"] and each["finding"] is not None, each
        assert not each["poisoned"] and each["bare_poisoned"], each
        if each["place"] in NOBODY:
            assert each["finding"]["ranks"] == [], each
        elif each["check"] != "gradient":
            assert each["attributed"], (name, each)


def test_by_which_check(judged):
    checks = {name: each["check"] for name, each in judged.items()}
    assert checks["gpt/gradient/nan/once"] == "gradient"
    assert {checks[name] for name in FAULTS if "/device" in name} == {"replay"}
    assert {checks[name] for name in FAULTS if "staged" in name} == {"checkpoint"}
    assert {checks[name] for name in FAULTS if "given" in name} == {"collective"}
    for name in FAULTS:
        each = judged[name]
        if "/device" in name:
            assert each["step"] - each["shows"] < 4, each
        if "/optimizer state/" in name or "before the update" in name:
            assert each["check"] == "weights" and each["step"] == each["begins"], each


def test_what_others_see(judged):
    """What is averaged into all replicas differs on none; and rank 0 may be the wrong one."""
    for name in FAULTS:
        if "/device" in name:
            assert set(judged[name]["others"].values()) == {None}
    assert any(each["others"]["rank 0"] and not each["others"]["rank 0"]["right"]
               for each in judged.values())  # fmt: skip


def test_a_healthy_training(tmp_path):
    printed = bench(tmp_path, "healthy", "--steps", "30", "--only", "mlp with GradScaler")
    assert "figure sdc_false_alarms 0 count" in printed, printed
    assert "figure sdc_healthy_steps 30 steps" in printed, printed
