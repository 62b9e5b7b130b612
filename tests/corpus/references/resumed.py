"""A tagger of sequences, interrupted twice and resumed: weights, optimizer, schedule and position.

Each part is a run of its own in a new model, as after a restart.
"""

import os
import sys
import tempfile

import torch
import torch.nn.functional as F
from torch import nn

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0


class Tagger(nn.Module):
    def __init__(self, words, tags):
        super().__init__()
        self.words = nn.Embedding(words, 10)
        self.reader = nn.GRU(10, 12, batch_first=True, bidirectional=True)
        self.scale = nn.LayerNorm(24)
        self.tags = nn.Linear(24, tags)

    def forward(self, ids):
        states, _ = self.reader(self.words(ids))
        return self.tags(self.scale(states))


def build(steps):
    model = Tagger(40, 6)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    return model, optimizer, schedule


def sentences(rule):
    ids = torch.randint(40, (8, 9))
    return ids, rule[ids]


def run(path, rule, begin, end, steps):
    """Train from step `begin` to `end`; continues from the file if there is one."""
    model, optimizer, schedule = build(steps)
    if os.path.exists(path):
        held = torch.load(path)
        model.load_state_dict(held["weights"])
        optimizer.load_state_dict(held["optimizer"])
        schedule.load_state_dict(held["schedule"])
        begin = held["position"]
    model.train()
    for step in range(begin, end):
        ids, tags = sentences(rule)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids).flatten(0, 1), tags.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if (step + 1) % 5 == 0:
            torch.save(
                {
                    "weights": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "schedule": schedule.state_dict(),
                    "position": step + 1,
                },
                path,
            )
    return loss.item()


def main():
    torch.manual_seed(510 + SEED)
    rule = torch.randint(6, (40,))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tagger.pt")
        for begin in (0, 5, 10):
            print(f"loss {run(path, rule, begin, begin + 5, 15):.3f}")


if __name__ == "__main__":
    main()
