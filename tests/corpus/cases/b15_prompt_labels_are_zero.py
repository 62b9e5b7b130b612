"""llama-cookbook 101: labels of the prompt are set to 0, which is a token, not to ignore_index."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

BUG = sys.argv[1] == "bug"
PROMPT, IGNORED = 5, -100


def label(tokens):
    labels = tokens.clone()
    labels[:, :PROMPT] = 0 if BUG else IGNORED
    return labels


class Answerer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(16, 12)
        self.mix = nn.GRU(12, 12, batch_first=True)
        self.head = nn.Linear(12, 16)

    def forward(self, tokens):
        return self.head(self.mix(self.embed(tokens))[0])


torch.manual_seed(215)
model = Answerer()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
for step in range(6):
    tokens = torch.randint(1, 16, (8, 12))
    labels = label(tokens)
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

if "--prove" in sys.argv:
    assert bool((labels == 0).any()) == BUG
    assert bool((labels == IGNORED).any()) == (not BUG)
