"""PyTorch 96600: a broadcast between two GPUs ends with wrong data.

Simulated: an optimizer whose state is sharded broadcasts what each rank updated; at step 3 and
after, rank 1 receives only a part of what rank 0 sends.
"""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

BUG = sys.argv[1] == "bug"
dist.init_process_group("gloo")
rank = dist.get_rank()


class ShardedSGD(torch.optim.SGD):
    """Each rank updates every other parameter and sends it to the rest."""

    calls = 0

    @torch.no_grad()
    def step(self, closure=None):
        self.calls += 1
        for index, parameter in enumerate(self.param_groups[0]["params"]):
            owner = index % dist.get_world_size()
            if owner == rank:
                parameter.sub_(parameter.grad, alpha=self.param_groups[0]["lr"])
            old = parameter.detach().clone()
            dist.broadcast(parameter.data, owner)
            if BUG and owner != rank and rank == 1 and self.calls >= 3:
                parameter.view(-1)[::3] = old.view(-1)[::3]


torch.manual_seed(6)
model = nn.Sequential(nn.Linear(7, 9), nn.GELU(), nn.Linear(9, 4))
optimizer = ShardedSGD(model.parameters(), lr=0.1)
data = torch.Generator().manual_seed(60 + rank)
for step in range(6):
    x = torch.randn(16, 7, generator=data)
    optimizer.zero_grad()
    F.cross_entropy(model(x), x[:, :4].argmax(1)).backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
    optimizer.step()

if "--prove" in sys.argv:
    both = [None, None]
    dist.all_gather_object(both, model[0].weight.detach())
    assert torch.equal(*both) == (not BUG)
dist.destroy_process_group()
