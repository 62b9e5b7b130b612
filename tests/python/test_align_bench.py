"""A tenth of bench/align.py: faults put into real runs are named, with their element."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parent.parent.parent / "bench/align.py"
CASES = """cnn/eager/bit_activation cnn/eager/rows_gradient cnn/eager/stuck cnn/eager/seed
gpt/online/warp_weight gpt/online/optimizer_state gpt/online/preprocessing
moe/ddp2/bit_gradient moe/ddp2/constant_weight moe/ddp2/preprocessing
rnn/compiled/sign_weight rnn/compiled/reorder_activation
cnn/fsdp2/rows_gradient cnn/fsdp2/dtype_activation"""


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    out = tmp_path_factory.mktemp("bench")
    command = [sys.executable, BENCH, "cases", "--only", *CASES.split()]
    done = subprocess.run(command, env={**os.environ, "TOCSIN_BENCH_OUT": str(out)},
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "figure align_healthy_unequal 0 " in done.stdout, done.stdout
    return json.loads((out / "align-cases.json").read_text())


def test_every_fault_is_named(judged):
    outcomes = {each["case"]: each["outcome"] for each in judged}
    assert len(outcomes) == len(CASES.split()) + 1  # bit_gradient: before and after the average
    # What an optimizer keeps is not read in each step; what it makes of the weight is.
    assert outcomes.pop("gpt/online/optimizer_state") == "near"
    assert set(outcomes.values()) == {"exact"}, outcomes


def test_elements(judged):
    """Of a single word, its element and its bits."""
    elements = {each["case"]: each["element"] for each in judged if each["element"] is not None}
    assert set(elements.values()) == {True}, elements
    assert {name.split("/")[2] for name in elements} == {
        "bit_activation", "bit_gradient", "bit_gradient_averaged", "constant_weight",
        "sign_weight", "stuck_gradient",
    }  # fmt: skip


def test_what_other_ways_miss(judged):
    """Swapped rows: neither sum, xor nor norm sees them where they were swapped."""
    (rows,) = [each for each in judged if each["case"] == "cnn/eager/rows_gradient"]
    for baseline in ("sum", "xor", "few probes"):
        assert rows[baseline] != "exact", baseline
