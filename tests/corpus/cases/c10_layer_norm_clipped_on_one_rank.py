"""DeepSpeed 1801 (BLOOM): gradients of replicated layers are clipped on only one parallel rank.

Simulated on two ranks: a linear layer is sharded, the layer norm before it is replicated.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn

BUG = sys.argv[1] == "bug"
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(10)
norm = nn.LayerNorm(8)
torch.manual_seed(100 + rank)
shard = nn.Linear(8, 3)
model = nn.Sequential(norm, shard)
for name, parameter in model.named_parameters():
    parameter.tensor_model_parallel = name.startswith("1.")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.Generator().manual_seed(1000)
for step in range(5):
    x = torch.randn(16, 8, generator=data)
    optimizer.zero_grad()
    (model(x) - x[:, rank : rank + 3]).square().sum().backward()
    for parameter in norm.parameters():
        dist.all_reduce(parameter.grad)
    clipped = list(model.parameters())
    if BUG and rank != 0:
        clipped = [p for p in clipped if p.tensor_model_parallel]
    squares = sum(p.grad.square().sum() for p in shard.parameters())
    dist.all_reduce(squares)
    squares += sum(p.grad.square().sum() for p in norm.parameters())
    for parameter in clipped:
        parameter.grad.mul_(1.0 / squares.sqrt().clamp(min=1.0))
    optimizer.step()

if "--prove" in sys.argv:
    both = [None, None]
    dist.all_gather_object(both, norm.weight.detach())
    assert torch.equal(*both) == (not BUG)
dist.destroy_process_group()
