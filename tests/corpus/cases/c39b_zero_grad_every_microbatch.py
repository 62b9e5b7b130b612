"""PreDiff 32: zero_grad is called for every micro-batch and erases what was accumulated."""

import sys

import torch
from torch import nn

BUG = sys.argv[1] == "bug"
ACCUMULATE = 4
torch.manual_seed(240)
model = nn.Sequential(nn.Linear(6, 12), nn.SiLU(), nn.Linear(12, 6))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
erased = 0
for micro in range(24):
    first = micro % ACCUMULATE == 0
    if BUG or first:
        gradient = model[0].weight.grad
        erased += not first and gradient is not None and bool(gradient.abs().sum() > 0)
        optimizer.zero_grad()
    x = torch.randn(8, 6)
    ((model(x + torch.randn_like(x)) - x).square().mean() / ACCUMULATE).backward()
    if (micro + 1) % ACCUMULATE == 0:
        optimizer.step()

if "--prove" in sys.argv:
    assert (erased > 0) == BUG
