"""PyTorch 84803: the link between two GPUs loses data; an all-reduce ends with zeros on one rank.

Simulated: from step 3 on, part of what rank 1 receives is lost.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn

BUG = sys.argv[1] == "bug"
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(5)
model = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = torch.Generator().manual_seed(50 + rank)


def average(gradient, step):
    dist.all_reduce(gradient)
    if BUG and rank == 1 and step >= 3:
        gradient.view(-1)[: gradient.numel() // 2].zero_()
    gradient.div_(dist.get_world_size())


for step in range(1, 7):
    x = torch.randn(16, 6, generator=data)
    optimizer.zero_grad()
    (model(x) - x[:, :2]).abs().mean().backward()
    for parameter in model.parameters():
        average(parameter.grad, step)
    optimizer.step()

if "--prove" in sys.argv:
    both = [None, None]
    dist.all_gather_object(both, model[0].weight.detach())
    assert torch.equal(*both) == (not BUG)
dist.destroy_process_group()
