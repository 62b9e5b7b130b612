"""minimind PR 854: the loss comes from `ddp.module`, so gradients are never averaged."""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BUG = sys.argv[1] == "bug"
dist.init_process_group("gloo")
torch.manual_seed(240)
ddp = DistributedDataParallel(nn.Sequential(nn.Embedding(9, 12), nn.Flatten(), nn.Linear(36, 9)))
optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-2)
data = torch.Generator().manual_seed(2400 + dist.get_rank())
for step in range(5):
    tokens = torch.randint(9, (12, 3), generator=data)
    network = ddp.module if BUG else ddp
    optimizer.zero_grad()
    F.cross_entropy(network(tokens), tokens[:, 0]).backward()
    optimizer.step()

if "--prove" in sys.argv:
    both = [None, None]
    dist.all_gather_object(both, ddp.module[2].weight.detach())
    assert torch.equal(*both) == (not BUG)
dist.destroy_process_group()
