"""Lightning 17025: on resume, optimizer state is matched by position, and two layers have swapped.

Both have the same shape, so nothing complains.
"""

import os
import sys
import tempfile

import torch
from torch import nn

BUG = sys.argv[1] == "bug"


class Twins(nn.Module):
    def __init__(self, names):
        super().__init__()
        for name in names:
            setattr(self, name, nn.Linear(6, 6, bias=False))

    def forward(self, x):
        return self.out(torch.tanh(self.into(x)))


def train(model, optimizer, steps):
    for _ in range(steps):
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        (model(x) - x.flip(1)).square().mean().backward()
        optimizer.step()


torch.manual_seed(273)
path = os.path.join(tempfile.mkdtemp(), "last.pt")
model = Twins(["into", "out"])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
train(model, optimizer, 4)
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
moments = optimizer.state[model.into.weight]["exp_avg"].clone()

saved = torch.load(path)
model = Twins(["out", "into"] if BUG else ["into", "out"])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
model.load_state_dict(saved["model"])
optimizer.load_state_dict(saved["optimizer"])
same = torch.equal(moments, optimizer.state[model.into.weight]["exp_avg"])
train(model, optimizer, 4)

if "--prove" in sys.argv:
    assert same == (not BUG)
