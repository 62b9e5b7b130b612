"""`tocsin align --map`: one training in two stacks, fused with Megatron's names and split with
Hugging Face's. What one run has in one tensor and the other in three is compared bit by bit."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
PROGRAM = HERE / "map_program.py"
SHIPPED = HERE.parent.parent / "lib/align/maps/megatron-hf.jsonl"
TOCSIN = os.environ["TOCSIN"]
RUNS = [("fused", "none"), *(("split", change) for change in ("none", "k", "norm", "alone"))]
GROUPED = [("fused", "none", 2), ("split", "none", 2), ("split", "last", 2)]
QKV = "decoder.layers.0.self_attention.linear_qkv.weight"


# One weight in two stacks, the axes exchanged in one: Linear, and the Conv1D of GPT-2.
EXCHANGED = """
import sys, torch
from torch import nn
turned, change = sys.argv[1] == "turned", sys.argv[2]
path = "transformer.h.0.mlp.c_fc" if turned else "decoder.layers.0.mlp.linear_fc1"
model = inner = nn.Module()
for name in path.split("."):
    setattr(inner, name, nn.Module())
    inner = getattr(inner, name)
start = torch.arange(24.0).reshape(6, 4)
inner.weight = nn.Parameter(start.t().contiguous() if turned else start.clone())
model.forward = lambda: ((inner.weight.t() if turned else inner.weight) * start).sum()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(3):
    optimizer.zero_grad()
    model().backward()
    if change == "bit" and step == 1:
        inner.weight.grad.view(torch.int32)[1, 5] ^= 1 << 7
    optimizer.step()
"""


def record(folder, stack, change, groups=1):
    run = folder / f"{stack}-{change}{'' if groups == 1 else '-grouped'}"
    command = [TOCSIN, "record", "-q", "-o", run]
    if groups > 1:
        command += ["--map", "megatron-hf", "--groups", groups]
    command += ["--", sys.executable, PROGRAM, stack, change, groups]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Recordings, and the shipped map for one group of queries: there q, k, v are joined."""
    folder = tmp_path_factory.mktemp("maps")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda run: record(folder, *run), RUNS + GROUPED))
    rules = [json.loads(line) for line in SHIPPED.read_text().splitlines()]
    for rule in rules:
        rule.pop("layout", None)
    (folder / "map").write_text("".join(json.dumps(rule) + "\n" for rule in rules))
    return folder


def align(runs, a, b, map=None):
    command = [TOCSIN, "align", "--format", "json", "--map", map or runs / "map"]
    done = subprocess.run(list(map_texts([*command, runs / a, runs / b])), capture_output=True,
                          text=True)  # fmt: skip
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def map_texts(values):
    return (str(value) for value in values)


def test_the_same_in_two_stacks(runs):
    """Weights, gradients and the optimizer's state, of fused and other layers, in each step."""
    for pair in (("fused-none", "split-none"), ("split-none", "fused-none")):
        status, report = align(runs, *pair)
        assert (status, report["verdict"]) == (0, "IDENTICAL")
        (rank,) = report["identical_prefix"]
        assert rank["equal"] == rank["compared"] > 120
        assert not any(".weight" in gap["fqn"] for gap in report["gaps"])
        assert not any("incomparable" in text for text in report["not_covered"])


def test_without_a_map(runs):
    command = [TOCSIN, "align", "--format", "json", runs / "fused-none", runs / "split-none"]
    done = subprocess.run(list(map_texts(command)), capture_output=True, text=True)
    assert any(QKV in gap["fqn"] for gap in json.loads(done.stdout)["gaps"])


def test_one_bit_of_a_part(runs):
    """Named in both stacks, with its element in the coordinates of each."""
    status, report = align(runs, "fused-none", "split-k")
    assert status == 1
    (pivot,) = report["pivots"]
    assert (pivot["step"], pivot["fqn"], pivot["role"]) == (2, QKV, "grad")
    (element,) = pivot["elements"]
    assert element["index"] == [32 + 2, 5]
    assert element["bits_set"] + element["bits_cleared"] == [19]
    assert pivot["b"]["fqn"] == "model.layers.0.self_attn.k_proj.weight"
    assert pivot["b"]["index"] == [2, 5]
    assert pivot["a"]["fqn"] is None and pivot["a"]["index"] is None
    _, turned = align(runs, "split-k", "fused-none")
    assert turned["pivots"][0]["a"]["index"] == [2, 5]


