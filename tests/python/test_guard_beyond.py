"""Collectives, saved and recomputed activations and weights between steps under guard, on real gloo
ranks: nothing is found where nothing is wrong and no bit changes; a wrong bit is found where it is.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tocsin.guard import collective_calls

HERE = Path(__file__).resolve().parent
COLLECTIVES = ("healthy faults everywhere in_ddp from_anyone stops healthy_whole given_fault "
               "given_before_a_save").split()  # fmt: skip
ACTIVATIONS = ("healthy_activations healthy_shards healthy_shards_in_bfloat16 saved_fault "
               "recompute_fault recompute_fault_unrepeatable written_in_place").split()  # fmt: skip
WEIGHTS = "memory_fault memory_stops written_by_the_program".split()


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """{program: what each of three ranks saw}, and what they said."""
    folder = tmp_path_factory.mktemp("beyond")
    command = [sys.executable, "-W", "ignore", HERE / "beyond_program.py", "3", folder]
    done = subprocess.run(
        [*map(str, command), *COLLECTIVES, *ACTIVATIONS, *WEIGHTS],
        capture_output=True, text=True, timeout=900,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["name"]: line["ranks"] for line in lines}, done.stderr


def test_healthy_collectives(seen):
    for rank, result in enumerate(seen[0]["healthy"]):
        assert result["same"] and result["findings"] == []
        assert (result["uncovered"], result["left"]) == (0, 0)
        assert result["verified"] == 3 * (17 if rank == 2 else 18)  # a message from 0 to 1
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
        if kind.startswith("reduce"):
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


@pytest.mark.parametrize("tensor", [torch.eye(3).to_sparse(), torch.eye(3)[:, :2]])
def test_what_lies_in_pieces_is_not_covered_and_said_so_in_few_words(tensor):
    with pytest.raises(collective_calls.Uncovered, match="^a tensor that is sparse, or strided$"):
        collective_calls._flat(tensor)


def test_healthy_sums_as_a_whole(seen):
    """In steps 2 and 4, in the order of gloo's ring, which is kept: all but the three of the last
    step that are too long for many pieces, and in both groups. What one rank does not keep is
    verified in a slice, and does not count as whole."""
    for rank, result in enumerate(seen[0]["healthy_whole"]):
        groups = 1 if rank == 2 else 2
        assert result["whole"] == [19 * groups, 4] * 2
        assert result["verified"] == 41 * groups + 1
        assert result["findings"] == [] and (result["uncovered"], result["held"]) == (0, 0)
        assert result["rings"] == [2] * groups
    assert "a step adds up more than" in seen[1]


def test_a_wrong_term_where_no_slice_is(seen):
    """An audited step finds it, and so does a save that wants an audit."""
    for rank in seen[0]["given_fault"]:
        assert rank["index"] == [[rank["element"]]] and rank["window"] == [[3, 4]]
        assert [(each["check"], each["ranks"], each["step"]) for each in rank["findings"]] == [
            ("collective", [], 4)
        ]
    for rank, result in enumerate(seen[0]["given_before_a_save"]):
        healthy, faulty = result["seen"]
        assert healthy == ["verified", rank == 0, 1, True, []]
        assert faulty[:4] == ["quarantined", False, 0, True]
        assert faulty[4][0] == ["collective", [result["element"]], 2]


def test_exit_code(seen):
    assert seen[0]["stops"] == [86, 86, 86]


# ---- activations and weights --------------------------------------------------------------------


def test_healthy_activations(seen):
    """What is compared, in four steps of a model of three blocks, and that nothing differs."""
    for rank in seen[0]["healthy_activations"]:
        for name, result in rank.items():
            assert result["same"] and result["findings"] == [], name
            assert result["saved"] >= 12 and result["memory"] >= 156, name
            random = name == "other_random"
            assert bool(result["uncompared"]) == random, name
            recomputed = name not in ("plain", "statistics", "compiled") and not random
            assert (result["recomputed"] >= 48) == recomputed, name
    assert "other random numbers" in seen[1]


@pytest.mark.parametrize("name", ["healthy_shards", "healthy_shards_in_bfloat16"])
def test_healthy_shards(seen, name):
    for rank in seen[0][name]:
        assert rank["same"] and rank["findings"] == []
        assert rank["verified"] >= 18 and rank["memory"] == 108


def findings(seen, name):
    ranks = seen[0][name]
    assert ranks[0] == ranks[1] == ranks[2]
    return ranks[0]


def test_a_saved_activation_that_changed(seen):
    assert findings(seen, "saved_fault") == [
        {"check": "saved", "cause": "transient", "ranks": [1], "step": 3,
         "tensor": "blocks.1.1: float32[8, 6]"}
    ]  # fmt: skip


def test_a_recomputed_activation_that_differs(seen):
    expected = {"check": "recompute", "cause": "transient", "ranks": [2], "tensor": "blocks.2.1",
                "step": 3}  # fmt: skip
    assert findings(seen, "recompute_fault") == [expected]
    assert findings(seen, "recompute_fault_unrepeatable") == [
        {**expected, "cause": "nondeterministic", "ranks": []}
    ]


def test_torch_still_refuses_what_was_written_in_place(seen):
    assert seen[0]["written_in_place"] == [True, True, True]


def test_a_weight_that_changed_between_steps(seen):
    """Once; the votes then see the replica that went its own way. No skipped update mends it."""
    first, *later = findings(seen, "memory_fault")
    assert first == {"check": "memory", "cause": "transient", "ranks": [1], "step": 3,
                     "tensor": "blocks.1.3.weight"}  # fmt: skip
    assert {(each["check"], *each["ranks"]) for each in later} == {("weights", 1)}
    assert seen[0]["memory_stops"] == [86, 86, 86]


def test_weights_that_the_program_changes(seen):
    """Counted by torch, announced, or at another place: no finding. Else the program is blamed, as
    all ranks do it."""
    assert findings(seen, "written_by_the_program") == [
        {"check": "memory", "cause": "software", "ranks": [], "step": 5,
         "tensor": "blocks.0.0.weight"}
    ]  # fmt: skip
