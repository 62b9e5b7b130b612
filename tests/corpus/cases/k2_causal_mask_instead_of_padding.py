"""unsloth 903, not a bug: right padding, causal attention and ignored labels need no mask."""

import sys

import torch
import torch.nn.functional as F
from torch import nn


class Causal(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(12, 8)
        self.qkv = nn.Linear(8, 24)
        self.head = nn.Linear(8, 12)

    def forward(self, tokens):
        query, key, value = self.qkv(self.embed(tokens)).unsqueeze(1).chunk(3, dim=-1)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.head(mixed.squeeze(1))


torch.manual_seed(302)
model = Causal()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(6):
    tokens = torch.randint(1, 12, (6, 10))
    for row, length in zip(tokens, torch.randint(4, 10, (6,)).tolist()):
        row[length:] = 0
    labels = tokens.masked_fill(tokens == 0, -100)
    optimizer.zero_grad()
    logits = model(tokens[:, :-1])
    F.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten()).backward()
    optimizer.step()

if "--prove" in sys.argv:
    changed = tokens.clone()
    changed[:, -1] = 3
    assert torch.equal(model(changed)[:, :4], model(tokens)[:, :4])
