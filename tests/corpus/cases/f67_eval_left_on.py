"""vsepp 4: validation in the middle of an epoch leaves the model in eval mode."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

BUG = sys.argv[1] == "bug"
torch.manual_seed(267)
body = [nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout()]
model = nn.Sequential(*body, nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
held_out, answers = torch.randn(32, 8), torch.randint(4, (32,))


def validate():
    model.eval()
    with torch.no_grad():
        loss = F.cross_entropy(model(held_out), answers).item()
    if not BUG:
        model.train()
    return loss


modes = []
model.train()
for step in range(1, 9):
    x, y = torch.randn(16, 8), torch.randint(4, (16,))
    optimizer.zero_grad()
    modes.append(model.training)
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    if step == 3:
        validate()

if "--prove" in sys.argv:
    assert (modes[-1] is False) == BUG
