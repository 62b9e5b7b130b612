"""PyTorch forum 84911: all but batch norm is frozen, and the optimizer is given the frozen head."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

BUG = sys.argv[1] == "bug"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.bn = nn.BatchNorm2d(4)
        self.head = nn.Linear(144, 3)

    def forward(self, x):
        return self.head(F.relu(self.bn(self.conv(x))).flatten(1))


torch.manual_seed(1)
model = Net()
for name, parameter in model.named_parameters():
    parameter.requires_grad_(name.startswith("bn.") if BUG else not name.startswith("conv."))
trained = model.head.parameters() if BUG else [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.Adam(trained, lr=1e-2)
before = model.head.weight.detach().clone()
for _ in range(6):
    x, y = torch.randn(16, 1, 8, 8), torch.randint(3, (16,))
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()

if "--prove" in sys.argv:
    assert torch.equal(before, model.head.weight) == BUG
    assert model.bn.running_mean.abs().sum() > 0
