"""lightly 1438: requires_grad=False does not stop the running statistics of a frozen backbone."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

BUG = sys.argv[1] == "bug"


class FineTuned(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.backbone.requires_grad_(False)
        self.head = nn.Linear(16, 4)

    def train(self, mode=True):
        super().train(mode)
        if not BUG:
            self.backbone.eval()
        return self

    def forward(self, x):
        return self.head(self.backbone(x))


torch.manual_seed(208)
model = FineTuned().train()
optimizer = torch.optim.AdamW(model.head.parameters(), lr=1e-3)
before = model.backbone[1].running_mean.clone()
for step in range(6):
    x, y = torch.randn(16, 8) + 2, torch.randint(4, (16,))
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()

if "--prove" in sys.argv:
    assert torch.equal(before, model.backbone[1].running_mean) == (not BUG)
