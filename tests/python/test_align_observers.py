"""A recorder that reads what passes boundaries changes nothing, and each boundary is read once."""

import json
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from recording import recorded

HERE = Path(__file__).resolve().parent
PROGRAM = HERE / "observed_programs.py"
AVERAGED = HERE / "averaged_program.py"
RANKS = [HERE.parent / "corpus/ranks.py", "3"]
TOCSIN = os.environ["TOCSIN"]
KINDS = ["Plain", "InPlace", "Recomputed", "PerBlock", "Compiled"]  # in the program's order
STEPS, RANKS_COUNT, MODELS = 3, 3, 2


def run(folder, name, program, *arguments, boundaries=()):
    """What the program prints; recorded into folder / name, if there are boundaries."""
    command = [sys.executable, *program, *arguments]
    if boundaries:
        command = [TOCSIN, "record", "-q", *boundaries, "-o", folder / name, "--", *command]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """(folder, printed by name)"""
    folder = tmp_path_factory.mktemp("observers")
    one, ranks = [PROGRAM], [*RANKS, AVERAGED]
    wanted = {
        "plain": (one, (), ()),
        "full": (one, (), ("--mode", "full")),
        "drill": (one, (), ("--mode", "drill")),
        "extra": (one, ("extra",), ("--mode", "drill")),
        "plain-3": (ranks, (), ()),
        "full-3": (ranks, (), ("--mode", "full")),
        "bit-3": (ranks, ("bit",), ("--boundaries", "collectives")),
        "whole-3": (ranks, (), ("--boundaries", "collectives")),
    }
    with ThreadPoolExecutor(2) as pool:
        printed = pool.map(
            lambda name: run(folder, name, wanted[name][0], *wanted[name][1],
                             boundaries=wanted[name][2]), wanted)  # fmt: skip
        return folder, dict(zip(wanted, printed, strict=True))


def align(runs, a, b):
    command = [TOCSIN, "align", "--format", "json", runs[0] / a, runs[0] / b]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def events(runs, name):
    command = [TOCSIN, "dump", "--format", "jsonl", runs[0] / name]
    lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    return [json.loads(line) for line in lines]


