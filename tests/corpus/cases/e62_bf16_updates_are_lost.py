"""speculators PR 765: norm weights in bf16 start at 1.0, and every update is rounded away."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

BUG = sys.argv[1] == "bug"
torch.manual_seed(262)
model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 4))
if BUG:
    model.to(torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
before = model[1].weight.detach().clone()
for step in range(24):
    x, y = torch.randn(16, 8), torch.randint(4, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(x.to(model[0].weight.dtype)), y)
    loss.backward()
    optimizer.step()

if "--prove" in sys.argv:
    assert torch.equal(before, model[1].weight) == BUG
    assert model[1].weight.grad.abs().max() > 0
