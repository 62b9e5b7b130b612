"""waifu-diffusion PR 31: averaged weights are copied in for validation and stay in the model."""

import copy
import sys

import torch
from torch import nn

BUG = sys.argv[1] == "bug"
torch.manual_seed(269)
model = nn.Sequential(nn.Linear(6, 16), nn.SiLU(), nn.Linear(16, 6))
average = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
drift = []


@torch.no_grad()
def validate():
    before = [p.clone() for p in model.parameters()]
    for live, mean in zip(model.parameters(), average.parameters()):
        live.copy_(mean)
    model.eval()
    model(torch.randn(8, 6))
    model.train()
    if not BUG:
        for live, old in zip(model.parameters(), before):
            live.copy_(old)
    drift.append(not torch.equal(before[0], model[0].weight))


for step in range(1, 9):
    x = torch.randn(16, 6)
    optimizer.zero_grad()
    (model(x + torch.randn_like(x)) - x).square().mean().backward()
    optimizer.step()
    with torch.no_grad():
        for live, mean in zip(model.parameters(), average.parameters()):
            mean.lerp_(live, 0.1)
    if step % 4 == 0:
        validate()

if "--prove" in sys.argv:
    assert drift[0] == BUG
