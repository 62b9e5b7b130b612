"""mmpretrain 702: stages are frozen in an overridden train(), which the loop never calls."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

BUG = sys.argv[1] == "bug"


class Backbone(nn.Module):
    def __init__(self, frozen_stages):
        super().__init__()
        self.frozen_stages = frozen_stages
        self.stage1 = nn.Linear(8, 12)
        self.stage2 = nn.Linear(12, 12)
        self.head = nn.Linear(12, 4)

    def train(self, mode=True):
        super().train(mode)
        for index in range(1, self.frozen_stages + 1):
            getattr(self, f"stage{index}").requires_grad_(False)
        return self

    def forward(self, x):
        return self.head(F.relu(self.stage2(F.relu(self.stage1(x)))))


torch.manual_seed(13)
model = Backbone(frozen_stages=1)
if not BUG:
    model.train()
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05)
before = model.stage1.weight.detach().clone()
for step in range(6):
    x, y = torch.randn(16, 8), torch.randint(4, (16,))
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()

if "--prove" in sys.argv:
    assert torch.equal(before, model.stage1.weight) == (not BUG)
