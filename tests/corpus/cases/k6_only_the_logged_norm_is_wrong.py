"""llm-foundry PR 288, not a bug of training: the norm that is logged is taken after clipping."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(306)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 7)
logged = []
for step in range(7):
    x, y = torch.randn(16, 8), torch.randint(4, (16,))
    optimizer.zero_grad(set_to_none=False)
    (10 * F.cross_entropy(model(x), y)).backward()
    true = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    logged.append(sum(p.grad.square().sum() for p in model.parameters()).sqrt().item())
    optimizer.step()
    schedule.step()

if "--prove" in sys.argv:
    assert logged[-1] < true.item()
