"""bench/fp.py: changes change what they say, sets of invariants judge together as they do alone,
loss curves are those of the program."""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import torch._dynamo  # which optimizers import; here, before processes are forked

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests/corpus")]

from studies import altered, loss_curves, verdicts  # noqa: E402
from studies.recordings import Program, Run, Studio  # noqa: E402

PROGRAM = """
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[1]))
x = torch.rand(32, 6)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Linear(8, 8),
                      nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, weight_decay=0.0)
losses = []
for epoch in range(2):
    model.train()
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
if len(sys.argv) > 2:
    with open(sys.argv[2], "w") as out:
        out.write(f"{losses} {[float(t.double().sum()) for t in model.state_dict().values()]}")
assert "result" == "not asked"
"""
MISTAKES = [change.__name__ for change in altered.MISTAKES]
VARIATIONS = [change.__name__ for change in altered.VARIATIONS]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("fp") / "program.py"
    path.write_text(PROGRAM)
    return path


def run_forked(program, change, result):
    """The exit status of altered.py, in a process that has torch already; and what was trained."""
    child = os.fork()
    if child == 0:
        sys.argv = ["altered.py", change, str(program), "0", str(result)]
        status = 70
        try:
            status = altered.main()
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status, result.read_text() if result.exists() else None


@pytest.fixture(scope="module")
def unchanged(program, tmp_path_factory):
    altered.nothing = lambda: None
    known = altered.MISTAKES
    altered.MISTAKES = (*known, altered.nothing)
    altered.nothing.__name__ = "nothing"
    try:
        status, trained = run_forked(program, "nothing", tmp_path_factory.mktemp("fp") / "out")
    finally:
        altered.MISTAKES = known
    assert status == altered.NO_EFFECT
    return trained


@pytest.mark.parametrize("change", MISTAKES + VARIATIONS)
def test_a_change_changes_what_is_trained(program, change, unchanged, tmp_path):
    torch.set_num_threads(1)
    status, trained = run_forked(program, change, tmp_path / "out")
    assert status == 0
    same = change in ("gradients_kept_as_zero", "foreach")
    assert (trained == unchanged) == same


@pytest.fixture(scope="module")
def recorded(program, tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    path = folder / "sound.py"
    path.write_text(PROGRAM.replace('assert "result" == "not asked"', "print(losses)"))
    sound = Program("sound", path, "mlp")
    studio = Studio(os.environ["TOCSIN"], folder / "runs", folder / "corpus")
    runs = [Run(sound, 0), Run(sound, 1), Run(sound, 2), Run(sound, 0, "no_zero_grad")]
    with ThreadPoolExecutor(2) as pool:
        made = studio.record_all(runs, pool)
        assert len(made) == 4 and not studio.failed
        yield studio, pool, list(made.values())


def test_sets_judge_together_as_alone(recorded):
    studio, pool, (first, second, third, mistaken) = recorded
    court = verdicts.Court(studio, pool)
    pair = court.learn("pair", [first, second])
    other = court.learn("other", [mistaken])
    assert pair and other and pair != other
    court.check([third, mistaken])
    for name, learned, run in (
        ("pair", [first, second], third), ("pair", [first, second], mistaken),
        ("other", [mistaken], third),
    ):  # fmt: skip
        path = court.infer(learned, studio.folder / "alone.jsonl")
        report = json.loads(studio.output_of("check", "-i", path, "--format", "json", run))
        together = court.reports[run]
        members = court.sets[name]
        assert {f["invariant"] for f in report["findings"]} == members & together.violated
        assert report["holds"] + report["violated"] == len(members & together.judged.keys())
    healthy, wrong = verdicts.Rates(), verdicts.Rates()
    healthy.add(pair, court.reports[third], set())
    wrong.add(pair, court.reports[mistaken], court.reports[mistaken].violated)
    assert healthy.violated == healthy.runs_with_finding == 0 < healthy.triggered
    assert wrong.violated == wrong.violated_non_trivial > 0 and wrong.clusters == 1


def test_a_loss_curve_is_that_of_training(recorded, program, tmp_path):
    studio, _, runs = recorded
    curve = loss_curves.loss_curve(studio, runs[0])
    assert len(curve) == 8
    assert loss_curves.score(loss_curves.spike, curve) is not None
    assert loss_curves.score(loss_curves.spike, [*curve, float("nan")]) == float("inf")
    assert loss_curves.score(loss_curves.spike, curve[:3]) is None
