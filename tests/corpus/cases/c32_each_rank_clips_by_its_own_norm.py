"""VeOmni 184: the norm for clipping is computed over the local shard, so ranks clip differently.

Simulated on two ranks: one layer is sharded, one is replicated.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn

BUG = sys.argv[1] == "bug"
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(232)
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
torch.manual_seed(2320 + rank)
model[1].reset_parameters()
for parameter in model[1].parameters():
    parameter.tensor_model_parallel = True
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.Generator().manual_seed(23)
for step in range(5):
    x = torch.randn(16, 8, generator=data)
    optimizer.zero_grad()
    (model(x) - x[:, 4 * rank : 4 * rank + 4]).square().sum().backward()
    for parameter in model[0].parameters():
        dist.all_reduce(parameter.grad)
    if BUG:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    else:
        squares = sum(p.grad.square().sum() for p in model[1].parameters())
        dist.all_reduce(squares)
        squares += sum(p.grad.square().sum() for p in model[0].parameters())
        nn.utils.clip_grads_with_norm_(model.parameters(), 1.0, squares.sqrt())
    optimizer.step()

if "--prove" in sys.argv:
    both = [None, None]
    dist.all_gather_object(both, model[0].weight.detach())
    assert torch.equal(*both) == (not BUG)
dist.destroy_process_group()
