"""The guard on real ranks: healthy trainings keep their bits and raise nothing, faults are found
where they are, and nobody waits for a rank that is gone."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import guard_program
import pytest
import torch

import tocsin
from tocsin import _core
from tocsin.guard import digests

PROGRAM = Path(guard_program.__file__)


def start(ranks, folder, names):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(ranks), str(folder), *names],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        start_new_session=True,
    )  # fmt: skip


def trained(ranks, folder, names):
    """What every rank saw, by name of the training."""
    process = start(ranks, folder, names)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    seen = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert [each["name"] for each in seen] == list(names), err
    return {each["name"]: each["ranks"] for each in seen}


HEALTHY = ("plain clipped accumulated accumulated_in_place unused batch_norm autocast bfloat16 "
           "static_graph sparse scaled user_hook several_optimizers divided").split()  # fmt: skip
FAULTY = ("weight_fault state_fault begins_unlike nan_in_a_gradient nan_beside_a_hook "
          "scaler_skips continues").split()  # fmt: skip


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    return trained(3, tmp_path_factory.mktemp("three"), HEALTHY + FAULTY)


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    names = ["hybrid_sharded", "sharded", "tensor_parallel", "hybrid_fault"]
    return trained(4, tmp_path_factory.mktemp("four"), names)


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_training_keeps_its_bits(three, name):
    for rank in three[name]:
        assert rank["findings"] == []
        assert rank.get("same", True)


def test_gradients_are_seen_in_buckets_where_the_bits_allow_it(three):
    place = {name: three[name][0].get("place") for name in HEALTHY}
    assert place["plain"] == place["accumulated"] == place["unused"] == "bucket"
    assert place["accumulated_in_place"] == place["user_hook"] == "parameter"


def test_weights_and_state_of_all_replicas_are_compared(three):
    rank = three["plain"][0]
    assert rank["replicas"] == 3 and rank["uncovered"] == []
    elements = sum(parameter.numel() for parameter in guard_program.Net().parameters())
    trainable = 7 - 1
    assert rank["bytes"] == 4 * (3 * elements - 2) + 4 * trainable  # two moments, and steps
    assert "inner.weight#momentum_buffer" in three["several_optimizers"][0]["names"]


@pytest.mark.parametrize("name", ["hybrid_sharded", "sharded", "tensor_parallel"])
def test_sharded_trainings_keep_their_bits(four, name):
    for rank in four[name]:
        assert rank["same"] and rank["findings"] == []


def test_what_has_no_copy_is_said(four):
    assert four["hybrid_sharded"][0]["replicas"] == 2
    assert four["hybrid_sharded"][0]["uncovered"] == []
    assert "outer.weight" in four["sharded"][0]["uncovered"]
    parallel = four["tensor_parallel"][0]
    assert "inner.weight" in parallel["uncovered"] and "outer.bias" not in parallel["uncovered"]


@pytest.mark.parametrize("name, rank, step, tensor, index", [
    ("weight_fault", 1, 2, "outer.weight", [0, 5]),
    ("state_fault", 2, 3, "inner.weight#exp_avg_sq", [2, 1]),
])  # fmt: skip
def test_one_of_three_replicas_is_named(three, name, rank, step, tensor, index):
    for seen in three[name]:
        finding = seen["finding"]
        assert (finding["check"], finding["ranks"], finding["step"]) == ("weights", [rank], step)
        assert finding["tensor"] == tensor and finding["suspect_window"] == [step, step]
        word = finding["evidence"]["first"][0]["word"]
        assert finding["index"] == index and word["set"] + word["cleared"] == 8
        assert len(finding["hosts"]) == len(finding["devices"]) == 1
        assert seen["code"] == 86


def test_two_replicas_tell_no_culprit(four):
    for seen in four["hybrid_fault"]:
        assert seen["finding"]["check"] == "weights" and seen["finding"]["ranks"] == []
        assert seen["finding"]["replicas"] == 2 and seen["code"] == 87


def test_replicas_that_begin_unlike_are_the_programs_doing(three):
    for seen in three["begins_unlike"]:
        assert seen["finding"]["cause"] == "software" and seen["finding"]["ranks"] == []


@pytest.mark.parametrize("name, bucket", [("nan_in_a_gradient", 0), ("nan_beside_a_hook", None)])
def test_a_nan_is_located_and_the_update_skipped_everywhere(three, name, bucket):
    for seen in three[name]:
        (finding,) = seen["findings"]
        assert finding["check"] == "gradient" and finding["step"] == 2
        assert finding["evidence"]["located"] == [1]
        assert finding["tensor"] == "outer.weight" and finding["index"] == [2, 3]
        assert finding["bucket"] == bucket and finding["action"] == "skip_update"
        assert seen["skipped"] == ["", "guard", "", ""] and seen["kept"] and seen["finite"]


def test_a_scaler_skips_its_own_steps(three):
    for seen in three["scaler_skips"]:
        assert seen["findings"] == [] and seen["skipped"] == ["", "scaler", "", ""]


def test_to_continue_is_never_silent(three):
    for seen in three["continues"]:
        assert [finding["step"] for finding in seen["findings"]] == [3, 4]
        assert {finding["action"] for finding in seen["findings"]} == {"continue"}


@pytest.mark.parametrize("name, timeout", [("killed", 20.0), ("hangs", 2.0)])
def test_nobody_waits_for_a_rank_that_is_gone(tmp_path, name, timeout):
    process = start(3, tmp_path, [name])
    left, alarms = None, []
    for line in process.stdout:
        if line.startswith("{"):
            said = json.loads(line)
            left = said.get("left", left)
            alarms += [said] if "code" in said else []
        if len(alarms) == 2:
            break
    os.killpg(process.pid, signal.SIGKILL)  # a rank may still sleep
    process.wait()
    assert len(alarms) == 2, process.stderr.read()
    for alarm in alarms:
        assert alarm["code"] == 87
        lines = (tmp_path / "ledger" / f"rank-{alarm['rank']}.jsonl").read_text().splitlines()
        finding = json.loads(lines[-1])
        assert finding["check"] == "peer" and finding["ranks"] == []
        assert alarm["at"] - left < timeout + 10


# ---- one process --------------------------------------------------------------------------------


def single(tmp_path, **options):
    model = guard_program.Net()
    optimizer = guard_program.make_optimizer(model)
    return model, optimizer, tocsin.Guard(model, optimizer, folder=str(tmp_path), **options)


def test_one_rank_watches_its_gradients(tmp_path, capsys):
    model, optimizer, guard = single(tmp_path, on_alarm="skip_update")
    guard.step(guard_program.loss_of(model, guard_program.batch(1, 0)))
    optimizer.zero_grad()
    guard.backward(guard_program.loss_of(model, guard_program.batch(2, 0)))
    model.outer.weight.grad[1, 4] = float("inf")
    before = model.outer.weight.detach().clone()
    outcome = guard.step()
    assert outcome.skipped_by == "guard" and torch.equal(before, model.outer.weight)
    (finding,) = outcome.findings
    assert finding["tensor"] == "outer.weight" and finding["index"] == [1, 4]
    assert "tocsin: guard: " in capsys.readouterr().err
    assert json.loads((tmp_path / "rank-0.jsonl").read_text().splitlines()[-1]) == finding


def test_an_alarm_ends_a_script_that_catches_exceptions(tmp_path):
    model, _, guard = single(tmp_path)
    with pytest.raises(tocsin.GuardAlarm) as raised:
        try:
            guard.step(guard_program.loss_of(model, guard_program.batch(1, 0)) * float("nan"))
        except Exception:
            pytest.fail("caught as an Exception")
    assert raised.value.code == 87 and isinstance(raised.value, SystemExit)


@pytest.mark.parametrize("options", [
    {"on_alarm": "hope"}, {"gate": "open"}, {"audit_every": 0}, {"weights_every": 0},
])  # fmt: skip
def test_bad_options_are_refused(tmp_path, options):
    with pytest.raises(ValueError):
        single(tmp_path, **options)


def test_the_guard_costs_nothing_until_it_is_asked_for():
    script = "import sys, tocsin; print(any('guard' in m or m == 'torch' for m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


# ---- digests of many tensors --------------------------------------------------------------------


def row(data, at=0):
    return data[at * digests.BYTES : (at + 1) * digests.BYTES]


def test_digests_depend_on_words_alone():
    base = torch.arange(60, dtype=torch.float32).view(3, 4, 5)
    views = [base, base.transpose(0, 2).contiguous().transpose(0, 2), base.clone().requires_grad_(),
             torch.nn.Parameter(base), base.view(torch.int32), base.to("meta")[:0]]  # fmt: skip
    found = digests.digest(views[:-1])
    assert len({row(found, i) for i in range(5)}) == 1
    other = base.clone()
    other.view(torch.int32)[2, 1, 3] ^= 1
    assert digests.digest([other]) != row(found)


def test_tensors_are_digested_whatever_device_is_the_default():
    script = ("import torch; from tocsin.guard import digests; one = torch.arange(6.0)\n"
              "torch.set_default_device('meta'); print(digests.digest([one]).hex())")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == digests.digest([torch.arange(6.0)]).hex(), done.stderr


def test_many_tensors_of_all_kinds_in_one_call():
    kinds = [torch.zeros((), dtype=torch.float64), torch.zeros(0, 3), torch.ones(5).bool(),
             torch.ones(2, 2, dtype=torch.complex64).conj(), torch.eye(3).to_sparse(),
             torch.ones(3, 1).expand(3, 4), torch.ones(4, dtype=torch.bfloat16)]  # fmt: skip
    tensors = kinds * 40
    found = digests.digest(tensors)
    assert len(found) == len(tensors) * digests.BYTES
    assert all(row(found, i) == row(found, i % len(kinds)) for i in range(len(tensors)))


def test_what_cannot_be_read_is_an_error():
    digests.digest([torch.zeros(1)])
    with pytest.raises(ValueError, match="tensor 1 cannot be read"):
        _core.digest_tensors([torch.zeros(2), torch.zeros(2, device="meta")])
    with pytest.raises(TypeError, match="tensor 0 is a int"):
        _core.digest_tensors([3])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_the_first_bad_element_is_found(dtype):
    generator = torch.Generator().manual_seed(5)
    for _ in range(20):
        shape = [int(n) for n in torch.randint(1, 9, (3,), generator=generator)]
        tensor = torch.randn(shape, generator=generator).to(dtype)
        flat = [int(n) for n in torch.randint(0, tensor.numel(), (3,), generator=generator)]
        for place, value in zip(flat, ("nan", "inf", "-inf")):
            tensor.view(-1)[place] = float(value)
        whole = tensor.transpose(0, 2).contiguous().transpose(0, 2)
        bad = ~tensor.isfinite().view(-1)
        _, squares, found = digests.read([tensor[:0], whole],
                                         lambda plain: _core.scan_gradients(plain, 4))  # fmt: skip
        ((number, nan, inf, large, first),) = found
        assert (number, nan, inf, large) == (1, int(tensor.isnan().sum()),
                                             int(tensor.isinf().sum()), 0)  # fmt: skip
        assert first == int(bad.nonzero()[0])
        expected = float(tensor.double().view(-1)[~bad].square().sum())
        assert squares == pytest.approx(expected)


def test_elements_that_ranks_cannot_add_up_are_counted():
    tensor = torch.zeros(50, dtype=torch.float16)
    tensor[3], tensor[40] = 20000, -30000
    digests.digest([tensor])
    assert _core.scan_gradients([tensor], 2)[2] == []
    assert _core.scan_gradients([tensor], 4)[2] == [(0, 0, 0, 2, -1)]
    assert _core.scan_gradients([torch.full((300,), 6e4, dtype=torch.float16)], 2)[2][0][3] == 64
