"""Not a bug: a GradScaler that starts too high skips steps until its scale has come down."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(304)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
skipped = 0
for step in range(9):
    x, y = torch.randn(16, 8), torch.randint(4, (16,))
    optimizer.zero_grad()
    scaler.scale(8 * F.cross_entropy(model(x), y)).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scale = scaler.get_scale()
    scaler.update()
    skipped += scaler.get_scale() < scale

if "--prove" in sys.argv:
    assert 0 < skipped < 9, skipped
