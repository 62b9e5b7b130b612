"""DeepSpeed 6772: the engine overwrites an attribute of the user's module, here its `id`.

The user takes the device from it; all modules end up on the wrong one.
"""

import sys

import torch
from torch import nn

BUG = sys.argv[1] == "bug"


class Expert(nn.Module):
    def __init__(self, id):
        super().__init__()
        self.id = id
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x)


class Engine:
    def __init__(self, module, optimizer):
        self.module, self.optimizer = module, optimizer

    def number_modules(self):
        """For the engine's own book-keeping of what it has offloaded."""
        for number, module in enumerate(self.module.modules()):
            setattr(module, "id" if BUG else "ds_id", number)

    def train(self, x):
        self.optimizer.zero_grad()
        (self.module(x) - x).square().mean().backward()
        self.optimizer.step()


torch.manual_seed(105)
model = nn.Sequential(Expert(id=3), Expert(id=7))
engine = Engine(model, torch.optim.SGD(model.parameters(), lr=0.1))
for step in range(1, 7):
    engine.train(torch.randn(8, 4))
    if step == 2:
        engine.number_modules()

if "--prove" in sys.argv:
    assert ([expert.id for expert in model] != [3, 7]) == BUG
