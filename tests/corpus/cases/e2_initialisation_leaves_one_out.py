"""Mamba-2 dt_bias: the special initialisation is skipped where a guard takes a layer for another.

One of four equal layers keeps the placeholder `ones`.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

BUG = sys.argv[1] == "bug"


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(8, 8)
        self.dt_bias = nn.Parameter(torch.ones(8))

    def forward(self, x):
        return x + self.proj(x) * F.softplus(self.dt_bias)


class ShardedMixer(Mixer):
    """The same, as a wrapper has made it."""


def initialise(model):
    for layer in model:
        if type(layer) is Mixer or not BUG and isinstance(layer, Mixer):
            dt = torch.exp(torch.rand(8) * 4.6 - 6.9)
            with torch.no_grad():
                layer.dt_bias.copy_(dt + torch.log(-torch.expm1(-dt)))


torch.manual_seed(112)
model = nn.Sequential(Mixer(), Mixer(), ShardedMixer(), Mixer())
initialise(model)
skipped = bool((model[2].dt_bias == 1).all())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(5):
    x = torch.randn(16, 8)
    optimizer.zero_grad()
    (model(x) - x.roll(1, 1)).square().mean().backward()
    optimizer.step()

if "--prove" in sys.argv:
    assert skipped == BUG
