"""DeepSpeed 6770: the optimizer holds parameters that are not the model's; naming them fails.

The engine maps parameters to names when it writes its first checkpoint: a KeyError after two steps.
"""

import copy
import sys

import torch
import torch.nn.functional as F
from torch import nn

BUG = sys.argv[1] == "bug"


class Engine:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def train(self, x, y):
        self.optimizer.zero_grad()
        F.cross_entropy(self.model(x), y).backward()
        self.optimizer.step()

    def named_state(self):
        names = {p: name for name, p in self.model.named_parameters()}
        return {names[p]: self.optimizer.state[p] for p in self.optimizer.param_groups[0]["params"]}


torch.manual_seed(102)
model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
source = copy.deepcopy(model) if BUG else model
engine = Engine(model, torch.optim.Adam(source.parameters(), lr=1e-3))
for step in range(2):
    engine.train(torch.randn(16, 6), torch.randint(3, (16,)))
engine.named_state()
for step in range(3):
    engine.train(torch.randn(16, 6), torch.randint(3, (16,)))
