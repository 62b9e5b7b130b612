"""torchtitan PR 4615: on resume, moments are cast to the type of their parameter.

Here for a bf16 model whose optimizer keeps its moments in fp32.
"""

import os
import sys
import tempfile

import torch
import torch.nn.functional as F
from torch import nn

BUG = sys.argv[1] == "bug"


class Fp32Moments(torch.optim.Optimizer):
    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            if "exp_avg" not in state:
                state["exp_avg"] = torch.zeros(p.shape)
            state["exp_avg"].mul_(0.9).add_(p.grad.to(state["exp_avg"].dtype), alpha=0.1)
            p.sub_((self.param_groups[0]["lr"] * state["exp_avg"]).to(p.dtype))

    def load_state_dict(self, state):
        super().load_state_dict(state)  # casts to the parameter's type
        for p, saved in zip(self.param_groups[0]["params"], state["state"].values()):
            if not BUG:
                self.state[p]["exp_avg"] = saved["exp_avg"].clone()


def train(model, optimizer, steps):
    for _ in range(steps):
        x, y = torch.randn(16, 8).bfloat16(), torch.randint(4, (16,))
        optimizer.zero_grad()
        F.cross_entropy(model(x).float(), y).backward()
        optimizer.step()


torch.manual_seed(2730)
path = os.path.join(tempfile.mkdtemp(), "last.pt")
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).bfloat16()
optimizer = Fp32Moments(model.parameters(), lr=0.1)
train(model, optimizer, 4)
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
saved = torch.load(path)
model.load_state_dict(saved["model"])
optimizer.load_state_dict(saved["optimizer"])
dtype = optimizer.state[model[0].weight]["exp_avg"].dtype
train(model, optimizer, 4)

if "--prove" in sys.argv:
    assert (dtype == torch.bfloat16) == BUG
