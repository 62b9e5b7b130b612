"""lora 26: reentrant checkpointing over a block whose input requires no gradient gives it none."""

import sys
import warnings

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

warnings.simplefilter("ignore")
BUG = sys.argv[1] == "bug"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.adapter = nn.Linear(8, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        hidden = checkpoint(lambda inputs: F.relu(self.adapter(inputs)), x, use_reentrant=BUG)
        return self.head(hidden)


torch.manual_seed(201)
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(6):
    x, y = torch.randn(16, 8), torch.randint(4, (16,))
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()

if "--prove" in sys.argv:
    assert (model.adapter.weight.grad is None) == BUG
    assert model.head.weight.grad is not None
