"""transformers 17877: _init_weights walks all named parameters for every module it is applied to.

So the projection of each block is drawn once for itself and once more for each module around it.
"""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

BUG = sys.argv[1] == "bug"
draws = []


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_fc = nn.Linear(8, 16)
        self.c_proj = nn.Linear(16, 8)

    def forward(self, x):
        return x + self.c_proj(F.gelu(self.c_fc(x)))


def initialise(module):
    if isinstance(module, nn.Linear):
        module.weight.data.normal_(mean=0.0, std=0.02)
    for name, parameter in module.named_parameters(recurse=BUG):
        if ("c_proj.weight" in name) if BUG else (name == "weight" and module.out_features == 8):
            parameter.data.normal_(mean=0.0, std=0.02 / math.sqrt(4))
            draws.append(parameter.data_ptr())


torch.manual_seed(15)
model = nn.Sequential(Block(), Block())
model.apply(initialise)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(5):
    x = torch.randn(16, 8)
    optimizer.zero_grad()
    (model(x) - x.roll(1, 1)).square().mean().backward()
    optimizer.step()

if "--prove" in sys.argv:
    assert (len(draws) > len(set(draws))) == BUG
