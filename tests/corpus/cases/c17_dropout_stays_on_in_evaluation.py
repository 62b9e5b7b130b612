"""transformers 33844: the attention passes its dropout probability in evaluation, too."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

BUG = sys.argv[1] == "bug"


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)

    def forward(self, x):
        query, key, value = self.qkv(x).unsqueeze(1).chunk(3, dim=-1)
        dropout = 0.3 if self.training or BUG else 0.0
        attended = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
        return self.out(attended.squeeze(1))


torch.manual_seed(17)
model = Attention()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
held_out = torch.randn(6, 5, 8)
repeats = []
for step in range(1, 9):
    x = torch.randn(6, 5, 8)
    optimizer.zero_grad()
    (model(x) - x).square().mean().backward()
    optimizer.step()
    if step % 4 == 0:
        model.eval()
        with torch.no_grad():
            repeats.append(torch.equal(model(held_out), model(held_out)))
        model.train()

if "--prove" in sys.argv:
    assert all(repeat == (not BUG) for repeat in repeats)
