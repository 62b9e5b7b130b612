"""Distillation: the frozen teacher is a part of the model, whose train() keeps it evaluating."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0


def tower(width):
    return nn.Sequential(
        nn.Linear(10, width), nn.BatchNorm1d(width), nn.GELU(), nn.Linear(width, 5)
    )


class Distillation(nn.Module):
    def __init__(self, temperature=2.0):
        super().__init__()
        self.temperature = temperature
        self.teacher = tower(32).requires_grad_(False)
        self.student = tower(8)

    def train(self, mode=True):
        super().train(mode)
        self.teacher.train(False)
        return self

    def forward(self, signal):
        with torch.no_grad():
            wanted = F.softmax(self.teacher(signal) / self.temperature, 1)
        given = F.log_softmax(self.student(signal) / self.temperature, 1)
        return F.kl_div(given, wanted, reduction="batchmean") * self.temperature**2


def main():
    torch.manual_seed(52 + SEED)
    model = Distillation()
    model.train()
    optimizer = torch.optim.RMSprop(model.student.parameters(), lr=1e-3)
    for _ in range(9):
        loss = model(torch.randn(12, 10))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
