"""PyTorch 12603: a parameter is replaced after DDP has wrapped it; its gradient stays local."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BUG = sys.argv[1] == "bug"
dist.init_process_group("gloo")
torch.manual_seed(241)
model = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 3))


def reset_head():
    torch.manual_seed(2411)
    model[2].weight = nn.Parameter(torch.randn(3, 10) * 0.1)


if not BUG:
    reset_head()
ddp = DistributedDataParallel(model, find_unused_parameters=True)
if BUG:
    reset_head()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.Generator().manual_seed(2410 + dist.get_rank())
for step in range(5):
    x = torch.randn(12, 6, generator=data)
    optimizer.zero_grad()
    (ddp(x) - x[:, :3]).square().mean().backward()
    optimizer.step()

if "--prove" in sys.argv:
    both = [None, None]
    dist.all_gather_object(both, model[2].weight.detach())
    assert torch.equal(*both) == (not BUG)
dist.destroy_process_group()