def test_another_name(runs):
    _, report = align(runs, "fused-none", "split-norm")
    pivot = report["pivots"][0]
    assert (pivot["step"], pivot["fqn"]) == (3, "decoder.final_layernorm.weight")
    assert pivot["b"]["fqn"] == "model.norm.weight" and pivot["elements"][0]["index"] == [4]


def test_what_cannot_be_joined(runs):
    """A part without a gradient, and a layout in which rows of the parts alternate."""
    _, report = align(runs, "fused-none", "split-alone")
    assert any("a part is missing or not digested" in text for text in report["not_covered"])
    status, report = align(runs, "fused-none", "split-none", "megatron-hf")
    assert status == 0 and any("interleaved" in text for text in report["not_covered"])
    status, report = align(runs, "fused-none", "split-k", "megatron-hf")
    assert all(pivot["fqn"] != QKV for pivot in report["pivots"])


def test_rows_that_alternate(runs):
    """q, k, v by group of queries, as in Megatron: compared if one side was recorded with a map."""
    status, report = align(runs, "fused-none-grouped", "split-none-grouped", "megatron-hf")
    assert (status, report["verdict"]) == (0, "IDENTICAL")
    # The moments of the optimizer are not recorded so; weights and gradients are.
    assert [text for text in report["not_covered"] if "incomparable" in text] == [
        f"{QKV.replace('0', '{i}')} and model.layers.{{i}}.self_attn.q_proj.weight: "
        "incomparable: interleaved, 2 times"
    ]
    _, report = align(runs, "fused-none-grouped", "split-last-grouped", "megatron-hf")
    (pivot,) = report["pivots"]
    assert (pivot["step"], pivot["fqn"], pivot["role"]) == (2, QKV, "grad")
    # group 1 of 64 rows: 32 of q, 16 of k, of v
    assert pivot["elements"][0]["index"] == [64 + 32 + 15, 5]
    assert pivot["b"]["fqn"] == "model.layers.0.self_attn.k_proj.weight"
    assert pivot["b"]["index"] == [31, 5]


def test_axes_exchanged(tmp_path):
    for name, arguments in (("plain", ("plain", "none")), ("turned", ("turned", "none")),
                            ("bit", ("turned", "bit"))):  # fmt: skip
        command = [TOCSIN, "record", "-q", "--map", "megatron-gpt2", "-o", tmp_path / name, "--"]
        command += [sys.executable, "-c", EXCHANGED, *arguments]
        subprocess.run(list(map_texts(command)), check=True)
    status, report = align(tmp_path, "plain", "turned", "megatron-gpt2")
    assert status == 0 and not any("transposed" in text for text in report["not_covered"])
    _, report = align(tmp_path, "plain", "bit", "megatron-gpt2")
    (pivot,) = report["pivots"]
    assert (pivot["step"], pivot["role"]) == (2, "grad")
    assert pivot["elements"][0]["index"] == [5, 1] and pivot["b"]["index"] == [1, 5]
    assert pivot["b"]["fqn"] == "transformer.h.0.mlp.c_fc.weight"


def test_bad_maps(runs, tmp_path):
    (tmp_path / "bad").write_text('{"format":"tocsin-map","version":1}\n{"a":"x.{i}","b":"y"}\n')
    for name, word in ((tmp_path / "bad", "line 2: "), (tmp_path / "missing", "missing")):
        command = [TOCSIN, "align", "--map", name, runs / "fused-none", runs / "split-none"]
        done = subprocess.run(list(map_texts(command)), capture_output=True, text=True)
        assert done.returncode == 2 and word in done.stderr
        command = [TOCSIN, "record", "--map", name, "-o", tmp_path / "run", "--", "true"]
        done = subprocess.run(list(map_texts(command)), capture_output=True, text=True)
        assert done.returncode == 2 and word in done.stderr
        assert not (tmp_path / "run").exists()
