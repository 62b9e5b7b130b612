"""Fast-LLM 542: the group without weight decay is chosen by exact name; norms and biases decay."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

BUG = sys.argv[1] == "bug"
NO_DECAY = ("bias", "norm.weight")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def spared(name):
    return name in NO_DECAY if BUG else name.endswith(NO_DECAY)


torch.manual_seed(210)
model = nn.Sequential(Block(), Block())
named = list(model.named_parameters())
optimizer = torch.optim.AdamW(
    [
        {"params": [p for n, p in named if not spared(n)], "weight_decay": 0.1},
        {"params": [p for n, p in named if spared(n)], "weight_decay": 0.0},
    ],
    lr=1e-3,
)
for step in range(5):
    x = torch.randn(16, 8)
    optimizer.zero_grad()
    (model(x) - x.roll(1, 1)).square().mean().backward()
    optimizer.step()

if "--prove" in sys.argv:
    assert (len(optimizer.param_groups[1]["params"]) == 0) == BUG
