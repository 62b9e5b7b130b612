"""accelerate 963: the scheduler steps with every micro-batch, the optimizer after several."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

BUG = sys.argv[1] == "bug"
ACCUMULATE = 3
torch.manual_seed(227)
model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=6)
for micro in range(18):
    x, y = torch.randn(8, 8), torch.randint(4, (8,))
    (F.cross_entropy(model(x), y) / ACCUMULATE).backward()
    if BUG:
        scheduler.step()
    if (micro + 1) % ACCUMULATE == 0:
        optimizer.step()
        optimizer.zero_grad()
        if not BUG:
            scheduler.step()

if "--prove" in sys.argv:
    assert (scheduler.last_epoch == 3 * 6) == BUG
