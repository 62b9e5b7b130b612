"""One process that computes as tensor-parallel ranks do agrees with them to the last bit; one that
does not, does not."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from tocsin import simulate_tensor_parallel

HERE = Path(__file__).resolve().parent
RANKS = HERE.parent / "corpus/ranks.py"
TOCSIN = os.environ["TOCSIN"]


def record(folder, ranks, degree):
    launcher = [RANKS, ranks] if ranks > 1 else []
    command = [TOCSIN, "record", "-q", "-o", folder / f"{ranks}-{degree}", "--"]
    command += [sys.executable, *launcher, HERE / "simulation_program.py", degree]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("ranks", [2, 4])
def test_agrees_with_ranks(tmp_path, ranks):
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda run: record(tmp_path, *run), [(ranks, ranks), (1, ranks), (1, 1)]))
    verdicts = []
    for degree in (ranks, 1):
        runs = [tmp_path / f"1-{degree}", tmp_path / f"{ranks}-{ranks}"]
        done = subprocess.run([TOCSIN, "align", "--format", "json", *runs],
                              capture_output=True, text=True)  # fmt: skip
        report = json.loads(done.stdout)
        verdicts.append(report["verdict"])
        assert report["identical_prefix"][0]["compared"] > 150
        assert report["composed"][1]["incomparable"] == {}
    assert verdicts == ["IDENTICAL", "DIVERGED"]


def test_what_it_cannot_do():
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU())
    for plan, degree in (({"0": "row"}, 3), ({"1": "column"}, 2), ({"7": "row"}, 2),
                         ({"0": "rows"}, 2)):  # fmt: skip
        with pytest.raises(ValueError):
            simulate_tensor_parallel(model, plan, degree)
    assert "forward" not in vars(model[0])
    simulate_tensor_parallel(model, {"0": "column"}, 2)
    with torch.autocast("cpu"), pytest.raises(RuntimeError):
        model(torch.zeros(1, 4))
