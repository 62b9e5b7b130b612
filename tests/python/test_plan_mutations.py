"""Every mutation changes some output, or keeps the plan from running; no refactoring does.
"""

import copy

import pytest
from plan_mutations import mutations
from plan_refactorings import refactorings

import plan_run
from parallel_plan import Config, build_pair

PAIRS = {}


def healthy(config):
    """(logical, parallel, inputs) of a configuration, built once."""
    key = tuple(sorted(config.items()))
    if key not in PAIRS:
        logical, parallel = build_pair(Config(**config))
        PAIRS[key] = (logical, parallel, plan_run.random_inputs(logical, 1))
    return PAIRS[key]


def differs(logical, parallel, inputs):
    try:
        return bool(plan_run.compare(logical, parallel, inputs))
    except plan_run.PlanFailure:
        return True


@pytest.mark.parametrize("number", range(1, 16))
@pytest.mark.filterwarnings("ignore:invalid value")
def test_mutations_change_something(number):
    count = 0
    for mutation in mutations():
        if mutation.number != number:
            continue
        logical, parallel, inputs = healthy(mutation.config)
        edited = copy.deepcopy(parallel)
        mutation.edit(edited)
        assert differs(logical, edited, inputs) == mutation.numbers, str(mutation)
        names = mutation.names(parallel) if callable(mutation.names) else mutation.names
        known = {op.label for plan in (parallel, edited) for op in plan.ops()}
        assert names and names <= known, str(mutation)
        count += 1
    assert count >= 15


@pytest.mark.parametrize("change", list(refactorings()), ids=str)
def test_refactorings_change_nothing(change):
    logical, parallel, inputs = healthy(change.config)
    edited = copy.deepcopy(parallel)
    change.edit(edited)
    assert not differs(logical, edited, inputs)
