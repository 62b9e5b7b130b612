"""transformers PR 24088: the prepared scheduler steps num_processes times for each update."""

import sys

import torch
from torch import nn

BUG = sys.argv[1] == "bug"
PROCESSES, STEPS = 4, 8
torch.manual_seed(225)
model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 6))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS)
used = []
for step in range(STEPS):
    x = torch.randn(16, 6)
    optimizer.zero_grad()
    (model(x) - x.flip(1)).square().mean().backward()
    used.append(optimizer.param_groups[0]["lr"])
    optimizer.step()
    for _ in range(PROCESSES if BUG else 1):
        scheduler.step()

if "--prove" in sys.argv:
    assert (used != sorted(used, reverse=True)) == BUG
