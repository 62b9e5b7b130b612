"""peft 793, not a bug: lora_B is zero at the start, so lora_A has a zero gradient in step 1."""

import sys

import torch
import torch.nn.functional as F
from torch import nn


class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(8, 8).requires_grad_(False)
        self.lora_a = nn.Linear(8, 2, bias=False)
        self.lora_b = nn.Linear(2, 8, bias=False)
        nn.init.zeros_(self.lora_b.weight)

    def forward(self, x):
        return self.base(x) + self.lora_b(self.lora_a(x))


torch.manual_seed(303)
model = nn.Sequential(Adapted(), nn.ReLU(), Adapted())
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
start = model[0].lora_a.weight.detach().clone()
optimizer.param_groups[0]["weight_decay"] = 0.0
for step in range(6):
    x, y = torch.randn(16, 8), torch.randint(8, (16,))
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    if step == 0 and "--prove" in sys.argv:
        assert torch.equal(start, model[0].lora_a.weight)
