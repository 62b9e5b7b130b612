"""DeepSpeed 6714: in a pipeline with experts, ranks take part in different collectives and hang.

The bug ends with a time-out or an error of the collective; what came before it is judged.
"""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

BUG = sys.argv[1] == "bug"
dist.init_process_group("gloo", timeout=timedelta(seconds=5))
rank = dist.get_rank()
torch.manual_seed(104)
model = nn.Linear(5, 5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.Generator().manual_seed(1040 + rank)
for step in range(1, 6):
    x = torch.randn(9, 5, generator=data)
    optimizer.zero_grad()
    (model(x) - x.flip(1)).square().mean().backward()
    for parameter in model.parameters():
        if BUG and step == 3 and rank == 1:
            dist.broadcast(parameter.grad, 0)  # this stage "has no experts to reduce"
        else:
            dist.all_reduce(parameter.grad)
        parameter.grad.div_(2)
    optimizer.step()
    dist.barrier()
weights = [torch.empty_like(model.weight) for _ in range(2)]
dist.all_gather(weights, model.weight.detach())
if "--prove" in sys.argv:
    assert torch.equal(*weights)
dist.destroy_process_group()
