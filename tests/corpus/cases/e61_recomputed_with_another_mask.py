"""OLMo-core PR 828: checkpointing recomputes without the random state; dropout masks differ.

The gradient then belongs to another network than the loss.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

BUG = sys.argv[1] == "bug"


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 8))
        self.inner[2].register_forward_hook(lambda m, i, output: masks.append(output == 0))

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False, preserve_rng_state=not BUG)


masks = []
torch.manual_seed(261)
model = nn.Sequential(nn.Linear(8, 8), Block(), nn.Linear(8, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(5):
    x, y = torch.randn(16, 8), torch.randint(4, (16,))
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()

if "--prove" in sys.argv:
    assert torch.equal(masks[0], masks[1]) == (not BUG)
