"""A convolutional stem before a transformer: CutMix with soft labels, a loader with two workers."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Textures(Dataset):
    def __init__(self, count, seed):
        self.count, self.seed = count, seed

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(self.seed * 100003 + index)
        label = index % 3
        grid = torch.arange(16.0)
        wave = torch.sin(grid * (0.5 + 0.6 * label) + 6 * torch.rand((), generator=generator))
        image = wave[None, :, None] + 0.3 * torch.randn(1, 16, 16, generator=generator)
        return image, label


class Hybrid(nn.Module):
    def __init__(self, classes=3, dim=24):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, 12, 3, 2, 1), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, dim, 3, 2, 1)
        )
        layer = nn.TransformerEncoderLayer(
            dim, 4, dim_feedforward=48, dropout=0.1, activation="gelu", batch_first=True
        )
        self.transformer = nn.TransformerEncoder(layer, num_layers=2)
        self.pool = nn.Linear(dim, 1)
        self.classifier = nn.Linear(dim, classes)

    def forward(self, x):
        tokens = self.transformer(self.stem(x).flatten(2).transpose(1, 2))
        weights = self.pool(tokens).softmax(dim=1)
        return self.classifier((weights * tokens).sum(dim=1))


def cutmix(images, labels, classes=3):
    targets = nn.functional.one_hot(labels, classes).float()
    if torch.rand(()) < 0.5:
        return images, targets
    other = torch.randperm(len(images))
    height = int(torch.randint(2, 9, ()))
    top = int(torch.randint(0, 16 - height, ()))
    mixed = images.clone()
    mixed[:, :, top : top + height] = images[other, :, top : top + height]
    kept = 1 - height / 16
    return mixed, kept * targets + (1 - kept) * targets[other]


class Trainer:
    def __init__(self, seed):
        self.model = Hybrid()
        self.train_loader = DataLoader(
            Textures(96, seed + 1), batch_size=16, shuffle=True, num_workers=2, drop_last=True
        )
        self.val_loader = DataLoader(Textures(48, seed + 1001), batch_size=24)
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3, weight_decay=1e-2)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 3)

    def fit(self, epochs):
        history = [self.evaluate()]
        for _ in range(epochs):
            self.model.train()
            for images, labels in self.train_loader:
                images, targets = cutmix(images, labels)
                loss = self.criterion(self.model(images), targets)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            self.scheduler.step()
            history.append(self.evaluate())
        return history

    def evaluate(self):
        self.model.eval()
        losses = []
        with torch.no_grad():
            for images, labels in self.val_loader:
                losses.append(self.criterion(self.model(images), labels).item())
        return sum(losses) / len(losses)


if __name__ == "__main__":
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    torch.manual_seed(440 + seed)
    history = Trainer(seed).fit(3)
    print([round(value, 3) for value in history])
    assert history[-1] < history[0]
