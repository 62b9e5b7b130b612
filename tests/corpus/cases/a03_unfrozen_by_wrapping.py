"""torchtitan PR 4282: wrapping makes each weight a new nn.Parameter, which requires a gradient."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

BUG = sys.argv[1] == "bug"


def wrap(module):
    """Register all parameters anew, as a sharding wrapper does."""
    for child in module.modules():
        for name, parameter in list(child.named_parameters(recurse=False)):
            kept = {} if BUG else {"requires_grad": parameter.requires_grad}
            setattr(child, name, nn.Parameter(parameter.data, **kept))
    return module


torch.manual_seed(203)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
model[0].requires_grad_(False)
for phase in ("alone", "wrapped"):
    if phase == "wrapped":
        wrap(model)
        before = model[0].weight.detach().clone()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3)
    for step in range(3):
        x, y = torch.randn(16, 8), torch.randint(4, (16,))
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

if "--prove" in sys.argv:
    assert torch.equal(before, model[0].weight) == (not BUG)
