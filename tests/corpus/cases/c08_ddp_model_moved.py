"""PyTorch 104336: a DDP module is moved to another device and back; its gradients are local then.

Moving it makes new gradient accumulators, and DDP's hooks hang on the old ones. On the CPU a change
of type and back does the same.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BUG = sys.argv[1] == "bug"
dist.init_process_group("gloo")
torch.manual_seed(8)
model = nn.Sequential(nn.Linear(5, 10), nn.Tanh(), nn.Linear(10, 3))
if not BUG:
    model.double().float()
ddp = DistributedDataParallel(model)
if BUG:
    ddp.double().float()
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
data = torch.Generator().manual_seed(80 + dist.get_rank())
for step in range(5):
    x = torch.randn(12, 5, generator=data)
    optimizer.zero_grad()
    (ddp(x) - x[:, :3]).square().mean().backward()
    optimizer.step()

if "--prove" in sys.argv:
    both = [None, None]
    dist.all_gather_object(both, model[0].weight.detach())
    assert torch.equal(*both) == (not BUG)
dist.destroy_process_group()
