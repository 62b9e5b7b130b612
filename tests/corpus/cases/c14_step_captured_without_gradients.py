"""PyTorch 115607: a compiled step forgets to guard on gradients being None.

What had no gradient when it was compiled is never updated. Fixed upstream; simulated by a step that
captures its parameters at its first call, while the body is still frozen.
"""

import sys

import torch
from torch import nn

BUG = sys.argv[1] == "bug"


class CompiledSGD(torch.optim.SGD):
    captured = None

    def step(self, closure=None):
        present = [p for p in self.param_groups[0]["params"] if p.grad is not None]
        if self.captured is None or not BUG:
            self.captured = present
        with torch.no_grad():
            for parameter in self.captured:
                parameter.sub_(parameter.grad, alpha=self.param_groups[0]["lr"])


torch.manual_seed(14)
model = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 2))
model[0].requires_grad_(False)
optimizer = CompiledSGD(model.parameters(), lr=0.1)
before = model[0].weight.detach().clone()
for step in range(1, 8):
    if step == 3:
        model[0].requires_grad_(True)
    x = torch.randn(12, 6)
    optimizer.zero_grad()
    (model(x) - x[:, :2]).square().mean().backward()
    optimizer.step()

if "--prove" in sys.argv:
    assert torch.equal(before, model[0].weight) == BUG
    assert model[0].weight.grad.abs().sum() > 0
