"""yolov3 902: on resume, last_epoch is assigned after the scheduler was built.

The first steps use the base rate again instead of the one that the schedule had come to.
"""

import os
import sys
import tempfile

import torch
from torch import nn

BUG = sys.argv[1] == "bug"
path = os.path.join(tempfile.mkdtemp(), "last.pt")


def build():
    model = nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
    return model, optimizer, scheduler


def train(model, optimizer, scheduler, epochs):
    for epoch in epochs:
        for _ in range(2):
            x = torch.randn(16, 5)
            optimizer.zero_grad()
            (model(x) - x).square().mean().backward()
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
        scheduler.step()


torch.manual_seed(229)
rates = []
model, optimizer, scheduler = build()
train(model, optimizer, scheduler, range(3))
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict()}, path)  # fmt: skip
saved = torch.load(path)
model, optimizer, scheduler = build()
model.load_state_dict(saved["model"])
if BUG:
    scheduler.last_epoch = 3
else:
    optimizer.load_state_dict(saved["optimizer"])
    scheduler.load_state_dict(saved["scheduler"])
train(model, optimizer, scheduler, range(3, 6))

if "--prove" in sys.argv:
    assert (rates[6] == 0.1) == BUG
