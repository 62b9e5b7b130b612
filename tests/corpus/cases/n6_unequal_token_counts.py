"""DeepSpeed 6089: every rank uses the same capacity though their numbers of tokens differ.

One rank gathers more rows than the other sends; the bug ends with an error or a time-out.
"""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

BUG = sys.argv[1] == "bug"
dist.init_process_group("gloo", timeout=timedelta(seconds=5))
rank = dist.get_rank()
torch.manual_seed(106)
gate = nn.Linear(4, 2)
optimizer = torch.optim.SGD(gate.parameters(), lr=0.05)
for step in range(1, 6):
    tokens = torch.randn(8 - 2 * rank if step >= 4 else 8, 4)
    capacity = torch.tensor([len(tokens)])
    if not BUG:
        dist.all_reduce(capacity, op=dist.ReduceOp.MAX)
    padded = torch.zeros(int(capacity), 4)
    padded[: len(tokens)] = tokens
    parts = [torch.empty_like(padded) for _ in range(2)]
    dist.all_gather(parts, padded)
    optimizer.zero_grad()
    (gate(torch.cat(parts)) - 1).square().mean().backward()
    for parameter in gate.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
dist.destroy_process_group()
