"""Megatron-DeepSpeed PR 276: only the first tensor-parallel rank builds a loader and draws a seed.

From then on the ranks' random states differ, and so do masks that must be equal.
"""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BUG = sys.argv[1] == "bug"
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(250)
pixels = torch.randn(48, 8)
model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.Linear(8, 4))
for parameter in model[2].parameters():
    parameter.tensor_model_parallel = True
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loader = DataLoader(TensorDataset(pixels), batch_size=8)
batches = iter(loader) if rank == 0 or not BUG else None
for step in range(6):
    x = next(batches)[0] if batches else torch.empty(8, 8)
    dist.broadcast(x, 0)
    optimizer.zero_grad()
    F.mse_loss(model(x), x[:, 4 * rank : 4 * rank + 4]).backward()
    for parameter in model[0].parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()

if "--prove" in sys.argv:
    both = [None, None]
    dist.all_gather_object(both, torch.get_rng_state())
    assert torch.equal(*both) == (not BUG)
dist.destroy_process_group()
