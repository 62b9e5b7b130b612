"""PyTorch 118115 (MPS): addcdiv_ drops its result for a weight that is a slice of a larger one.

Simulated by an Adam that updates a contiguous copy; only the strided weight stands still.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

BUG = sys.argv[1] == "bug"


class Adam(torch.optim.Optimizer):
    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(n=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                state["n"] += 1
                state["m"].lerp_(p.grad, 0.1)
                state["v"].lerp_(p.grad.square(), 0.001)
                mean = state["m"] / (1 - 0.9 ** state["n"])
                spread = (state["v"] / (1 - 0.999 ** state["n"])).sqrt() + 1e-8
                target = p.contiguous() if BUG else p
                target.addcdiv_(mean, spread, value=-group["lr"])


torch.manual_seed(264)
model = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 3))
model[0].weight = nn.Parameter((torch.randn(12, 16) * 0.2)[:, ::2])
optimizer = Adam(model.parameters(), lr=1e-2)
before = model[0].weight.detach().clone()
for step in range(6):
    x, y = torch.randn(16, 8), torch.randint(3, (16,))
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()

if "--prove" in sys.argv:
    assert torch.equal(before, model[0].weight) == BUG
