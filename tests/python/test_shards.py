"""Sharded tensors in recordings: one training in several layouts is the same to the last bit, seen
as what the ranks hold together, and what differs is named with its element and its rank."""

import itertools
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import Partial, Replicate, Shard, _StridedShard

from tocsin import pieces

HERE = Path(__file__).resolve().parent
PROGRAM = HERE / "shards_program.py"
RANKS = HERE.parent / "corpus/ranks.py"
TOCSIN = os.environ["TOCSIN"]
RUNS = {  # name: ranks, mode, what the program is told
    "one": (1, "trusted", "plain"),
    "fsdp3": (3, "trusted", "fsdp"),
    "tp2": (2, "trusted", "tp"),
    "both4": (4, "online", "both"),
    "hand2": (2, "trusted", "hand"),
    "replica": (2, "online", "tp replica 1"),
    "bit": (2, "online", "fsdp bit 1"),
    "drill": (2, "drill", "fsdp"),
    "drill_again": (2, "drill", "fsdp"),
}


def record(folder, name):
    ranks, mode, told = RUNS[name]
    launcher = [RANKS, ranks] if ranks > 1 else []
    command = [TOCSIN, "record", "-q", "--mode", mode, "-o", folder / name, "--"]
    command += [sys.executable, *launcher, PROGRAM, *told.split()]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda name: record(folder, name), RUNS))
    return folder


def align(runs, a, b, *options):
    command = [TOCSIN, "align", "--format", "json", *options, runs / a, runs / b]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def states(run, **wanted):
    done = subprocess.run([TOCSIN, "dump", "--format", "jsonl", run],
                          capture_output=True, text=True)  # fmt: skip
    events = (json.loads(line) for line in done.stdout.splitlines())
    return [e for e in events if all(e.get(key) == value for key, value in wanted.items())]


@pytest.mark.parametrize("name", ["fsdp3", "tp2", "both4", "hand2"])
def test_layouts_agree(runs, name):
    """Parameters, gradients, optimizer state; outputs of modules where they were recorded."""
    status, report = align(runs, "one", name)
    assert (status, report["verdict"], report["pivots"]) == (0, "IDENTICAL", [])
    (prefix,) = report["identical_prefix"]
    assert prefix["rank"] is None and prefix["equal"] == prefix["compared"] > 60
    a, b = report["composed"]
    assert (a["run"], a["ranks"], a["incomparable"]) == ("a", 1, {})
    local = {"local": 6} if name == "hand2" else {}  # what its first layer returns, and gets back
    assert (b["run"], b["ranks"], b["incomparable"]) == ("b", RUNS[name][0], local)
    assert b["boundaries"] >= prefix["compared"] and report["replicas"] == []


def test_layouts_of_several_ranks(runs):
    status, report = align(runs, "fsdp3", "tp2")
    assert (status, report["verdict"]) == (0, "IDENTICAL")
    assert [c["ranks"] for c in report["composed"]] == [3, 2]


def test_every_function_of_a_sharded_run_repeats(runs):
    """Buffers that FSDP has not filled yet are not looked at."""
    status, report = align(runs, "drill", "drill_again")
    assert (status, report["verdict"], report["pivots"]) == (0, "IDENTICAL", [])


def test_one_layout(runs):
    """Rank by rank, piece by piece, unless it is asked to do otherwise."""
    status, report = align(runs, "tp2", "tp2")
    assert status == 0 and report["composed"] == []
    assert [r["rank"] for r in report["identical_prefix"]] == [0, 1]
    status, report = align(runs, "tp2", "tp2", "--whole")
    assert status == 0 and [c["ranks"] for c in report["composed"]] == [2, 2]


