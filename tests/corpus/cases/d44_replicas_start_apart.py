"""NeMo Automodel PR 3822: replicated layers are initialised from a seed that has the rank in it."""

import sys

import torch
import torch.distributed as dist
from torch import nn

BUG = sys.argv[1] == "bug"
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(244 + (rank if BUG else 0))
adapter = nn.ModuleDict({"lora_a": nn.Linear(8, 2, bias=False), "lora_b": nn.Linear(2, 8)})
optimizer = torch.optim.AdamW(adapter.parameters(), lr=1e-2)
data = torch.Generator().manual_seed(2440 + rank)
for step in range(5):
    x = torch.randn(12, 8, generator=data)
    optimizer.zero_grad()
    (adapter["lora_b"](adapter["lora_a"](x)) - x).square().mean().backward()
    for parameter in adapter.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad.div_(2)
    optimizer.step()

if "--prove" in sys.argv:
    both = [None, None]
    dist.all_gather_object(both, adapter["lora_a"].weight.detach())
    assert torch.equal(*both) == (not BUG)
dist.destroy_process_group()
