"""transformers 33455: the trainer rounds the number of steps wrongly and stops early."""

import sys

import torch
import tocsin
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BUG = sys.argv[1] == "bug"
SAMPLES, BATCH, ACCUMULATE, EPOCHS = 44, 4, 4, 3


def trainer_steps(batches):
    per_epoch = batches // ACCUMULATE if BUG else -(-batches // ACCUMULATE)
    return per_epoch * EPOCHS


torch.manual_seed(19)
x = torch.randn(SAMPLES, 6)
loader = DataLoader(TensorDataset(x, x.sum(1)), batch_size=BATCH, shuffle=True)
model = nn.Linear(6, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
tocsin.expect(steps=EPOCHS * -(-SAMPLES // (BATCH * ACCUMULATE)))
steps, limit = 0, trainer_steps(len(loader))
for epoch in range(EPOCHS):
    for index, (inputs, targets) in enumerate(loader, 1):
        if steps == limit:
            break
        loss = (model(inputs).squeeze(1) - targets).square().mean()
        (loss / ACCUMULATE).backward()
        if index % ACCUMULATE == 0 or index == len(loader):
            optimizer.step()
            steps += 1
            optimizer.zero_grad()

if "--prove" in sys.argv:
    assert (steps < 9) == BUG
