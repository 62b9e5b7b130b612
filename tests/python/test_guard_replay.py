"""Check 2 on real ranks: a healthy training keeps its bits and raises nothing whatever its losses
depend on; a rank that computes wrongly is named, and no other one."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import guard_replay_program
import numpy
import pytest
import torch

from tocsin import determinism
from tocsin.guard import replay_check, replay_session, replay_work

PROGRAM = Path(guard_replay_program.__file__)

HEALTHY = ("dropout deterministic recomputed accumulated accumulated_deterministic "
           "accumulated_with_messages autocast_inside autocast_outside scaled in_buckets "
           "batch_norm batch_norm_of_each_rank spectral_norm spectral_norm_of_each_rank "
           "counting compiled remembering adversaries dropped").split()  # fmt: skip
NOT_REPLAYED = {"with_messages": "calls other ranks (allreduce)",
                "written": "weights were written to since a forward pass began",
                "reentrant": "use_reentrant=True"}  # fmt: skip
UNUSUAL = ["not_wrapped", "one_backward", "compiled_for_shapes", *NOT_REPLAYED,
           "with_messages_not_finite"]  # fmt: skip
FAULTS = ("persistent two_hosts transient transient_of_the_replayer backward_persistent "
          "gradient_once does_not_repeat not_finite_by_data "
          "not_finite_by_a_device").split()  # fmt: skip
BATCHES = "wrong_batch wrong_batch_elsewhere no_batch".split()
REST = "before_a_save nothing_yet obstacles".split()


def run(ranks, folder, names):
    return subprocess.run(
        [sys.executable, str(PROGRAM), str(ranks), str(folder), *names], capture_output=True,
        text=True, timeout=240, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def trained(ranks, folder, names):
    """What the ranks saw, by name of the training."""
    done = run(ranks, folder, names)
    assert done.returncode == 0, done.stderr
    seen = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [each["name"] for each in seen] == list(names), done.stderr
    return {each["name"]: each["ranks"] for each in seen}


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    return trained(3, tmp_path_factory.mktemp("three"), HEALTHY + UNUSUAL)


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    return trained(4, tmp_path_factory.mktemp("four"), FAULTS + BATCHES + REST)


def one(ranks):
    """What all ranks found alike, but for the time."""
    findings = [rank["finding"] for rank in ranks]
    for finding in findings:
        del finding["time"]
    assert all(finding == findings[0] for finding in findings)
    return findings[0]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_training_keeps_its_bits(three, name):
    for rank in three[name]:
        assert rank == {"same": True, "findings": [], "saved": [], "passed": 4, "limits": []}


def test_without_a_wrapper_and_with_a_look_at_other_data(three):
    for rank in three["not_wrapped"]:
        assert rank == {"findings": [], "passed": 3, "limits": []}


def test_losses_that_share_a_backward_pass_are_compared_alone(three):
    for rank in three["one_backward"]:
        assert rank["findings"] == [] and rank["passed"] == 2
        assert ["several share one backward pass" in limit for limit in rank["limits"]] == [True]


def test_nothing_is_compared_where_each_rank_may_have_other_kernels(three):
    for rank in three["compiled_for_shapes"]:
        assert rank["findings"] == [] and rank["passed"] == -1 and rank["saved"] is None
        assert ["vary in shape" in limit for limit in rank["limits"]] == [True]


@pytest.mark.parametrize("name", NOT_REPLAYED)
def test_what_no_rank_can_compute_alone_is_said_and_left(three, name):
    for rank in three[name]:
        assert rank["same"] and rank["findings"] == [] and rank["saved"] is None
        assert rank["passed"] == -1 and len(rank["limits"]) == 1
        assert NOT_REPLAYED[name] in rank["limits"][0]


def test_a_nan_is_a_finding_also_where_nothing_can_be_replayed(three):
    finding = one(three["with_messages_not_finite"])
    assert (finding["check"], finding["step"], finding["ranks"]) == ("gradient", 1, [])


@pytest.mark.parametrize(
    "name, rank, step, cause",
    [
        ("persistent", 2, 4, "persistent"),
        ("transient", 1, 4, "transient"),
        ("transient_of_the_replayer", 0, 2, "transient"),
    ],
)
def test_who_computed_another_loss_is_named(four, name, rank, step, cause):
    ranks = four[name]
    finding = one(ranks)
    assert (finding["check"], finding["ranks"], finding["step"]) == ("replay", [rank], step)
    assert finding["cause"] == cause and ranks[0]["code"] == 86
    assert "loss of rank" in finding["text"] and finding["evidence"]["compared"] == "loss"


def test_a_rank_of_the_other_host_replays(four):
    finding = one(four["two_hosts"])
    assert (finding["ranks"], finding["hosts"]) == ([2], ["node1"])
    first = [(run["owner"], run["executor"]) for run in finding["evidence"]["told"][4:8]]
    assert sorted(first) == [(0, 2), (1, 3), (2, 0), (3, 1)]


def test_the_window_begins_after_the_last_replay_that_passed(four):
    assert four["persistent"][0]["finding"]["suspect_window"] == [3, 4]


@pytest.mark.parametrize(
    "name, rank, cause, tensor",
    [
        ("backward_persistent", 3, "persistent", "blocks.0.outer.weight"),
        ("gradient_once", 1, "transient", "tokens.weight"),
    ],
)
def test_a_gradient_is_compared_where_the_losses_are_equal(four, name, rank, cause, tensor):
    finding = one(four[name])
    assert (finding["ranks"], finding["cause"], finding["tensor"]) == ([rank], cause, tensor)
    assert "equal losses" in finding["text"]
    for each in four[name]:
        assert each["modes"] == [False, True]  # as before the step that was audited


def test_what_does_not_repeat_names_nobody(four):
    finding = one(four["does_not_repeat"])
    assert (finding["ranks"], finding["cause"]) == ([], "nondeterministic")
    assert four["does_not_repeat"][0]["code"] == 87


def test_a_replay_tells_data_from_a_device(four):
    by_data, by_device = one(four["not_finite_by_data"]), one(four["not_finite_by_a_device"])
    assert (by_data["check"], by_data["cause"], by_data["ranks"]) == ("gradient", "data", [])
    assert (by_device["check"], by_device["step"]) == ("gradient", 1)
    assert (by_device["cause"], by_device["ranks"]) == ("persistent", [1])


@pytest.mark.parametrize(
    "name, step, cause, words",
    [
        ("wrong_batch", 4, "data", "gives rank 1 another batch of step 4"),
        ("wrong_batch_elsewhere", 2, "data", "gives rank 0 another batch of step 2 of rank 1"),
        ("no_batch", 2, "software", "FileNotFoundError: gone"),
    ],
)
def test_a_batch_that_is_not_rebuilt_names_nobody(four, name, step, cause, words):
    finding = one(four[name])
    assert (finding["step"], finding["cause"], finding["ranks"]) == (step, cause, [])
    assert words in finding["text"] and four[name][0]["code"] == 87


def test_a_replay_before_a_save_finds_what_began_since(four):
    for rank in four["before_a_save"]:
        assert rank["replay"] == []
        (finding,) = rank["found"]
        assert (finding["ranks"], finding["cause"], finding["step"]) == ([2], "persistent", 3)


def test_nothing_to_replay_is_no_pass(four):
    for rank in four["nothing_yet"]:
        assert rank == {"saved": None, "coverage": "attributes"}


def test_what_cannot_be_replayed_is_said(four):
    for synchronised, outside, in_place, offset in four["obstacles"]:
        assert synchronised[0] == outside[0] == in_place[0] == "none"
        assert "SyncBatchNorm" in synchronised[1][0] and "compile" in outside[1][0]
        assert "compile" in in_place[1][0] and offset.startswith("peer_offset is 4")


def test_two_ranks_detect_and_name_nobody(tmp_path):
    for rank in trained(2, tmp_path, ["two_ranks"])["two_ranks"]:
        assert rank["healthy"]["same"] and rank["healthy"]["findings"] == []
        assert "names nobody" in rank["healthy"]["limits"][0]
        assert rank["finding"]["ranks"] == [] and rank["code"] == 87
        assert rank["finding"]["cause"] == "unattributable"


def test_neighbours_are_both_named(tmp_path):
    finding = one(trained(5, tmp_path, ["neighbours"])["neighbours"])
    assert (finding["ranks"], finding["cause"]) == ([1, 2], "persistent")


def test_a_rank_that_dies_in_a_replay_is_missed(tmp_path):
    done = run(3, tmp_path, ["killed"])
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert sorted(each["rank"] for each in said) == [0, 1] and done.returncode == 87, done.stderr
    for each in said:
        finding = each["finding"]
        assert (finding["check"], finding["ranks"], finding["step"]) == ("peer", [], 2)
        assert each["modes"] == [False, True]
        (ledger,) = tmp_path.glob(f"*/rank-{each['rank']}.jsonl")
        assert json.loads(ledger.read_text().splitlines()[-1]) == finding


def test_generators_travel_as_text():
    random.gauss(0, 1)  # one more is kept for the next call
    numpy.random.randn()
    device = torch.device("cpu")
    states = replay_work.generator_states(device)
    text = json.dumps(replay_work.states_as_json(states))

    def draws():
        return [random.gauss(0, 1), random.random(), numpy.random.randn(), numpy.random.rand(),
                torch.randn(3).tolist()]  # fmt: skip

    expected = draws()
    assert len(text) < 16000 and draws() != expected
    replay_work.set_generator_states(replay_work.states_from_json(json.loads(text)), device)
    assert draws() == expected


def test_a_batch_is_all_that_it_holds():
    digest = replay_work.batch_digest
    x = torch.arange(6.0)
    batch = {"x": x, "rest": (numpy.arange(3), "a", 1)}
    assert digest(batch) == digest({"x": x.clone(), "rest": (numpy.arange(3), "a", 1)})
    others = [
        {"y": x, "rest": batch["rest"]}, {"x": x.reshape(2, 3), "rest": batch["rest"]},
        {"x": x.double(), "rest": batch["rest"]}, {"x": x.flip(0), "rest": batch["rest"]},
        {"x": x, "rest": (numpy.arange(1, 4), "a", 1)}, {"x": x, "rest": (numpy.arange(3), "b", 1)},
        {"x": x, "rest": (numpy.arange(3), "a", 2)}, [x], None,
    ]  # fmt: skip
    assert len({digest(each) for each in [batch, *others]}) == 1 + len(others)


def test_who_wants_the_number_of_the_micro_batch():
    wanted = [lambda step, rank, micro: 0, lambda step, rank, micro_batch=0: 0, lambda *args: 0]
    own = [lambda step, rank: 0, lambda step, rank, data=(): 0, lambda step, rank, *, micro=0: 0]
    assert all(map(replay_check._takes_micro, wanted))
    assert not any(map(replay_check._takes_micro, own))


def test_nobody_waits_for_two_runs_of_another():
    requests = [(0, 0, 1), (0, 0, 2), (0, 2, 0), (1, 2, 0), (3, 1, 0)]
    waves = replay_session._waves(requests)
    assert waves == [[(0, 0, 1), (0, 2, 0), (3, 1, 0)], [(0, 0, 2), (1, 2, 0)]]


def test_algorithms_are_chosen_for_a_while():
    def modes():
        return (torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.deterministic,
                torch.backends.cuda.flash_sdp_enabled(),
                torch.backends.cuda.mem_efficient_sdp_enabled())  # fmt: skip

    before = modes()
    with pytest.raises(KeyError), determinism.algorithms():
        assert modes() == (True, True, False, False)
        raise KeyError
    assert modes() == before
