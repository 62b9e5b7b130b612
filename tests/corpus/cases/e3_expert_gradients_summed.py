"""PyTorch 160285 (torchtitan): gradients of experts are summed over ranks instead of averaged.

Loss and forward are right; with experts sharded on top of FSDP their gradients are twice too large.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn

BUG = sys.argv[1] == "bug"
dist.init_process_group("gloo")
torch.manual_seed(113)
model = nn.ModuleDict({"dense": nn.Linear(6, 6), "expert": nn.Linear(6, 6)})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.Generator().manual_seed(1130 + dist.get_rank())
for step in range(5):
    x = torch.randn(16, 6, generator=data)
    optimizer.zero_grad()
    (model["expert"](torch.relu(model["dense"](x))) - x).square().mean().backward()
    local = model["expert"].weight.grad.clone()
    for name, parameter in model.named_parameters():
        dist.all_reduce(parameter.grad)
        if not BUG or not name.startswith("expert"):
            parameter.grad.div_(dist.get_world_size())
    optimizer.step()

if "--prove" in sys.argv:
    dist.all_reduce(local)
    assert torch.allclose(model["expert"].weight.grad, local / 2) == (not BUG)
dist.destroy_process_group()
