"""A residual network: workers, AdamW, one cycle, clipping, evaluation, checkpoints."""

import os
import sys
import tempfile

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return x + F.relu(self.norm(self.conv(x)))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2)
        self.blocks = nn.ModuleList(Residual(8) for _ in range(2))
        self.drop = nn.Dropout(0.1)
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.fc(self.drop(x.mean((2, 3))))


def main():
    torch.manual_seed(31 + SEED)
    images, labels = torch.rand(96, 3, 12, 12), torch.randint(5, (96,))
    training = DataLoader(
        TensorDataset(images[:72], labels[:72]), batch_size=12, shuffle=True, num_workers=2,
        persistent_workers=True,
    )  # fmt: skip
    testing = DataLoader(TensorDataset(images[72:], labels[72:]), batch_size=24)
    model = ResNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=18)
    path = os.path.join(tempfile.mkdtemp(), "resnet.pt")
    for epoch in range(3):
        model.train()
        for inputs, targets in training:
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), targets).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        model.eval()
        with torch.no_grad():
            right = sum((model(i).argmax(1) == t).sum().item() for i, t in testing)
        torch.save({"model": model.state_dict(), "epoch": epoch}, path)
        print(f"epoch {epoch}: {right} of 24")


if __name__ == "__main__":
    main()