def steps(runs, name):
    """Of each step (kind of model, boundaries as (name, attribute, phase, digest))."""
    found, phase, current = [], ["forward"], []
    for event in events(runs, name):
        if event["kind"] == "enter" and event["role"] == "backward":
            phase.append("backward")
        elif event["kind"] in ("exit", "raise") and event["role"] == "backward":
            phase.pop()
        elif event["kind"] == "state" and event["variable_kind"] == "boundary":
            if event["type"] != "setting":
                current.append((event["variable"], event["attribute"], phase[-1], event["sum"]))
        if event["kind"] == "enter" and event["role"] == "optimizer.step":
            found.append((KINDS[len(found) // STEPS], current))
            current = []
    return found


def test_nothing_changes(runs):
    """Losses, weights, gradients of the input, frames and graphs of torch.compile (4, 34)."""
    _, printed = runs
    assert set(printed["plain"]) == {*KINDS, "frames", "breaks", "graphs"}
    assert printed["plain"]["graphs"] == printed["plain"]["frames"]["ok"] == 3
    assert printed["full"] == printed["plain"] and printed["drill"] == printed["plain"]


def test_each_boundary_once(runs):
    """Also where a module is compiled, in place or with what is around it, or is wrapped (35)."""
    for kind, boundaries in steps(runs, "full"):
        counted = Counter((name, what) for name, what, phase, _ in boundaries
                          if phase == "forward" or what == "grad_output")  # fmt: skip
        assert set(counted.values()) == {1}, (kind, counted)
        names = {name for name, _ in counted}
        if kind == "PerBlock":
            assert names == {"", "before", "around", "around.inner", "inside"}
        if kind == "Compiled":
            assert names == {""}


def test_recomputed(runs):
    """Both passes are there, under one name, and equal; the last module of a block that stops early
    returns nothing."""
    seen = 0
    for kind, boundaries in steps(runs, "full"):
        forward = {(n, a): d for n, a, phase, d in boundaries if phase == "forward"}
        again = {(n, a): d for n, a, phase, d in boundaries
                 if phase == "backward" and a in ("input", "output")}  # fmt: skip
        assert again.items() <= forward.items()
        if kind == "Recomputed":
            seen += 1
            assert {n for n, a in again if a == "output"} == {
                "early.0", "early.1", "late", "late.0", "late.1", "wrapped.0"
            }  # fmt: skip
        else:
            assert not again
    assert seen == STEPS


def test_unequal_lists(runs):
    """An operation more in the one run, which changes nothing (1)."""
    assert runs[1]["extra"] == runs[1]["plain"]
    status, report = align(runs, "drill", "extra")
    assert (status, report["verdict"]) == (0, "IDENTICAL")
    (prefix,) = report["identical_prefix"]
    assert prefix["only_a"] == 0 and prefix["only_b"] == 2 * 3 * STEPS
    assert {gap["op"] for gap in report["gaps"]} == {"torch.clamp"}


def test_read_once(runs):
    """What `full` reads once, and `drill` each time it passes, is the same."""
    status, report = align(runs, "full", "drill")
    assert (status, report["verdict"]) == (0, "IDENTICAL")
    (prefix,) = report["identical_prefix"]
    assert prefix["only_a"] == 0 and prefix["equal"] == prefix["compared"] > 500


def test_averaged_gradients(runs):
    """Three ranks, where 1/3 is not exact: the same bits, with torch's reducer and with a hook of
    the user's."""
    assert runs[1]["plain-3"] == runs[1]["full-3"] == runs[1]["whole-3"]
    found = Counter((event["variable"], event["attribute"]) for event in events(runs, "full-3")
                    if event.get("attribute") in ("grad_local", "grad_reduced"))  # fmt: skip
    names = [f"{layer}.{what}" for layer in (0, 2) for what in ("weight", "bias")]
    assert found == {(name, what): RANKS_COUNT * MODELS * STEPS
                     for name in names for what in ("grad_local", "grad_reduced")}  # fmt: skip


def test_one_rank_before_averaging(runs):
    """The rank that computed something else is named, not those that received it."""
    status, report = align(runs, "whole-3", "bit-3")
    assert status == 1 and report["downstream_ranks"] == 2
    (pivot,) = report["pivots"]
    assert (pivot["rank"], pivot["step"]) == (1, 2)
    assert (pivot["fqn"], pivot["role"], pivot["op"]) == ("2.weight", "grad_local", "backward")
    (element,) = pivot["elements"]
    assert element["index"] == [2, 3] and element["bits_set"] + element["bits_cleared"] == [20]


def test_asynchronous_collectives(runs):
    """What they have filled is read when it has been waited for; what they are about to fill is
    not."""
    package = "torch.distributed."
    found = Counter((event["variable"].removeprefix(package), event["attribute"],
                     *event["shape"]) for event in events(runs, "whole-3")
                    if event.get("variable", "").startswith(package))  # fmt: skip
    expected = dict.fromkeys(
        (
            ("all_reduce", "input"),
            ("all_reduce", "output"),
            ("all_gather_into_tensor", "input", 1),
            ("all_gather_into_tensor", "output", 3),
            ("_functional_collectives.all_reduce", "input"),
            ("_functional_collectives.wait_tensor", "output"),
        ),
        RANKS_COUNT * MODELS * STEPS,
    )
    assert expected.items() <= found.items()
    # The user's hook of the second model takes futures: what it sends is seen.
    assert {key[:2] for key in found.keys() - expected.keys()} == {("all_reduce", "input")}


def test_dataclasses():
    """What modules hand on in dataclasses, with and without slots; nothing of the user's is asked,
    and a module that is a dataclass is no container."""
    process = recorded(
        """
        from dataclasses import dataclass
        from torch import nn

        @dataclass
        class Hidden:
            state: torch.Tensor
            note: str = "no tensor"
            def __getattribute__(self, name):
                if name == "__dict__":
                    raise RuntimeError("asked")
                return super().__getattribute__(name)

        @dataclass(slots=True)
        class Scored:
            score: torch.Tensor
            late: torch.Tensor

        @dataclass(eq=False)
        class Scale(nn.Module):
            factor: float
            def __post_init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(2))
            def forward(self, hidden, other):
                scored = Scored.__new__(Scored)  # `late` is not there yet
                scored.score = hidden.state * self.weight * self.factor
                return scored

        class First(nn.Linear):
            def forward(self, x):
                return Hidden(super().forward(x))

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = First(3, 2), Scale(2.0)
            def forward(self, x):
                return self.second(self.first(x), self.second)

        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.ones(1, 3)).score.sum().backward()
        optimizer.step()
        """,
        TOCSIN_BOUNDARIES="full",
    ).process
    found = Counter((event["variable"], event["attribute"]) for event in process.events
                    if event.get("variable_kind") == "boundary"
                    and event["type"] != "setting")  # fmt: skip
    assert found == {(name, what): 1 for name in ("", "first", "second")
                     for what in ("input", "output", "grad_output")}  # fmt: skip
