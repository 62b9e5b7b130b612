"""What was loaded is what is trained on: the library's rules about loading, in real trainings."""

from concurrent.futures import ThreadPoolExecutor

import loading_programs
import pytest
from test_library import watch

HEALTHY = loading_programs.HEALTHY
BUGGY = {  # the first finding: step, entity, and what is seen
    "drawn_again": (4, "0.weight", "was loaded, then initialised anew before its first update"),
    "other_order": (4, "first.weight#exp_avg", "is what was saved for another parameter"),
    "narrowed": (4, "0.weight#mean", "its dtype is narrower than in the checkpoint"),
}


@pytest.fixture(scope="module")
def reports():
    names = [*HEALTHY, *BUGGY]
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(names, pool.map(lambda n: watch(n, [loading_programs]), names)))


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy(reports, name):
    assert [finding["rendered"] for finding in reports[name]["findings"]] == []
    assert reports[name]["holds"] > 0


@pytest.mark.parametrize("name", BUGGY)
def test_buggy(reports, name):
    step, entity, seen = BUGGY[name]
    assert reports[name]["findings"], "nothing was found"
    first = reports[name]["findings"][0]
    assert first["step"] == step
    assert entity in first["rendered"] and seen in first["rendered"]
