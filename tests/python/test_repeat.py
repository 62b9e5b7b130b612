"""`tocsin record --repeat` on real trainings: what does not repeat is found, a deterministic
program is left in peace, and `tocsin align --unstable` looks past what does not repeat."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parent / "repeat_program.py"
TOCSIN = os.environ["TOCSIN"]


def tocsin(*arguments, status=0, **environment):
    done = subprocess.run(
        [TOCSIN, *map(str, arguments)], capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", **environment},
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    return done


def repeat(folder, kind, *options):
    return tocsin("record", "--repeat", 3, *options, "-o", folder / kind, "--",
                  sys.executable, PROGRAM, kind).stderr  # fmt: skip


@pytest.fixture(scope="module")
def repeats(tmp_path_factory):
    """The folder, and what was said of each kind."""
    folder = tmp_path_factory.mktemp("repeat")
    with ThreadPoolExecutor(2) as pool:
        said = pool.map(
            lambda kind: repeat(folder, kind, "--jitter", 7, "--mode", "trusted"),
            ("stable", "threads", "race"),
        )
        return folder, dict(zip(("stable", "threads", "race"), said))


def unstable(folder, kind):
    header, *boundaries = map(json.loads, open(folder / kind / "unstable.jsonl"))
    assert header == {"format": "tocsin-unstable", "version": 1, "repeats": 3}
    return {(b["fqn"], b["role"]): b for b in boundaries}


def test_deterministic(repeats):
    folder, said = repeats
    assert unstable(folder, "stable") == {}
    assert said["stable"].count(": as the first") == 2
    assert "repeat 2 of 3: " in said["stable"] and "delays by" in said["stable"]
    assert sorted(path.name for path in (folder / "stable").iterdir()) == [
        "repeat-1", "repeat-2", "repeat-3", "unstable.jsonl"
    ]  # fmt: skip


def test_number_of_threads(repeats):
    """Repeats walk through the numbers of threads; the first boundary is where the sum went in."""
    folder, said = repeats
    assert "first at second output at torch.nn.Module.__call__" in said["threads"]
    found = unstable(folder, "threads")
    assert found["second", "output"]["step"] == 1
    assert ("first", "output") not in found or found["first", "output"]["step"] > 1


def test_race(repeats):
    """Delays let two threads overtake each other; nothing else depends on it."""
    folder, _ = repeats
    ((place, boundary),) = unstable(folder, "race").items()
    assert place == ("counts", "data") and boundary["op"] == "optimizer.step"
    assert 1 <= boundary["differs"] <= 2


def test_looking_past_what_does_not_repeat(repeats):
    """Two racy runs: the counter is scored, the gradient behind it is the divergence."""
    folder, _ = repeats
    tocsin("record", "-q", "-o", folder / "bit", "--", sys.executable, PROGRAM, "race", "bit",
           TOCSIN_JITTER="3")  # fmt: skip
    first, bit = folder / "race/repeat-1", folder / "bit"
    compare = ("align", "--format", "json", "--unstable", folder / "race/unstable.jsonl", first)
    report = json.loads(tocsin(*compare, bit, status=1).stdout)
    assert report["verdict"] == "DIVERGED"
    (pivot,) = report["pivots"]
    assert (pivot["step"], pivot["fqn"], pivot["role"]) == (2, "first.weight", "grad")
    assert pivot["elements"][0]["index"] == [9, 3]

    others = [folder / f"race/repeat-{number}" for number in (2, 3)]
    reports = [json.loads(tocsin("align", "--format", "json", first, other, status=1).stdout)
               for other in others]  # fmt: skip
    assert {r["pivots"][0]["fqn"] for r in reports} == {"counts"}
    report = json.loads(tocsin(*compare, others[0], status=3).stdout)
    assert (report["verdict"], report["pivots"]) == ("UNSTABLE", [])
    (scored,) = report["unstable"]
    assert (scored["fqn"], scored["role"], scored["repeats"]) == ("counts", "data", 3)
    text = tocsin("align", *compare[3:], others[0], status=3).stdout
    assert f"unstable boundary (differs in {scored['differs']} of 3 repeats)" in text
