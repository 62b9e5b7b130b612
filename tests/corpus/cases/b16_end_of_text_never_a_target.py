"""transformers 23530: pad is eos, and the collator masks every pad, so no answer ever ends."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

BUG = sys.argv[1] == "bug"
EOS, PAD, IGNORED = 1, (1 if BUG else 0), -100


def collate(answers):
    length = max(map(len, answers)) + 1
    rows = [list(answer) + [EOS] for answer in answers]
    rows = torch.tensor([row + [PAD] * (length - len(row)) for row in rows])
    return rows, rows.masked_fill(rows == PAD, IGNORED)


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(14, 12)
        self.mix = nn.LSTM(12, 12, batch_first=True)
        self.head = nn.Linear(12, 14)

    def forward(self, tokens):
        return self.head(self.mix(self.embed(tokens))[0])


torch.manual_seed(216)
model = Writer()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
ends = 0
for step in range(6):
    lengths = torch.randint(3, 9, (8,)).tolist()
    tokens, labels = collate([torch.randint(2, 14, (n,)).tolist() for n in lengths])
    ends += int((labels == EOS).sum())
    logits = model(tokens[:, :-1])
    optimizer.zero_grad()
    F.cross_entropy(logits.transpose(1, 2), labels[:, 1:], ignore_index=IGNORED).backward()
    optimizer.step()

if "--prove" in sys.argv:
    assert (ends == 0) == BUG
