"""Faults in collectives, in checkpoints and in every call, and the command `tocsin inject`."""

import json
import os
import subprocess

import pytest
import torch
from recording import INJECT, Script

from tocsin import injected_calls, injection

COMMAND = os.environ["TOCSIN"]
RANKS = """
    import os, sys
    import torch.distributed as dist
    from gloo_end import leave
    from torch import nn

    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=3)
    tocsin_group = dist.new_group(group_desc="tocsin-guard")
    torch.manual_seed(1)
    model = nn.parallel.DistributedDataParallel(nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(1, 5):
        optimizer.zero_grad()
        model(torch.full((4, 3), rank + step + 0.3)).sum().backward()
        optimizer.step()
        print(step, "weights", [parameter.tolist() for parameter in model.parameters()])
        for group in (tocsin_group, None):
            seen = [torch.zeros(4) for _ in range(3)]
            dist.all_gather(seen, torch.arange(4.0) + rank, group=group)
            print(step, "spared" if group else "struck", torch.stack(seen).tolist())
    leave()
"""


def run_ranks(*faults):
    """What each of three ranks printed, {(step, what): numbers}, and the ground truth."""
    script = Script(RANKS)
    paths = [str(INJECT), os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")]
    environment = {**script.environment(), "PYTHONPATH": os.pathsep.join(paths)}
    truth = script.root / "truth"
    if faults:
        environment["TOCSIN_INJECT"] = ";".join(f"{fault} log={truth}" for fault in faults)
    running = [
        subprocess.Popen(script.command(str(script.root / "store")), text=True,
                         env={**environment, "RANK": str(rank)},
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for rank in range(3)
    ]  # fmt: skip
    outputs = [process.communicate(timeout=300) for process in running]
    assert all(process.returncode == 0 for process in running), outputs
    lines = truth.read_text().splitlines() if truth.exists() else []
    printed = [{tuple(line.split(None, 2)[:2]): line.split(None, 2)[2]
                for line in out.splitlines()} for out, _ in outputs]  # fmt: skip
    return printed, [json.loads(line) for line in lines]


def test_collectives():
    """What a rank contributes is averaged into all replicas; what it receives makes it another one
    than the others; a guard's own group is spared."""
    healthy, _ = run_ranks()
    printed, truths = run_ranks(
        "place=collective name=all_reduce step=2 rank=1 bit=25",
        "place=collective name=all_reduce step=3 rank=1 bit=25 late=1",
        "place=collective name=all_gather step=1 rank=2 pattern=stuck persistent=1 calls=all "
        "element=3 value=-1",
    )
    steps = {name: [truth["step"] for truth in truths if truth["fqn"] == name]
             for name in ("all_reduce", "all_gather")}  # fmt: skip
    # What comes after a step's update belongs to the next one.
    assert steps == {"all_reduce": [2, 3], "all_gather": [2, 3, 4, 5]}
    first, second, third = printed
    assert first["1", "weights"] == healthy[0]["1", "weights"]
    assert first["2", "weights"] == second["2", "weights"] == third["2", "weights"]
    assert first["2", "weights"] != healthy[0]["2", "weights"]
    assert first["4", "weights"] == third["4", "weights"] != second["4", "weights"]
    for step in ("1", "2", "3", "4"):
        assert printed[0][step, "spared"] == healthy[0][step, "spared"]
        wanted = healthy[0][step, "struck"].replace("5.0]]", "-1.0]]")
        assert {each[step, "struck"] for each in printed} == {wanted}


def test_every_call(tmp_path):
    """A module of a device that computes wrongly: also in a second forward pass of the step."""
    fault = injection.inject("activation", "0", step=2, calls="all", element=(0, 0), bit=30,
                             log=str(tmp_path / "log"))  # fmt: skip
    injection._steps.__init__()
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    for _ in range(3):
        for _ in range(2):
            model(torch.ones(2, 2)).sum().backward()
        optimizer.step()
    fault.close()
    assert [truth["step"] for truth in fault.done] == [2, 2]
    assert len({str(truth["elements"]) for truth in fault.done}) == 1


def test_a_gradient_of_each_backward_pass():
    """Accumulated or only asked for."""
    injection._steps.__init__()
    fault = injection.inject("gradient", "weight", step=1, calls="all", pattern="stuck", value=8)
    model = torch.nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    (gradient,) = torch.autograd.grad(model(torch.ones(1, 2)).sum(), [model.weight])
    fault.close()
    assert sorted(gradient.flatten().tolist()) == [1, 1, 1, 8]
    assert torch.equal(model.weight.grad, gradient) and len(fault.done) == 2


class Saving:
    """A model after one step, and what is saved of it with a fault."""

    def __init__(self, tmp_path, **options):
        injection._steps.__init__()
        model = torch.nn.Linear(64, 64)
        optimizer = torch.optim.AdamW(model.parameters())
        self.fault = injection.inject("checkpoint", step=1, log=str(tmp_path / "log"), **options)
        model(torch.ones(1, 64)).sum().backward()
        optimizer.step()
        self.state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    def differences(self, loaded):
        return [".".join(map(str, path)) for (path, a), (_, b)
                in zip(injection._tensors(self.state), injection._tensors(loaded), strict=True)
                if not torch.equal(a, b)]  # fmt: skip


def test_a_tensor_on_its_way_into_a_file(tmp_path):
    saving = Saving(tmp_path, name="exp_avg", pattern="sign")
    torch.save(saving.state, tmp_path / "first")
    torch.save(saving.state, tmp_path / "second")
    saving.fault.close()
    torch.save(saving.state, tmp_path / "third")
    (truth,) = saving.fault.done
    assert saving.differences(torch.load(tmp_path / "first")) == [truth["fqn"]]
    assert truth["fqn"].startswith("optimizer.state.") and truth["step"] == 1
    assert saving.differences(torch.load(tmp_path / "second")) == []
    assert saving.differences(torch.load(tmp_path / "third")) == []


def test_the_bytes_of_a_file(tmp_path):
    saving = Saving(tmp_path, late=True, pattern="stuck", value=255, element=(9000,))
    folders = [tmp_path / "faulty", tmp_path / "healthy"]
    for folder in folders:
        folder.mkdir()
        torch.save(saving.state, folder / "state")
        saving.fault.close()
    files = [(folder / "state").read_bytes() for folder in folders]
    changed = [at for at, (a, b) in enumerate(zip(*files, strict=True)) if a != b]
    assert changed == [9000] and saving.fault.done[0]["fqn"] == "state"


@pytest.mark.parametrize("late", [False, True])
def test_a_distributed_checkpoint(tmp_path, late):
    import torch.distributed.checkpoint as dcp

    saving = Saving(tmp_path, late=late, element=(4000,) if late else None, bit=3)
    dcp.save(saving.state, checkpoint_id=tmp_path / "parts", no_dist=True)
    saving.fault.close()
    assert len(saving.fault.done) == 1
    dcp.save(saving.state, checkpoint_id=tmp_path / "healthy", no_dist=True)
    files = [next((tmp_path / name).glob("*.distcp")).read_bytes() for name in ("parts", "healthy")]
    assert len(files[0]) == len(files[1]) and files[0] != files[1]


def test_the_command(tmp_path):
    """Unrecorded; by the command, the list of it, and what only the package knows to be wrong."""
    script = Script("""
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(torch.ones(2, 2)).sum().backward()
    """)

    def call(*arguments):
        command = [COMMAND, "inject", *arguments, "--", *script.command()]
        return subprocess.run(command, env=script.environment(), capture_output=True, text=True)

    done = call("-p", "activation", "-s", "1", "--element", "0,1", "--bit", "3")
    assert done.returncode == 0 and '"index": [0, 1], "bits": [3]' in done.stderr, done.stderr
    assert "FAULT INJECTION: bit in activation, step 1" in done.stderr
    wrong = call("-p", "optimizer", "-n", "weight", "-s", "1")
    assert wrong.returncode != 0 and "no fault can be injected: an optimizer's" in wrong.stderr

    listed = subprocess.run([COMMAND, "inject", "--list"], capture_output=True, text=True).stdout
    places, _, patterns = listed.partition("patterns\n")
    for text, known in ((places[len("places\n") :], injection.PLACES),
                        (patterns, injection.PATTERNS)):  # fmt: skip
        assert tuple(line.split()[0] for line in text.splitlines()) == known


def test_functions_are_replaced_once():
    from torch.distributed import ProcessGroup

    faults = [injection.inject("collective", step=1) for _ in range(2)]
    function, depth = ProcessGroup.allreduce, 0
    while function is not None:
        depth += hasattr(function, "_tocsin_injected")
        function = getattr(function, "__wrapped__", None)
    for fault in faults:
        fault.close()
    assert depth == 1 and injected_calls._waiting == []
