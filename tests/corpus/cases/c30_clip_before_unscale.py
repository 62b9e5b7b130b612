"""Lightning 9599: gradients are clipped while they are still scaled; updates become tiny."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

BUG = sys.argv[1] == "bug"
torch.manual_seed(230)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
norms = []
for step in range(6):
    x, y = torch.randn(16, 8), torch.randint(4, (16,))
    optimizer.zero_grad()
    scaler.scale(F.cross_entropy(model(x), y)).backward()
    if not BUG:
        scaler.unscale_(optimizer)
    norms.append(nn.utils.clip_grad_norm_(model.parameters(), 1.0))
    scaler.step(optimizer)
    scaler.update()

if "--prove" in sys.argv:
    assert all((norm > 1000) == BUG for norm in norms)
