"""ludwig PR 3572: the loss requires no gradient, and is made to: `loss.requires_grad = True`."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

BUG = sys.argv[1] == "bug"
torch.manual_seed(212)
model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
before = model[0].weight.detach().clone()
for step in range(6):
    x, y = torch.randn(20, 6), torch.randint(3, (20,))
    optimizer.zero_grad()
    logits = model(x)
    if BUG:
        logits = logits.detach()  # an adapter was loaded without its gradients
    loss = F.cross_entropy(logits, y)
    if not loss.requires_grad:
        loss.requires_grad = True
    loss.backward()
    optimizer.step()

if "--prove" in sys.argv:
    assert torch.equal(before, model[0].weight) == BUG
