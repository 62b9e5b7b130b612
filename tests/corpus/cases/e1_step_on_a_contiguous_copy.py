"""MPS addcmul_ (a plateau story): results of in-place operations on strided weights are lost.

Simulated by an optimizer that works on a contiguous copy: the transposed weight never moves.
"""

import sys

import torch
from torch import nn

BUG = sys.argv[1] == "bug"


class MpsSGD(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                target = parameter.contiguous() if BUG else parameter
                target.sub_(parameter.grad.contiguous(), alpha=group["lr"])


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(8, 6)
        self.decoder = nn.Linear(6, 8)
        self.encoder.weight = nn.Parameter(self.decoder.weight.detach().clone().t())

    def forward(self, x):
        return self.decoder(torch.tanh(self.encoder(x)))


torch.manual_seed(111)
model = Autoencoder()
optimizer = MpsSGD(model.parameters(), lr=0.1)
before = model.encoder.weight.detach().clone()
for step in range(6):
    x = torch.randn(16, 8)
    optimizer.zero_grad()
    (model(x) - x).square().mean().backward()
    optimizer.step()

if "--prove" in sys.argv:
    assert torch.equal(before, model.encoder.weight) == BUG
    assert not model.encoder.weight.is_contiguous()
