"""The plan that a transformers.Trainer's arguments make: kept, ended by a callback, resumed, or
not kept. Skipped where transformers is not installed."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

missing = importlib.util.find_spec("transformers") is None
pytestmark = pytest.mark.skipif(missing, reason="transformers is not installed")

PROGRAM = """
    import sys, torch
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 28
        def __getitem__(self, index):
            return {"x": torch.full((4,), index / 28), "y": torch.tensor(index % 2)}

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)
        def forward(self, x, y):
            return {"loss": torch.nn.functional.cross_entropy(self.layer(x), y)}

    class Stop(TrainerCallback):
        def on_step_end(self, args, state, control, **rest):
            control.should_training_stop = state.global_step == 3
            return control

    class Shorter(Trainer):  # plans fewer steps than its arguments ask for
        def set_initial_training_values(self, *args, **kwargs):
            values = list(super().set_initial_training_values(*args, **kwargs))
            values[6] = 4
            return tuple(values)

    kind = sys.argv[1]
    options = {"num_train_epochs": 2, "gradient_accumulation_steps": 3, "save_strategy": "no"}
    if kind == "resumed":
        options |= {"save_strategy": "steps", "save_steps": 2}
    if kind == "counted":
        options |= {"max_steps": 5}
    def make():
        arguments = TrainingArguments("out", use_cpu=True, report_to=[], disable_tqdm=True,
                                      per_device_train_batch_size=4, **options)
        return (Shorter if kind == "shorter" else Trainer)(
            Model(), arguments, train_dataset=Data(), callbacks=[Stop] * (kind == "stopped"))
    make().train()
    if kind == "twice":
        make().train()
    if kind == "resumed":
        make().train(resume_from_checkpoint="out/checkpoint-4")
"""


def plan(kind):
    """What the library says of the plan: findings, and how often it was judged."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(textwrap.dedent(PROGRAM))
        command = [os.environ["TOCSIN"], "run", "-q", "-l", "--format", "json", "-r", "report.json",
                   "--all", "-o", "run", "--", sys.executable, "train.py", kind]  # fmt: skip
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        report = json.loads(Path(folder, "report.json").read_text())
    skipped = [u for u in report["not_judged"] if "planned" in u["sentence"]]
    return [f["rendered"] for f in report["findings"]], skipped


@pytest.mark.parametrize("kind", ["plain", "counted", "stopped", "twice", "resumed"])
def test_plans_that_are_kept(kind):
    findings, skipped = plan(kind)
    assert findings == [] and skipped == []


def test_a_plan_that_is_not_kept():
    (finding,), _ = plan("shorter")
    assert "4 of 6 steps" in finding
