"""PyTorch 160169: parameters replicated over ranks drift apart: kernels differ by one bit.

Simulated by noise of 1e-7 of a gradient on one rank from step 3 on.
"""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

BUG = sys.argv[1] == "bug"
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(245)
model = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.Generator().manual_seed(2450 + rank)
for step in range(1, 8):
    x = torch.randn(16, 6, generator=data)
    optimizer.zero_grad()
    F.cross_entropy(model(x), x[:, :4].argmax(1)).backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad.div_(2)
        if BUG and rank == 1 and step >= 3:
            parameter.grad.mul_(1 + 1e-7 * torch.randint(-3, 4, parameter.shape))
    optimizer.step()

if "--prove" in sys.argv:
    both = [None, None]
    dist.all_gather_object(both, model[0].weight.detach())
    assert torch.equal(*both) == (not BUG)
    assert torch.allclose(*both, atol=1e-5)
dist.destroy_process_group()
