"""Transfer learning: a pretrained backbone stays frozen and in eval mode, is saved and resumed."""

import os
import sys
import tempfile

import torch
import torch.nn.functional as F
from torch import nn

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0


class Transfer(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv1d(2, 6, 3), nn.BatchNorm1d(6), nn.ReLU())
        self.classifier = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))

    def freeze(self):
        self.features.requires_grad_(False)
        self.features.eval()

    def forward(self, x):
        return self.classifier(self.features(x).mean(2))


def epoch(model, optimizer, schedule, steps):
    for _ in range(steps):
        x, y = torch.randn(10, 2, 14), torch.randint(3, (10,))
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    schedule.step()


def build(weights):
    model = Transfer()
    model.load_state_dict(weights)
    model.freeze()
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    return model, optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)


def main():
    torch.manual_seed(37 + SEED)
    path = os.path.join(tempfile.mkdtemp(), "transfer.pt")
    torch.save(Transfer().state_dict(), path)
    model, optimizer, schedule = build(torch.load(path))
    epoch(model, optimizer, schedule, 4)
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule}
    torch.save({name: part.state_dict() for name, part in parts.items()}, path)
    saved = torch.load(path)
    model, optimizer, schedule = build(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    schedule.load_state_dict(saved["schedule"])
    epoch(model, optimizer, schedule, 5)
    print("resumed")


if __name__ == "__main__":
    main()
