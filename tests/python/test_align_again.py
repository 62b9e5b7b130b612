"""Runs that `tocsin align` makes itself: --drill runs both again and says which rows differ;
--replay runs two commands from one checkpoint."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
TOCSIN = os.environ["TOCSIN"]
PROGRAM = HERE / "align_program.py"
REPLAY = HERE / "replay_program.py"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}


def tocsin(*arguments, status=0, environment=ENVIRONMENT, cwd=None):
    done = subprocess.run([TOCSIN, *map(str, arguments)], capture_output=True, text=True,
                          env=environment, cwd=cwd)  # fmt: skip
    assert done.returncode == status, done.stderr
    return done


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("again")

    def record(change):
        tocsin("record", "-q", "-o", change, "--", sys.executable, PROGRAM, change, "0", cwd=folder)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(record, ("none", "rows", "warp", "seed")))
    return folder


def drill(runs, change, *commands, name=None):
    done = tocsin("align", "--format", "json", "--drill", "-o", name or f"{change}-drill", "none",
                  change, *commands, status=1, cwd=runs)  # fmt: skip
    return json.loads(done.stdout), done.stderr


def rows(pivot):
    return [(tile["offset"], tile["shape"]) for tile in pivot["tiles"]]


def test_swapped_rows(runs):
    """The commands are those that the runs were made by."""
    report, said = drill(runs, "rows")
    assert "part in step 3 at second.weight grad" in said
    (pivot,) = report["pivots"]
    assert (pivot["fqn"], pivot["role"], pivot["step"]) == ("second.weight", "grad", 3)
    assert rows(pivot) == [([1, 0], [1, 16]), ([2, 0], [1, 16])]
    assert pivot["elements"] == [] and pivot["tiles_compared"] == 4
    text = tocsin("align", "rows-drill/a", "rows-drill/b", status=1, cwd=runs).stdout
    assert "rows      1-2 of 4: 2 of 4 differ" in text


def test_periodic_bits(runs):
    """Several words: of each row that was touched the element."""
    command = ["--", sys.executable, PROGRAM]
    report, _ = drill(runs, "warp", *command, "none", 0, *command, "warp", 0)
    (pivot,) = report["pivots"]
    assert rows(pivot) == [([0, 0], [1, 16]), ([2, 0], [1, 16])]
    assert [tile["elements"][0]["index"] for tile in pivot["tiles"]] == [[0, 5], [2, 5]]


def test_a_narrower_boundary(runs):
    """The loss differed; looked at closely it was the dropout inside."""
    done = tocsin("align", "--format", "json", "none", "seed", status=1, cwd=runs)
    first = json.loads(done.stdout)
    assert first["pivots"][0]["op"] == "torch.nn.functional.cross_entropy"
    report, _ = drill(runs, "seed")
    assert report["pivots"][0]["op"] == "torch.dropout" and report["pivots"][0]["step"] == 3
    assert report["pivots"][0]["tiles"]
    assert any("step 3 alone" in text for text in report["not_covered"])
    dump = tocsin("dump", "--format", "jsonl", "seed-drill/a", cwd=runs).stdout
    steps, step = {}, 1
    for event in map(json.loads, dump.splitlines()):
        steps[step] = steps.get(step, 0) + (event.get("attribute") == "output")
        step += event["kind"] == "exit" and event.get("function") == "tocsin.step_end"
    assert steps[3] > 5 and steps[1] == steps[2] == steps[4] == 0


WIDE = """
import sys, torch
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(4, 200), torch.nn.Linear(200, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if sys.argv[1] == "wrong":
    model[0].bias.data[100:102] += 1
loss = model(torch.randn(3, 4)).square().mean()
loss.backward()
optimizer.step()
"""


def test_a_third_look(runs):
    """The bias is seen at the step, then on its way into the operator, where it is cut coarsely."""
    (runs / "wide.py").write_text(WIDE)
    for kind in ("right", "wrong"):
        command = ["--", sys.executable, "wide.py", kind]
        tocsin("record", "-q", "-o", f"wide-{kind}", *command, cwd=runs)
    done = tocsin("align", "--drill", "--format", "json", "-o", "wide-drill", "wide-right",
                  "wide-wrong", status=1, cwd=runs)  # fmt: skip
    report = json.loads(done.stdout)
    pivot = report["pivots"][0]
    assert (pivot["op"], pivot["role"]) == ("torch.nn.functional.linear", "input")
    assert rows(pivot) == [([100], [1]), ([101], [1])] and pivot["tiles_compared"] == 200
    looks = [line for line in done.stderr.splitlines() if "once more" in line]
    assert ["at 0.bias data" in looks[0], "at 0 input" in looks[1]] == [True, True]


def test_what_does_not_come_again(runs):
    """A difference that the second runs do not have is said to be none of the commands'."""
    command = ["--", sys.executable, PROGRAM, "none", 0]
    report, said = drill(runs, "rows", *command, *command, name="gone")
    assert report["verdict"] == "IDENTICAL"
    assert "what the first ones showed does not repeat" in said


def test_which_commands(runs, tmp_path):
    """One command for two different ones, or another folder: said, and nothing is run."""
    here = ["none", "rows"]
    done = tocsin("align", "--drill", *here, "--", "true", status=2, cwd=runs)
    assert "recorded from different commands" in done.stderr
    done = tocsin("align", "--drill", *(runs / run for run in here), status=2, cwd=tmp_path)
    assert f"was recorded in the folder {runs}" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_replay(tmp_path):
    """Settings that decide bits are fixed for both; what the user set stays."""
    checkpoint = tmp_path / "model.pt"
    subprocess.run([sys.executable, REPLAY, checkpoint, "-"], check=True, env={
        **os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", "")})  # fmt: skip
    bare = {name: value for name, value in os.environ.items()
            if name not in ("OMP_NUM_THREADS", "PYTHONHASHSEED")}  # fmt: skip
    command = ["--", sys.executable, REPLAY, "{ckpt}"]
    done = tocsin("align", "--format", "json", "--replay", "model.pt", "-o", "replayed",
                  *command, "a.json", *command, "b.json", "wrong", status=1, cwd=tmp_path,
                  environment={**bare, "MKL_CBWR": "AVX2,STRICT"})  # fmt: skip
    report = json.loads(done.stdout)
    (pivot,) = report["pivots"]
    assert (pivot["fqn"], pivot["role"]) == ("bias", "grad")
    assert pivot["elements"][0]["index"] == [2]
    assert any("proves nothing about the original" in text for text in report["not_covered"])
    assert done.stderr.count("a line on stdout") == 2
    for name in ("a.json", "b.json"):
        settings = json.load(open(tmp_path / name))
        assert {state for _, state, *_ in settings} == {"ok"}, settings
        assert ["MKL_CBWR", "ok", "AVX2,STRICT"] in [entry[:3] for entry in settings]
    runs = [tmp_path / "replayed" / run for run in "ab"]
    assert tocsin("align", *runs, status=1).stdout.startswith("DIVERGED")
