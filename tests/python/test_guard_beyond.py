"""Collectives, saved and recomputed activations and weights between steps under guard, on real gloo
ranks: nothing is found where nothing is wrong and no bit changes; a wrong bit is found where it is.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
COLLECTIVES = "healthy faults everywhere in_ddp from_anyone stops".split()


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """{program: what each of three ranks saw}, and what they said."""
    folder = tmp_path_factory.mktemp("beyond")
    command = [sys.executable, "-W", "ignore", HERE / "beyond_program.py", "3", folder]
    done = subprocess.run(
        [*map(str, command), *COLLECTIVES], capture_output=True, text=True, timeout=200,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["name"]: line["ranks"] for line in lines}, done.stderr


def test_healthy_collectives(seen):
    for rank, result in enumerate(seen[0]["healthy"]):
        assert result["same"] and result["findings"] == []
        assert (result["uncovered"], result["left"]) == (0, 0)
        assert result["verified"] == 3 * (16 if rank == 2 else 17)  # a message from 0 to 1
        assert result["restored"]


NAMED = {
    "all_gather": 1, "all_gather_single": 1, "broadcast": 2, "all_reduce": 1, "all_reduce_later": 1,
    "all_reduce_future": 1, "all_reduce_maximum": 1,
}  # fmt: skip
ENDS = {
    "all_to_all": (2, 1), "gather": (2, 1), "scatter": (0, 1), "message": (0, 1),
    "messages_around": (1, 2),
}  # fmt: skip


def test_a_wrong_bit_in_each_collective(seen):
    """All ranks find the same; one that alone differs from others alike is named, two ends of a
    transfer are not."""
    ranks = seen[0]["faults"]
    assert ranks[0] == ranks[1] == ranks[2]
    for kind, findings in ranks[0].items():
        (finding,) = findings
        assert finding["check"] == "collective"
        named = [NAMED[kind]] if kind in NAMED else []
        assert (finding["ranks"], finding["cause"]) == (
            named, "transient" if named else "unattributable")  # fmt: skip
        if kind in ENDS:
            (transfer,) = finding["evidence"]["transfers"]
            assert (transfer["from"], transfer["to"], transfer["element"]) == (*ENDS[kind], 0)
        if kind.startswith("reduce_scatter"):
            assert finding["evidence"]["wrong"] == 1
            assert finding["index"] == [40 if kind == "reduce_scatter" else 0]


def test_all_ranks_hold_the_same_wrong_sum(seen):
    for ranks, text in seen[0]["everywhere"][0]:
        assert ranks == [] and "element 0 is" in text


def test_buckets_of_ddp_and_groups(seen):
    for rank, result in enumerate(seen[0]["in_ddp"]):
        assert result["verified"] == (6 if rank < 2 else 3)
        assert result["findings"][0] == ["collective", [1]]


def test_unknown_senders(seen):
    results, errors = seen
    assert [each["findings"] for each in results["from_anyone"]] == [[], [], []]
    assert all(each["uncovered"] for each in results["from_anyone"])
    assert "recv_anysource is not verified" in errors


def test_exit_code(seen):
    assert seen[0]["stops"] == [86, 86, 86]
