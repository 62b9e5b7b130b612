"""A small CNN on random images, STEPS steps of BATCH images from SEED: what bench/infer.py has
TrainCheck record."""

import os

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.fc1 = nn.Linear(8 * 13 * 13, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(x, 2)
        x = self.dropout1(torch.flatten(x, 1))
        return F.log_softmax(self.fc1(x), dim=1)


def train(model, optimizer):
    batch = int(os.environ.get("BATCH", "16"))
    model.train()
    for _ in range(int(os.environ["STEPS"])):
        images = torch.randn(batch, 1, 28, 28)
        labels = torch.randint(0, 10, (batch,))
        optimizer.zero_grad()
        loss = F.nll_loss(model(images), labels)
        loss.backward()
        optimizer.step()


def main():
    torch.manual_seed(int(os.environ.get("SEED", "1")))
    model = Net()
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    train(model, optimizer)


if __name__ == "__main__":
    main()
