"""DeepSpeed 5489: a checkpoint is built from what requires a gradient; the frozen part lacks."""

import os
import sys
import tempfile

import torch
import torch.nn.functional as F
from torch import nn

BUG = sys.argv[1] == "bug"


class Captioner(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision = nn.Linear(10, 12)
        self.text = nn.Linear(12, 5)

    def forward(self, x):
        return self.text(F.relu(self.vision(x)))

    def checkpoint(self):
        state = self.state_dict()
        if BUG:
            return {n: state[n] for n, p in self.named_parameters() if p.requires_grad}
        return state


torch.manual_seed(103)
model = Captioner()
model.vision.requires_grad_(False)
optimizer = torch.optim.SGD(model.text.parameters(), lr=0.05)
path = os.path.join(tempfile.mkdtemp(), "captioner.pt")
for step in range(1, 7):
    x, y = torch.randn(16, 10), torch.randint(5, (16,))
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    if step % 3 == 0:
        torch.save(model.checkpoint(), path)

if "--prove" in sys.argv:
    assert ("vision.weight" not in torch.load(path)) == BUG
