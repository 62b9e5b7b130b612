"""transformers 46620: weights are loaded, then initialised anew; loading reports nothing."""

import os
import sys
import tempfile

import torch
import torch.nn.functional as F
from torch import nn

BUG = sys.argv[1] == "bug"


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 16)
        self.head = nn.Linear(16, 4)

    def initialise(self):
        for layer in self.children():
            nn.init.normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


def train(model, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        x, y = torch.randn(16, 8), torch.randint(4, (16,))
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


torch.manual_seed(271)
path = os.path.join(tempfile.mkdtemp(), "pretrained.pt")
first = Model()
train(first, 3)
torch.save(first.state_dict(), path)
second = Model()
if not BUG:
    second.initialise()
second.load_state_dict(torch.load(path))
if BUG:
    second.initialise()
kept = torch.equal(second.body.weight, first.body.weight)
del first
train(second, 4)

if "--prove" in sys.argv:
    assert kept == (not BUG)
