"""The programs of bench/programs/healthy: all are listed, of each class there are enough, and the
shipped library is silent on a few of them, other ones every day (TOCSIN_PROGRAMS=all: on all).
"""

import datetime
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

SOURCE = Path(os.environ["TOCSIN_SOURCE"])
FOLDER = SOURCE / "bench/programs/healthy"
PROGRAMS = json.loads((FOLDER / "programs.json").read_text())["programs"]
A_DAY = 4
LEAST = {"cnn": 6, "language": 6, "diffusion": 6, "vision_transformer": 6,
         "rnn": 1, "generative": 2, "rl": 1}  # fmt: skip


def chosen():
    if os.environ.get("TOCSIN_PROGRAMS") == "all":
        return PROGRAMS, 0
    day = datetime.date.today().toordinal()
    # a step that shares no factor with their number comes by all of them, and changes the class
    return [PROGRAMS[(day * A_DAY + i) * 11 % len(PROGRAMS)] for i in range(A_DAY)], day % 10


CHOSEN, SEED = chosen()


def test_all_are_listed():
    assert sorted(p["name"] for p in PROGRAMS) == sorted(f.stem for f in FOLDER.glob("*.py"))
    assert len(PROGRAMS) % 11 != 0
    found = Counter(p["class"] for p in PROGRAMS)
    assert all(found[kind] >= least for kind, least in LEAST.items()), found
    assert sum(p["ranks"] > 1 for p in PROGRAMS) >= 3


@pytest.mark.parametrize("program", CHOSEN, ids=lambda program: program["name"])
def test_library_is_silent(program, tmp_path):
    launcher = [SOURCE / "tests/corpus/ranks.py", str(program["ranks"])]
    done = subprocess.run(
        [os.environ["TOCSIN"], "run", "-q", "--format", "json", "-r", tmp_path / "report.json",
         "-o", tmp_path / "run", "--", sys.executable, *(launcher if program["ranks"] > 1 else []),
         FOLDER / f"{program['name']}.py", str(SEED)],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert [finding["rendered"] for finding in report["findings"]] == []
    assert report["holds"] > 0
