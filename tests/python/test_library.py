"""The shipped library, without a reference run: each rule finds a training that breaks it, and by
its own words; all rules are silent on healthy trainings that do things in unusual ways.
"""

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import library_programs
import order_programs
import pytest

PROGRAMS = (library_programs, order_programs)
HEALTHY = [name for programs in PROGRAMS for name in programs.HEALTHY]
BUGGY = {  # the first finding: step, entity, and what is seen
    "stale_optimizer": (1, "0.weight", "held by no optimizer"),
    "layer_without_optimizer": (1, "5.weight", "held by no optimizer"),
    "unused_parameters": (1, "optimizer0.group0.param0", "not part of any model that runs"),
    "gradient_kept": (2, "0.weight", "gradient not cleared since the previous step"),
    "cleared_before_the_step": (1, "", "no parameter has a gradient"),
    "nothing_trainable": (1, "", "held by no optimizer"),
    "twice_a_backward": (2, "", "applies the gradients of the update before it again"),
    "scheduler_each_micro_batch": (2, "", "optimizer.step was not called since the previous call"),
    "not_driven": (1, "4.weight", "data did not change"),
    "frozen_too_late": (4, "0.weight", "data changed although frozen"),
    "not_finite": (4, "0.weight", "elements of the gradient are NaN or Inf"),
    "left_in_eval_mode": (5, "", "the model is in evaluation mode"),
    "not_swapped_back": (5, "0.weight", "data changed between two updates, over an evaluation"),
    "untied": (4, "first.weight", "no longer shares its memory"),
    "below_resolution": (16, "weight", "did not move in 16 updates"),
    "saved_wrongly": (5, "0.weight", "saved data is not the live tensor's"),
    "stops_early": (8, "8 of 9 steps", "the number of steps is not the planned one"),
    "workers": (3, "loader0", "their workers draw alike"),
    "order_repeats": (9, "loader", "the same order of samples as in the epoch before"),
    "autocast_lost": (1, "torch.nn.functional.linear", "return.dtype is not 'bfloat16'"),
    "clipped_while_scaled": (2, "", "gradients were clipped while they were still scaled"),
    "scheduler_several_times": (2, "", "a scheduler was stepped several times between two updates"),
    "recomputed_otherwise": (1, "torch.utils.checkpoint.checkpoint", "preserve_rng_state is False"),
    "evaluated_untrained": (1, "0", "was evaluated before its first pass in training mode"),
    "dropout_in_evaluation": (2, "torch.nn.functional.dropout", "arg.training is True, not False"),
}


def watch(name, programs=PROGRAMS):
    """The report of `tocsin run` on a program, checked against the library alone."""
    program = next(module.__file__ for module in programs if hasattr(module, name))
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [os.environ["TOCSIN"], "run", "-q", "--format", "json", "-r", report]
        command += ["-o", Path(folder) / "run", "--", sys.executable, program, name]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        return json.loads(report.read_text())


@pytest.fixture(scope="module")
def reports():
    names = [*HEALTHY, *BUGGY]
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(names, pool.map(watch, names)))


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy(reports, name):
    report = reports[name]
    assert [finding["rendered"] for finding in report["findings"]] == []
    assert report["holds"] > 0


@pytest.mark.parametrize("name", BUGGY)
def test_buggy(reports, name):
    step, entity, seen = BUGGY[name]
    assert reports[name]["findings"], "nothing was found"
    first = reports[name]["findings"][0]
    assert first["step"] == step
    assert entity in first["rendered"] and seen in first["rendered"]
