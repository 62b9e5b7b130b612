"""x-jxmnop: on some steps the forward is called on the raw module instead of the DDP wrapper."""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BUG = sys.argv[1] == "bug"
dist.init_process_group("gloo")
torch.manual_seed(9)
ddp = DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)))
optimizer = torch.optim.AdamW(ddp.parameters(), lr=5e-3)
data = torch.Generator().manual_seed(90 + dist.get_rank())
for step in range(1, 7):
    x = torch.randn(10, 8, generator=data)
    network = ddp.module if BUG and step % 2 == 0 else ddp
    optimizer.zero_grad()
    F.cross_entropy(network(x), x[:, 4:].argmax(1)).backward()
    optimizer.step()

if "--prove" in sys.argv:
    both = [None, None]
    dist.all_gather_object(both, ddp.module[0].weight.detach())
    assert torch.equal(*both) == (not BUG)
dist.destroy_process_group()
