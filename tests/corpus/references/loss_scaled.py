"""An MLP with GradScaler: unscale, clip, step, update; the schedule steps with the optimizer."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0


def main():
    torch.manual_seed(36 + SEED)
    model = nn.Sequential(
        nn.Linear(12, 20), nn.GELU(), nn.Dropout(0.1), nn.Linear(20, 10), nn.GELU(),
        nn.Linear(10, 2),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=5)
    for step in range(12):
        x = torch.randn(24, 12)
        y = (x.sum(1) > 0).long()
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
    print(loss.item())


if __name__ == "__main__":
    main()
