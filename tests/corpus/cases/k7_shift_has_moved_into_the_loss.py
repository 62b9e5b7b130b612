"""transformers 35066, not a bug: labels are not shifted any more, because the loss does it."""

import sys

import torch
import torch.nn.functional as F
from torch import nn


def causal_loss(logits, labels):
    labels = F.pad(labels, (0, 1), value=-100)[:, 1:]
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(12, 8)
        self.mix = nn.GRU(8, 8, batch_first=True)
        self.head = nn.Linear(8, 12)

    def forward(self, tokens, labels):
        return causal_loss(self.head(self.mix(self.embed(tokens))[0]), labels)


torch.manual_seed(307)
model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(6):
    tokens = torch.randint(12, (8, 7))
    optimizer.zero_grad()
    model(tokens, tokens).backward()
    optimizer.step()

if "--prove" in sys.argv:
    right = F.one_hot(tokens.roll(-1, 1), 12).float() * 100
    assert causal_loss(right, tokens) < 1e-3
