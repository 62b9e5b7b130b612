"""picotron PR 5: gradient sync is switched on in the wrong phase; the forward decides, in no_sync.

Each step has two micro-batches; only the second one's gradients should be averaged.
"""

import sys
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BUG = sys.argv[1] == "bug"
dist.init_process_group("gloo")
torch.manual_seed(235)
ddp = DistributedDataParallel(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 6)))
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
data = torch.Generator().manual_seed(2350 + dist.get_rank())
for step in range(5):
    optimizer.zero_grad()
    for micro in range(2):
        last = micro == 1
        x = torch.randn(8, 6, generator=data)
        with ddp.no_sync() if BUG or not last else nullcontext():
            loss = (ddp(x) - x).square().mean()
        with nullcontext() if last else ddp.no_sync():
            loss.backward()
    optimizer.step()

if "--prove" in sys.argv:
    both = [None, None]
    dist.all_gather_object(both, ddp.module[0].weight.detach())
    assert torch.equal(*both) == (not BUG)
dist.destroy_process_group()
