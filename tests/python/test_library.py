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
import pytest

PROGRAMS = Path(library_programs.__file__)
HEALTHY = library_programs.HEALTHY
BUGGY = {  # the first finding: step, entity, and what is seen
    "stale_optimizer": (1, "0.weight", "held by no optimizer"),
    "layer_without_optimizer": (1, "5.weight", "held by no optimizer"),
    "unused_parameters": (1, "optimizer0.group0.param0", "not part of any model that runs"),
    "gradient_kept": (2, "0.weight", "gradient not cleared since the previous step"),
    "cleared_before_the_step": (1, "", "no parameter has a gradient"),
    "nothing_trainable": (1, "", "held by no optimizer"),
    "scheduler_each_micro_batch": (2, "", "optimizer.step was not called since the previous call"),
    "not_driven": (1, "4.weight", "data did not change"),
    "frozen_too_late": (4, "0.weight", "data changed although frozen"),
    "not_finite": (4, "0.weight", "elements of the gradient are NaN or Inf"),
    "dropout_in_evaluation": (2, "torch.nn.functional.dropout", "arg.training is True, not False"),
}


def watch(name):
    """The report of `tocsin run` on a program, checked against the library alone."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [os.environ["TOCSIN"], "run", "-q", "--format", "json", "-r", report]
        command += ["-o", Path(folder) / "run", "--", sys.executable, PROGRAMS, name]
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
