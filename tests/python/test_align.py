"""`tocsin align` on real runs: the same training twice is identical; one that goes wrong in one
place is named by the boundary, and by the element where it is one."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
PROGRAM = HERE / "align_program.py"
RANKS = HERE.parent / "corpus/ranks.py"
TOCSIN = os.environ["TOCSIN"]
RUNS = [
    (name, 0) for name in "none again bit weight seed data rows dtype wrapped extra short".split()
] + [("none", 3), ("bit", 3)]
MODES = [(change, mode) for mode in ("trusted", "drill") for change in ("none", "seed")]


def record(folder, change, ranks=0, mode="online", threads="1"):
    run = folder / f"{change}-{mode if mode != 'online' else ranks}"
    launcher = [RANKS, str(ranks)] if ranks else []
    command = [TOCSIN, "record", "-q", "--mode", mode, "-o", run, "--"]
    command += [sys.executable, *launcher, PROGRAM]
    command += ["none" if change == "again" else change, "1"]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": threads, "PYTHONHASHSEED": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("align")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda run: record(folder, *run), RUNS))
        list(pool.map(lambda run: record(folder, run[0], 0, run[1]), MODES))
    return folder


def align(runs, change, ranks=0, *options):
    """(exit status, report) of the healthy run and this one."""
    pair = [str(runs / f"{name}-{ranks}") for name in ("none", change)]
    command = [TOCSIN, "align", "--format", "json", *options, *pair]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def place(pivot):
    return pivot["step"], pivot["fqn"], pivot["role"], pivot["op"]


def test_the_same_twice(runs):
    status, report = align(runs, "again")
    assert (status, report["verdict"], report["pivots"]) == (0, "IDENTICAL", [])
    (prefix,) = report["identical_prefix"]
    assert prefix["equal"] == prefix["compared"] == prefix["boundaries"] > 100
    assert prefix["only_a"] == prefix["only_b"] == 0 and prefix["diverged_step"] is None
    assert report["not_covered"]


def test_one_bit_of_a_gradient(runs):
    status, report = align(runs, "bit")
    assert (status, report["verdict"]) == (1, "DIVERGED")
    assert [place(pivot) for pivot in report["pivots"]] == [
        (3, "first.weight", "grad", "optimizer.step")
    ]
    (element,) = report["pivots"][0]["elements"]
    assert element["index"] == [11, 5] and element["word"] == 0
    assert element["bits_set"] + element["bits_cleared"] == [19]
    assert abs(element["delta"]) == 1 << 19


def test_one_bit_of_a_weight(runs):
    """Between two steps, behind the backward pass."""
    _, report = align(runs, "weight")
    assert place(report["pivots"][0]) == (3, "second.weight", "data", "optimizer.step")
    (element,) = report["pivots"][0]["elements"]
    assert element["index"] == [3, 7]
    assert element["bits_set"] + element["bits_cleared"] == [30]


def test_rows_swapped(runs):
    """Two rows: no single element, no sum or xor of all words shows it."""
    _, report = align(runs, "rows")
    assert [place(pivot) for pivot in report["pivots"]] == [
        (3, "second.weight", "grad", "optimizer.step")
    ]
    assert report["pivots"][0]["elements"] == []
    a, b = (report["pivots"][0][side]["digest"].split(":") for side in "ab")
    assert a[0] == b[0] and a[2] == b[2] and a[1] != b[1]


def test_a_seed(runs):
    """The loss is the first that shows it."""
    _, report = align(runs, "seed")
    assert report["pivots"][0]["step"] == 3
    assert report["pivots"][0]["op"] == "torch.nn.functional.cross_entropy"
    assert ("torch", 3) in {(g["name"], g["step"]) for g in report["generators"]}


def test_what_modules_return(runs):
    _, report = align(runs, "seed", "trusted")
    pivot = report["pivots"][0]
    assert place(pivot) == (3, "second", "output", "torch.nn.Module.__call__")
    assert pivot["phase"] == "forward" and "align_program.py" in pivot["stack"][0]
    assert pivot["id"] == "forward/second/output@torch.nn.Module.__call__"
    assert (pivot["micro_batch"], pivot["ordinal"]) == (1, 1)
    assert pivot["last_equal"] == "forward/norm/output@torch.nn.Module.__call__"
    assert pivot["cause"] == "unobserved"
    calls = [call.split(",")[0] for call in pivot["stack"][1:]]
    assert calls == ["torch.nn.Module.__call__ of second", "torch.nn.Module.__call__"]


def test_how_far_it_spread(runs):
    """From the first point on, step by step; each name once, in order."""
    _, report = align(runs, "seed", "trusted")
    (cone,) = report["cone"]
    assert [step["step"] for step in cone["steps"]] == [3, 4]
    (prefix,) = report["identical_prefix"]
    differing = sum(step["differing"] for step in cone["steps"])
    assert differing == prefix["compared"] - prefix["equal"] > 20
    reached = [(one["id"], one["step"]) for one in cone["reached"]]
    assert reached[0] == (report["pivots"][0]["id"], 3)
    assert ("optimizer/first.weight/grad@optimizer.step", 3) in reached
    assert len(reached) == cone["names"]


def test_rules(runs, tmp_path):
    """A difference that is accepted is no pivot; what follows from it is one."""
    rules = tmp_path / "rules.jsonl"
    pair = [runs / "none-trusted", runs / "seed-trusted"]
    accept = ["--rules", rules, "--because", "another seed", "--accept"]

    def run(*options):
        command = map(str, [TOCSIN, "align", *options, *pair])
        return subprocess.run(list(command), capture_output=True, text=True)

    assert run(*accept, "nowhere").returncode == 2 and not rules.exists()
    done = run(*accept, "forward/second/output@torch.nn.Module.__call__")
    assert done.returncode == 0 and done.stdout.startswith("accepted until "), done.stderr
    report = json.loads(run("--rules", rules, "--format", "json").stdout)
    assert (report["verdict"], report["pivots"][0]["fqn"]) == ("DIVERGED", "")
    (rule,) = report["accepted"]
    assert (rule["count"], rule["because"], rule["expired"]) == (2, "another seed", False)
    assert run(*accept, "*").returncode == 0
    done = run("--rules", rules)
    assert done.returncode == 0 and done.stdout.startswith("ACCEPTED")
    rules.write_text(rules.read_text().replace('"until":"2', '"until":"1'))
    done = run("--rules", rules)
    assert done.returncode == 1 and "accepts nothing" in done.stdout
    rules.write_text("{}")
    assert run("--rules", rules).returncode == 2


def test_what_functions_return(runs):
    """The function itself, and gradients on their way back."""
    _, report = align(runs, "seed", "drill")
    assert report["pivots"][0]["op"] == "torch.dropout"
    assert report["pivots"][0]["role"] == "output"
    assert report["pivots"][0]["cause"] == "produced"
    done = subprocess.run([TOCSIN, "dump", "--format", "jsonl", runs / "none-trusted"],
                          capture_output=True, text=True)  # fmt: skip
    events = [json.loads(line) for line in done.stdout.splitlines()]
    back = [e["variable"] for e in events if e.get("attribute") == "grad_output"]
    assert back == 4 * ["second", "", "norm", "first"]


def test_a_pixel(runs):
    """The batch, before anything was computed from it, and which element."""
    _, report = align(runs, "data")
    pivot = report["pivots"][0]
    assert (pivot["step"], pivot["role"], pivot["phase"]) == (4, "samples", "data")
    assert pivot["elements"][0]["index"] == [51 - 48, 2]


def test_dtype(runs):
    _, report = align(runs, "dtype")
    pivot = report["pivots"][0]
    assert (pivot["fqn"], pivot["difference"]) == ("norm.num_batches_tracked", "dtype")
    assert pivot["a"]["value"] == "int64[]" and pivot["b"]["value"] == "int32[]"


def test_names_of_wrappers(runs):
    """A compiled model has other names, inside; the states are the same."""
    status, report = align(runs, "wrapped")
    assert (status, report["verdict"]) == (0, "IDENTICAL")


def test_one_boundary_more(runs):
    status, report = align(runs, "extra")
    assert (status, report["verdict"]) == (0, "IDENTICAL")
    gaps = {(gap["run"], gap["fqn"]) for gap in report["gaps"]}
    assert gaps == {("b", "unused"), ("b", "unused#options")}


def test_a_step_less(runs):
    status, report = align(runs, "short")
    assert (status, report["verdict"]) == (0, "IDENTICAL")
    assert any("3 steps" in text for text in report["not_covered"])


def test_one_rank_of_three(runs):
    """The gradients were summed before they were read: all ranks part at one point, and none
    before the communication."""
    _, report = align(runs, "bit", 3)
    assert {pivot["rank"] for pivot in report["pivots"]} <= {0, 1, 2}
    assert all(place(p)[:3] == (3, "first.weight", "grad") for p in report["pivots"])


def test_settings(runs):
    """What decides bits is compared first: here the number of threads."""
    record(runs, "none", 0, "full", threads="2")
    pair = [str(runs / name) for name in ("none-0", "none-full")]
    command = [TOCSIN, "align", "--format", "json", *pair]
    report = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
    assert {"OMP_NUM_THREADS", "torch.get_num_threads"} == {s["name"] for s in report["settings"]}
    assert {(s["a"], s["b"]) for s in report["settings"]} == {("1", "2")}


@pytest.mark.parametrize("options", [["--digest", "xor"], ["--digest", "sum"]])
def test_baseline_blind_to_places(runs, options):
    """Swapped rows have the sum and the xor that they had; what follows from them has not."""
    _, report = align(runs, "rows", 0, *options)
    assert place(report["pivots"][0])[1:3] == ("second.weight", "data")
    assert all(pivot["elements"] == [] for pivot in report["pivots"])


def test_baseline_of_few_places(runs):
    _, report = align(runs, "bit", 0, "--probes", "few")
    assert place(report["pivots"][0])[0] == 4 and report["pivots"][0]["role"] == "return"


def test_baseline_with_tolerance(runs):
    """One pixel of 128, changed in its last third: near enough, and so is all that follows."""
    status, report = align(runs, "data", 0, "--tolerance", "0.5")
    assert (status, report["verdict"]) == (0, "IDENTICAL")
    status, _ = align(runs, "data", 0, "--digest", "norm")
    assert status == 1


def test_bad_input(runs, tmp_path):
    bad = [["--tolerance", value, runs / "none-0", runs / "none-0"] for value in ("0", "x", "nan")]
    for arguments in ([], [runs / "none-0", tmp_path / "missing"], *bad):
        command = [TOCSIN, "align", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 2 and done.stderr.startswith("tocsin: error: ")
