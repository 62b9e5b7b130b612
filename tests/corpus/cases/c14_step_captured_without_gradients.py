"""PyTorch 115607: a compiled step forgets to guard on gradients being None.

Compiled while no gradient existed, it updates nothing ever after. Fixed upstream; simulated by a
step that captures its parameters at its first call.
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
optimizer = CompiledSGD(model.parameters(), lr=0.1)
before = model[0].weight.detach().clone()
optimizer.step()  # a warm-up call, to have it compiled
for step in range(2, 8):
    x = torch.randn(12, 6)
    optimizer.zero_grad()
    (model(x) - x[:, :2]).square().mean().backward()
    optimizer.step()

if "--prove" in sys.argv:
    assert torch.equal(before, model[0].weight) == BUG
