"""Accelerate 2665: the optimizer is built before the wrapper makes one flat parameter of all.

It goes on holding the originals, which the model does not use any more.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

BUG = sys.argv[1] == "bug"


class Flattened(nn.Module):
    """A module whose weights are views of one parameter, as sharding wrappers make them."""

    def __init__(self, module):
        super().__init__()
        self.shapes = [(n, p.shape, p.numel()) for n, p in module.named_parameters()]
        self.flat = nn.Parameter(torch.cat([p.detach().flatten() for p in module.parameters()]))
        self.held = [module]

    def forward(self, x):
        views = self.flat.split([count for _, _, count in self.shapes])
        weights = {n: v.view(s) for (n, s, _), v in zip(self.shapes, views)}
        return torch.func.functional_call(self.held[0], weights, (x,))


torch.manual_seed(101)
model = nn.Sequential(nn.Linear(8, 10), nn.ReLU(), nn.Linear(10, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
wrapped = Flattened(model)
if not BUG:
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-2)
before = wrapped.flat.detach().clone()
for step in range(6):
    x, y = torch.randn(16, 8), torch.randint(4, (16,))
    wrapped.zero_grad()
    F.cross_entropy(wrapped(x), y).backward()
    optimizer.step()

if "--prove" in sys.argv:
    assert torch.equal(before, wrapped.flat) == BUG
