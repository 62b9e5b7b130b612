"""Wrong parallel plans, each made against one rule of `tocsin verify`: none may be PROVED.

tests/golden/plan-attacks/NAME.{logical,parallel}.plan. Numbers show that each is wrong, but for
those that declare too little or that numbers cannot run.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench/plans"), str(ROOT / "tests/ref")]

import plan_run  # noqa: E402
from plan_objects import read_plan  # noqa: E402

FOLDER = Path(__file__).parent.parent / "golden" / "plan-attacks"
NAMES = sorted(path.name.removesuffix(".logical.plan") for path in FOLDER.glob("*.logical.plan"))
NO_NUMBERS = {  # what is wrong with them, though no number that they declare is
    "asynchronous-result-read-early": "numbers arrive at once",
    "gradient-half-covered": "nobody declares the other half",
    "gradient-replica-half-covered": "nobody declares the other half",
    "microbatch-half-covered": "nobody declares the other half",
    "logical-output-is-a-slice": "the logical plan declares a half only",
    "logical-microbatches-of-one-value": "the numbers of the first micro-batch are the model's",
    "masked-embedding-of-a-slice": "the right rows have numbers behind the table's",
    "names-with-a-zero-byte": "other names of inputs",
    "one-replica-declares-nothing": "the numbers of single replicas are not read",
    "one-replica-does-otherwise": "the numbers of single replicas are not read",
    "output-of-a-pending-gather": "numbers arrive at once",
    "result-of-an-async-gather-through-a-view": "numbers arrive at once",
    "user-operator-named-as-a-reduction": "named as a reduction is inside of the prover",
    "user-operator-named-matmul": "nobody knows what the user's operator does",
    "user-operators-of-colliding-names": "nobody knows what the user's operators do",
}
OPERATORS = {
    "clamp": lambda x, a: [np.clip(x[0], a["min"], a["max"])],
    "g": lambda x, a: [x[0] * len(a)],
    "h": lambda x, a: [x[0] - x[0].mean(axis=-1, keepdims=True)],
    "triangle": lambda x, a: [np.tril(x[0])],
    "userlength": lambda x, a: [np.sqrt((x[0] ** 2).sum(axis=-1))],
    "usermask": lambda x, a: [x[0] > 0],
    "usernoise": lambda x, a: [x[0] * a["seed"]],
    "userpair": lambda x, a: [2 * x[0], 3 * x[0]],
}


def paths(name):
    return FOLDER / f"{name}.logical.plan", FOLDER / f"{name}.parallel.plan"


def inputs_of(plan):
    """Integers far apart as well as near, half of them what the plans single out."""
    inputs = plan_run.random_inputs(plan)
    for item in plan.roles[0].inputs:
        if item.value.dtype.startswith("int") and "embedding" not in op_names(plan):
            inputs[item.name] = np.resize([7, -100, 0, 3], item.value.shape)
    return inputs


def op_names(plan):
    return {op.name for ops in plan.roles[0].segments.values() for op in ops}


@pytest.mark.parametrize("name", NAMES)
def test_numbers_differ(name, monkeypatch):
    if name in NO_NUMBERS:
        return
    for operator, function in OPERATORS.items():
        monkeypatch.setitem(plan_run.OPERATORS, operator, function)
    logical, parallel = (read_plan(path) for path in paths(name))
    with np.errstate(all="ignore"):
        try:
            assert plan_run.compare(logical, parallel, inputs_of(logical))
        except plan_run.PlanFailure:
            pass  # it cannot even run


@pytest.mark.parametrize("enumerate_all", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_attack_is_not_proved(name, enumerate_all):
    command = [os.environ["TOCSIN"], "verify", *paths(name), "--format", "json"]
    done = subprocess.run(command + ["--enumerate"] * enumerate_all, capture_output=True, text=True)
    assert done.returncode in (1, 2, 3), done.stderr
    assert done.returncode == 2 or not json.loads(done.stdout)["verdict"].startswith("PROVED")


def test_there_are_attacks():
    assert len(NAMES) >= 110
    assert set(NO_NUMBERS) <= set(NAMES)
