"""Not a bug: LBFGS calls a closure several times a step; a warm-up starts with a rate of zero."""

import sys

import torch
from torch import nn

torch.manual_seed(308)
x = torch.randn(32, 4)
y = x @ torch.randn(4, 1)
fit = nn.Linear(4, 1)
lbfgs = torch.optim.LBFGS(fit.parameters(), lr=0.5, max_iter=4)


def closure():
    lbfgs.zero_grad()
    loss = (fit(x) - y).square().mean()
    loss.backward()
    return loss


losses = [lbfgs.step(closure).item() for _ in range(4)]
refine = nn.Sequential(fit, nn.Linear(1, 1))
optimizer = torch.optim.Adam(refine.parameters(), lr=1e-2)
warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 3))
for step in range(5):
    optimizer.zero_grad()
    (refine(x) - y).square().mean().backward()
    optimizer.step()
    warm_up.step()

if "--prove" in sys.argv:
    assert losses[-1] < losses[0]
