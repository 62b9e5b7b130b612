"""Baichuan2 86: with a broken link between GPUs, inference over two of them gives NaN.

Simulated: the second stage of a forward-only pipeline receives garbage from its third batch on.
"""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

BUG = sys.argv[1] == "bug"
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(7)
first, second = nn.Linear(6, 12).eval(), nn.Linear(12, 5).eval()
losses = []
with torch.no_grad():
    for batch in range(6):
        x, y = torch.randn(8, 6), torch.randint(5, (8,))
        if rank == 0:
            dist.send(F.relu(first(x)), 1)
            continue
        hidden = torch.empty(8, 12)
        dist.recv(hidden, 0)
        if BUG and batch >= 2:
            hidden[:, 3:5] = float("nan")
        losses.append(F.cross_entropy(second(hidden), y).item())

if "--prove" in sys.argv and rank == 1:
    assert any(loss != loss for loss in losses) == BUG
dist.destroy_process_group()
