"""A tensor-parallel training, on ranks or as one process: simulation_program.py DEGREE.

On ranks it also says whether their sums are what the simulation makes of the same numbers.
"""

import os
import sys

import gloo_end
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from tocsin.simulation import add_up, simulate_tensor_parallel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.before = nn.LayerNorm(24)
        self.up = nn.Linear(24, 40)
        self.down = nn.Linear(40, 24)
        self.after = nn.LayerNorm(24)
        self.head = nn.Linear(24, 5)

    def forward(self, x):
        x = self.before(x)
        return self.head(self.after(x + self.down(F.gelu(self.up(x)))))


def check_sums(ranks):
    for count in (1, 5, 24, 769, 300001):
        for dtype in (torch.float32, torch.bfloat16):
            torch.manual_seed(0)
            scale = torch.exp2(torch.randint(-8, 8, (ranks, count)).float())
            parts = (torch.randn(ranks, count) * scale).to(dtype)
            total = parts[dist.get_rank()].clone()
            dist.all_reduce(total)
            assert torch.equal(total, add_up(list(parts))), (ranks, count, dtype)


def main():
    degree, ranks = int(sys.argv[1]), int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(3)
    model = Net()
    if ranks > 1:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import parallel

        mesh = init_device_mesh("cpu", (ranks,))
        plan = {"up": parallel.ColwiseParallel(), "down": parallel.RowwiseParallel()}
        parallel.parallelize_module(model, mesh, plan)
        check_sums(ranks)
    elif degree > 1:
        simulate_tensor_parallel(model, {"u*": "column", "down": "row"}, degree)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    for step in range(1, 4):
        torch.manual_seed(step)
        x, y = torch.randn(2, 16, 24), torch.randint(5, (32,))
        optimizer.zero_grad()
        F.cross_entropy(model(x).flatten(0, 1), y).backward()
        optimizer.step()
    if ranks > 1:
        gloo_end.leave()


main()
