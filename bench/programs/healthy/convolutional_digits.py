"""Digits by a small CNN, as in PyTorch's tutorial: SGD, StepLR by epoch, a test each epoch."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3)
        self.conv2 = nn.Conv2d(8, 12, 3)
        self.dropout = nn.Dropout(0.1)
        self.fc1 = nn.Linear(12 * 4, 24)
        self.fc2 = nn.Linear(24, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(self.dropout(x)), dim=1)


def make_digits(count, shapes):
    labels = torch.randint(0, 10, (count,))
    return TensorDataset(shapes[labels] + 0.3 * torch.randn(count, 1, 14, 14), labels)


def train(model, loader, optimizer, epoch):
    model.train()
    for batch, (data, target) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        if batch % 4 == 0:
            print(f"epoch {epoch} batch {batch}: {loss.item():.4f}")


def test(model, loader):
    model.eval()
    loss = correct = 0
    with torch.no_grad():
        for data, target in loader:
            output = model(data)
            loss += F.nll_loss(output, target, reduction="sum").item()
            correct += output.argmax(dim=1).eq(target).sum().item()
    print(f"test: {loss / len(loader.dataset):.4f}, {correct} of {len(loader.dataset)}")
    return loss / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int, nargs="?", default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    shapes = torch.randn(10, 1, 14, 14)
    train_loader = DataLoader(make_digits(160, shapes), batch_size=20, shuffle=True)
    test_loader = DataLoader(make_digits(40, shapes), batch_size=40)
    model = Net()
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    before = test(model, test_loader)
    for epoch in range(1, 4):
        train(model, train_loader, optimizer, epoch)
        after = test(model, test_loader)
        scheduler.step()
    assert after < before


if __name__ == "__main__":
    main()
