"""torchforge PR 71: zero_grad stands between backward and step; no update sees a gradient."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

BUG = sys.argv[1] == "bug"
torch.manual_seed(239)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
before = model[0].weight.detach().clone()
for step in range(6):
    x, y = torch.randn(16, 8), torch.randint(4, (16,))
    loss = F.cross_entropy(model(x), y)
    if not BUG:
        optimizer.zero_grad()
    loss.backward()
    if BUG:
        optimizer.zero_grad()
    optimizer.step()

if "--prove" in sys.argv:
    assert torch.equal(before, model[0].weight) == BUG
