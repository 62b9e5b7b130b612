"""DeepSpeed 5794: ranks choose different expert capacities, so their all-to-all does not match.

The bug ends with an error or a time-out of the collective; what came before it is judged.
"""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

BUG = sys.argv[1] == "bug"
dist.init_process_group("gloo", timeout=timedelta(seconds=5))
rank = dist.get_rank()
torch.manual_seed(11 + rank)
expert = nn.Linear(4, 4)
for parameter in expert.parameters():
    parameter.allreduce = False  # as DeepSpeed marks what each rank has for itself
optimizer = torch.optim.SGD(expert.parameters(), lr=0.05)
for step in range(1, 6):
    capacity = 3 + (rank if BUG and step >= 3 else 0)
    sent = torch.randn(2 * capacity, 4)
    tokens = torch.empty_like(sent)
    dist.all_to_all_single(tokens, sent)
    optimizer.zero_grad()
    (expert(tokens) - tokens.flip(1)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
