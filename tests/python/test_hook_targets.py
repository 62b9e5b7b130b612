"""What is hooked in torch: names, roles, and that a selection hooks nothing else."""

import json
import subprocess
import sys

import pytest
import torch

from tocsin import targets

ROLES = {
    "torch.nn.Module.__call__": "forward",
    "torch.nn.functional.cross_entropy": "loss",
    "torch.nn.functional.mse_loss": "loss",
    "torch.autograd.backward": "backward",
    "torch.nn.Module.zero_grad": "zero_grad",
    "torch.optim.Optimizer.zero_grad": "zero_grad",
    "torch.nn.utils.clip_grad_norm_": "clip_grad",
    "torch.optim.lr_scheduler.LRScheduler.step": "lr_scheduler.step",
    "torch.distributed.all_reduce": "collective",
    "torch.utils.data.DataLoader.__next__": "data.next",
    "torch.amp.GradScaler.step": "grad_scaler",
    "torch.nn.Module.eval": "mode",
    "torch.nn.init.kaiming_uniform_": "init",
    "torch.Tensor.uniform_": "init",
    "torch.save": "checkpoint",
    "torch.nn.functional.relu": "",
    "torch.matmul": "",
    "torch.nn.functional.linear": "",
    "torch.einsum": "",
}
FORBIDDEN = """is_tensor is_grad_enabled get_default_dtype is_autocast_enabled has_torch_function
    handle_torch_function boolean_dispatch numel compile typename""".split()


@pytest.fixture(scope="module")
def all_targets():
    return list(targets.torch_targets(torch))


def test_names_and_roles(all_targets):
    found = {target.name: target.role for target in all_targets}
    assert {name: found.get(name) for name in ROLES} == ROLES
    assert len(all_targets) > 850


def test_forbidden(all_targets):
    last_parts = {target.name.rpartition(".")[2] for target in all_targets}
    assert last_parts.isdisjoint(FORBIDDEN)
    assert all(callable(target.callable) for target in all_targets)


def test_one_name_for_one_object(all_targets):
    names = {}
    for target in all_targets:
        names.setdefault(id(target.callable), target.name)
    # Same object, several names: the first is recorded, and it is the functional one.
    assert names[id(torch.conv2d)] == "torch.nn.functional.conv2d"


CODE = """
import json, torch
from tocsin import _core, targets
targets.install({names!r}, {roles!r}, ())
model = torch.nn.Linear(2, 2)
torch.optim.Adam(model.parameters())
print(json.dumps(sorted({{(name, role) for _, name, role, _, active in _core.hooks() if active}})))
"""


@pytest.mark.parametrize(
    "names, roles, expected",
    [
        ({"torch.matmul"}, set(), [["torch.matmul", ""]]),
        (
            set(),
            {"optimizer.step", "backward"},
            [
                ["torch.autograd.backward", "backward"],
                ["torch.optim.Optimizer.step", "optimizer.step"],
            ],
        ),
        (set(), set(), []),
    ],
)
def test_selection(names, roles, expected):
    code = CODE.format(names=names, roles=roles)
    output = subprocess.check_output([sys.executable, "-c", code], text=True)
    tracers = {t.name for t in targets.tracer_targets(torch)}
    assert [pair for pair in json.loads(output) if pair[0] not in tracers] == expected
