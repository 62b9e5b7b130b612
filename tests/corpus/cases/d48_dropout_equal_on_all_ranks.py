"""transformers 31412: all ranks are given one seed, so their dropout masks are the same."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BUG = sys.argv[1] == "bug"
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(248)
ddp = DistributedDataParallel(nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.4), nn.Linear(16, 6)))
torch.manual_seed(2480 if BUG else 2480 + rank)
optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-2)
data = torch.Generator().manual_seed(1248 + rank)
masks = []
ddp.module[1].register_forward_hook(lambda module, inputs, output: masks.append(output == 0))
for step in range(5):
    x = torch.randn(12, 6, generator=data)
    optimizer.zero_grad()
    (ddp(x) - x).square().mean().backward()
    optimizer.step()

if "--prove" in sys.argv:
    both = [None, None]
    dist.all_gather_object(both, masks[-1])
    assert torch.equal(*both) == BUG
dist.destroy_process_group()
