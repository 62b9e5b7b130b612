"""The shipped library on what parameters, modules and attributes go through: four rules find the
mistake that breaks them, and are silent on what is near to it and healthy."""

from concurrent.futures import ThreadPoolExecutor

import life_programs
import pytest
from test_library import watch

HEALTHY = ["renewed", "decay_groups", "attributes_change", "unlike_siblings", "own_train"]
BUGGY = {  # the first finding: step, entity, and what is seen
    "unfrozen_by_wrapping": (4, "0.weight and 0.bias", "requires_grad was not handed on"),
    "none_is_spared": (1, "0.norm.weight", "has weight decay, and the group without"),
    "attribute_overwritten": (3, "2.index", "the attribute was overwritten"),
    "one_left_out": (1, "2.gate", "its initialisation was skipped"),
}


@pytest.fixture(scope="module")
def reports():
    names = [*HEALTHY, *BUGGY]
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(names, pool.map(lambda n: watch(n, [life_programs]), names)))


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy(reports, name):
    assert [finding["rendered"] for finding in reports[name]["findings"]] == []


@pytest.mark.parametrize("name", BUGGY)
def test_buggy(reports, name):
    step, entity, seen = BUGGY[name]
    (finding,) = reports[name]["findings"]
    assert finding["step"] == step
    assert entity in finding["rendered"] and seen in finding["rendered"]
