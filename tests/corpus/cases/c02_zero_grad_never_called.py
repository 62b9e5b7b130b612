"""Stack Overflow 60335387: zero_grad is never called, so gradients of all batches add up."""

import sys

import torch
from torch import nn

BUG = sys.argv[1] == "bug"
torch.manual_seed(2)
model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
stale = 0
for step in range(7):
    x = torch.randn(20, 6)
    if not BUG:
        optimizer.zero_grad()
    held = model[0].weight.grad
    stale += held is not None and bool(held.abs().sum() > 0)
    loss = (model(x).squeeze(1) - x.sum(1)).square().mean()
    loss.backward()
    optimizer.step()

if "--prove" in sys.argv:
    assert (stale == 6) == BUG
