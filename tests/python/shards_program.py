"""The same training in several layouts: shards_program.py LAYOUT [CHANGE RANK].

LAYOUT: plain (one process, or all of it on each), fsdp (fully_shard), tp (the first layer cut by
its outputs, the second by its inputs), both (fsdp over one axis of a mesh, tp over the other), hand
(tp of plain parameters with Megatron's marks).
All ranks see the same batch. Every number is a small multiple of a power of two, so that sums are
exact in any order, and layouts agree to the last bit.
CHANGE, on this RANK alone in step 2: bit (of one word of its part of first.weight's gradient),
replica (of one word of a parameter that every rank has).
"""

import os
import sys

import gloo_end
import torch
import torch.distributed as dist
from torch import nn


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 10)
        self.shift = nn.Parameter(torch.zeros(10))
        self.second = nn.Linear(10, 3, bias=False)
        for parameter in self.parameters():
            parameter.data = torch.randint(-4, 5, parameter.shape) / 4

    def forward(self, x):
        x = self.first(x)
        shift = self.shift if hasattr(x, "to_local") else local(self.shift)
        return self.second(torch.relu(x + shift))


class AddUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, part):
        whole = part.clone()
        dist.all_reduce(whole)
        return whole

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def cut_by_hand(model, ranks):
    """As Megatron: each rank has a slice of each parameter, marked with its axis."""
    for name, axis in (("first.weight", 0), ("first.bias", 0), ("shift", 0), ("second.weight", 1)):
        parameter = model.get_parameter(name)
        parameter.data = parameter.data.chunk(ranks, axis)[dist.get_rank()].contiguous()
        parameter.tensor_model_parallel = True
        parameter.partition_dim, parameter.partition_stride = axis, 1
    model.second.register_forward_hook(lambda module, given, part: AddUp.apply(part))


def shard(model, layout, ranks):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, distribute_tensor
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    axes = {"fsdp": {"dp": ranks}, "tp": {"tp": ranks}, "both": {"dp": 2, "tp": ranks // 2}}
    sizes = axes[layout]
    mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    if "tp" in sizes:
        plan = {
            "first": ColwiseParallel(use_local_output=False),  # a DTensor goes between them
            "second": RowwiseParallel(),
        }
        parallelize_module(model, mesh["tp"], plan)
        shift = distribute_tensor(model.shift, mesh["tp"], [Replicate()])
        model.shift = nn.Parameter(shift)
    if "dp" in sizes:
        fully_shard(model.first, mesh=mesh["dp"])
        fully_shard(model, mesh=mesh["dp"])


def flip(tensor, index, bit):
    local(tensor).detach().view(torch.int32)[index] ^= 1 << bit


def main():
    layout, change = sys.argv[1], "none"
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        dist.init_process_group("gloo")
        if len(sys.argv) > 3 and dist.get_rank() == int(sys.argv[3]):
            change = sys.argv[2]
    torch.manual_seed(3)
    model = Net()
    if layout == "hand":
        cut_by_hand(model, ranks)
    elif layout != "plain":
        shard(model, layout, ranks)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25, momentum=0.5, foreach=False)
    for step in range(1, 4):
        torch.manual_seed(step)
        x, target = torch.randint(-1, 2, (4, 6)) * 1.0, torch.randint(-1, 2, (4, 3)) * 1.0
        optimizer.zero_grad()
        (model(x) * target).sum().backward()
        if step == 2 and change == "bit":
            flip(model.first.weight.grad, (1, 4), 17)
        if step == 2 and change == "replica":
            flip(model.shift, (3,), 20)
        optimizer.step()
    if ranks > 1:
        gloo_end.leave()


main()
