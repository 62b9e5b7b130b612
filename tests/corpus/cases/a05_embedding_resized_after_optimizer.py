"""transformers PR 3532: embeddings are resized after the optimizer was built; they never train."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

BUG = sys.argv[1] == "bug"


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.head = nn.Linear(8, 3)

    def resize(self, size):
        old, self.embed = self.embed, nn.Embedding(size, 8)
        with torch.no_grad():
            self.embed.weight[: old.num_embeddings] = old.weight

    def forward(self, tokens):
        return self.head(self.embed(tokens).mean(1))


torch.manual_seed(205)
model = Classifier()
if not BUG:
    model.resize(14)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if BUG:
    model.resize(14)
before = model.embed.weight.detach().clone()
for step in range(6):
    tokens, y = torch.randint(14, (12, 5)), torch.randint(3, (12,))
    model.zero_grad()
    F.cross_entropy(model(tokens), y).backward()
    optimizer.step()

if "--prove" in sys.argv:
    assert torch.equal(before, model.embed.weight) == BUG