def test_a_bit_of_a_shard(runs):
    """Rank 1 has rows 5 to 9: its element [1, 4] is [6, 4] of the tensor."""
    status, report = align(runs, "one", "bit")
    assert status == 1
    pivot = report["pivots"][0]
    assert (pivot["step"], pivot["fqn"], pivot["role"]) == (2, "first.weight", "grad")
    assert pivot["a"]["value"] == pivot["b"]["value"] == "float32[10,6]"
    (element,) = pivot["elements"]
    assert element["index"] == [6, 4]
    assert element["bits_set"] + element["bits_cleared"] == [17]
    assert (pivot["a"]["ranks"], pivot["b"]["ranks"]) == ([], [1])


def test_replicas(runs):
    """A parameter that all ranks have, and one has changed."""
    status, report = align(runs, "one", "replica")
    assert (status, report["verdict"]) == (1, "DIVERGED")
    (found,) = report["replicas"]
    assert (found["run"], found["ranks"]) == ("b", [0, 1])
    assert (found["first"]["fqn"], found["first"]["role"], found["first"]["step"]) == (
        "shift", "data", 2)  # fmt: skip
    assert found["first"]["elements"][0]["index"] == [3]
    assert report["composed"][1]["incomparable"]["replicas differ"] == found["count"]


def test_what_is_recorded(runs):
    """A piece says where it lies; what each rank has all of, too."""
    process = next((runs / "fsdp3").glob("*.trace"))
    (state, *_) = states(process, variable="first.weight", attribute="grad", moment="enter")
    assert {"piece", "digested", "present"} <= set(state["flags"])
    values = [(value["name"], value["value"]) for value in state["values"]]
    assert values[:2] == [("whole", 10), ("whole", 6)] and values[3] == ("offset", 0)
    assert state["shape"] == [2 if values[2] == ("offset", 8) else 4, 6]
    process = next((runs / "tp2").glob("*.trace"))
    assert "piece" in states(process, variable="shift", attribute="data")[0]["flags"]


def test_relations_are_silent(runs):
    for name in ("fsdp3", "tp2", "both4", "hand2"):
        done = subprocess.run([TOCSIN, "check", runs / name], capture_output=True, text=True)
        assert done.returncode in (0, 3), done.stdout


def test_places():
    """What torch says of every coordinate, wherever that is a box."""
    kinds = [Replicate(), Shard(0), Shard(1), _StridedShard(0, split_factor=2), Partial()]
    boxes = 0
    for sizes, shape in itertools.product([(2, 2), (3, 2), (2, 3)], [(7, 5), (12, 4), (3, 1)]):
        for placements in itertools.product(kinds, kinds):
            for coordinate in itertools.product(*map(range, sizes)):
                placed = pieces.place(shape, placements, sizes, coordinate)
                local, offset = _compute_local_shape_and_global_offset(
                    shape, sizes, list(coordinate), placements
                )
                if placed is None:
                    assert any(isinstance(p, _StridedShard) for p in placements)
                    continue
                boxes += 1
                assert placed[1] == local
                if 0 not in local:
                    assert placed[0] == offset
                assert placed[2] == ("sum" if any(p.is_partial() for p in placements) else "")
    assert boxes > 500


def test_pipeline(tmp_path):
    """Of two stages the one that goes wrong is shown; the other received it. Both together are what
    one process does."""
    for name, ranks in (("alone", 1), ("none", 2), ("first", 2), ("last", 2)):
        launcher = [RANKS, ranks] if ranks > 1 else []
        command = [TOCSIN, "record", "-q", "--mode", "trusted", "-o", tmp_path / name, "--"]
        command += [sys.executable, *launcher, HERE / "pipeline_program.py", name]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    for name, rank in (("first", 0), ("last", 1)):
        status, report = align(tmp_path, "none", name)
        assert status == 1
        assert {pivot["rank"] for pivot in report["pivots"]} == {rank}
        assert report["downstream_ranks"] == 1
    status, report = align(tmp_path, "alone", "none")
    assert (status, report["verdict"]) == (0, "IDENTICAL")
    assert report["identical_prefix"][0]["compared"] > 80
    status, report = align(tmp_path, "alone", "first")
    assert status == 1
    assert (report["pivots"][0]["fqn"], report["pivots"][0]["role"]) == ("first", "output")
