"""yolov5 8979, not a bug: averaged weights are kept in another model; the live one trains on."""

import copy
import sys

import torch
from torch import nn

torch.manual_seed(301)
model = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.SiLU(), nn.Linear(12, 6))
average = copy.deepcopy(model).eval().requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
for step in range(1, 9):
    x = torch.randn(16, 6)
    optimizer.zero_grad()
    (model(x) - x.flip(1)).square().mean().backward()
    optimizer.step()
    with torch.no_grad():
        for name, value in average.state_dict().items():
            if value.is_floating_point():
                value.lerp_(model.state_dict()[name], 0.2)
    if step % 4 == 0:
        with torch.no_grad():
            average(torch.randn(4, 6))

if "--prove" in sys.argv:
    assert not torch.equal(average[0].weight, model[0].weight)
