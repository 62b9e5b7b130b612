"""The same training in several layouts: shards_program.py LAYOUT [CHANGE [RANK]].

LAYOUT: plain (one process, or every rank all of it), fsdp (fully_shard), tp (two linear layers, the
first cut by its outputs, the second by its inputs), columns (only the first, so that no sum over
ranks is left), both (a mesh of two axes). All ranks see the same batch, so that each average over
two ranks is exact. CHANGE: none, bit (of one word of this RANK's shard of a gradient, step 2),
replica (of a parameter that every rank has, step 2).
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 10)
        self.norm = nn.LayerNorm(10)
        self.second = nn.Linear(10, 3, bias=False)

    def forward(self, x):
        return self.second(torch.relu(self.norm(self.first(x))))


def shard(model, layout, ranks):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    if layout == "both":
        mesh = init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("dp", "tp"))
    else:
        name = "dp" if layout == "fsdp" else "tp"
        mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=(name,))
    if layout in ("tp", "columns", "both"):
        plan = {"first": ColwiseParallel(output_layouts=Replicate(), use_local_output=True)}
        if layout != "columns":
            plan["second"] = RowwiseParallel(input_layouts=Replicate())
        parallelize_module(model, mesh["tp"], plan)
    if layout in ("fsdp", "both"):
        fully_shard(model.first, mesh=mesh["dp"])
        fully_shard(model, mesh=mesh["dp"])


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def flip(tensor, index, bit):
    local(tensor).detach().view(torch.int32)[index] ^= 1 << bit


def main():
    layout, change = sys.argv[1], (sys.argv[2:] or ["none"])[0]
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        dist.init_process_group("gloo")
        if len(sys.argv) > 3 and dist.get_rank() != int(sys.argv[3]):
            change = "none"
    torch.manual_seed(3)
    model = Net()
    if layout != "plain":
        shard(model, layout, ranks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    for step in range(1, 4):
        torch.manual_seed(step)
        x, y = torch.randn(8, 6), torch.randint(3, (8,))
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        if step == 2 and change == "bit":
            flip(model.first.weight.grad, (1, 4), 17)
        if step == 2 and change == "replica":
            flip(model.norm.weight, (3,), 20)
        optimizer.step()
    if ranks > 1:
        dist.destroy_process_group()


main()
