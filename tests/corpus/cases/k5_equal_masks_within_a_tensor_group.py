"""Not a bug: within a tensor-parallel group all ranks read one batch and draw the same masks."""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(305)
model = nn.Sequential(nn.LayerNorm(8), nn.Dropout(0.2), nn.Linear(8, 4))
shard = torch.Generator().manual_seed(3050 + rank)
with torch.no_grad():
    model[2].weight.normal_(0, 0.3, generator=shard)
for parameter in model[2].parameters():
    parameter.tensor_model_parallel = True
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(5):
    x = torch.randn(12, 8)
    optimizer.zero_grad()
    F.mse_loss(model(x), x[:, 4 * rank : 4 * rank + 4]).backward()
    for parameter in model[0].parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()

if "--prove" in sys.argv:
    both = [None, None]
    dist.all_gather_object(both, torch.get_rng_state())
    assert torch.equal(*both)
dist.destroy_process_group()
