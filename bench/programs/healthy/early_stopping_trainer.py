"""A trainer class: ReduceLROnPlateau, the best weights kept in memory and put back at the end."""

import copy
import sys

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler


class Classifier(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 12, 3, padding=1, bias=False),
            nn.BatchNorm2d(12),
            nn.LeakyReLU(0.1),
            nn.AvgPool2d(2),
            nn.Conv2d(12, 12, 3, padding=1, groups=12),
            nn.Conv2d(12, 16, 1),
            nn.Hardswish(),
            nn.AdaptiveMaxPool2d(1),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Dropout(0.1), nn.Linear(16, num_classes)
        )

    def forward(self, x):
        return self.classifier(self.features(x))


class Trainer:
    def __init__(self, model, train_loader, val_loader, patience=3):
        self.model = model
        self.train_loader, self.val_loader = train_loader, val_loader
        self.loss_fn = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.Adam(model.parameters(), lr=8e-3)
        self.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
            self.optimizer, factor=0.5, patience=1
        )
        self.patience = patience
        self.best_loss, self.best_state, self.bad_epochs = float("inf"), None, 0

    def training_step(self, batch):
        inputs, targets = batch
        return self.loss_fn(self.model(inputs), targets)

    def train_epoch(self):
        self.model.train()
        for batch in self.train_loader:
            self.optimizer.zero_grad()
            loss = self.training_step(batch)
            loss.backward()
            self.optimizer.step()

    def validate(self):
        self.model.eval()
        with torch.no_grad():
            losses = [self.training_step(batch).item() for batch in self.val_loader]
        return sum(losses) / len(losses)

    def fit(self, epochs):
        for epoch in range(epochs):
            self.train_epoch()
            loss = self.validate()
            self.scheduler.step(loss)
            print(f"epoch {epoch}: validation {loss:.4f}")
            if loss < self.best_loss:
                self.best_loss, self.bad_epochs = loss, 0
                self.best_state = copy.deepcopy(self.model.state_dict())
            else:
                self.bad_epochs += 1
                if self.bad_epochs >= self.patience:
                    print("stopped early")
                    break
        self.model.load_state_dict(self.best_state)
        return self.validate()


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    torch.manual_seed(110 + seed)
    labels = torch.cat([torch.zeros(120), torch.ones(50), torch.full((30,), 2)]).long()
    tint = torch.tensor([[1.0, -1, 0], [0, 1, -1], [-1, 0, 1]])[:, :, None, None]
    images = tint[labels] + torch.randn(200, 3, 8, 8)
    order = torch.randperm(200)
    train, val = order[:140], order[140:]
    weights = (1.0 / labels.bincount())[labels[train]]
    sampler = WeightedRandomSampler(weights, num_samples=120)
    train_loader = DataLoader(
        TensorDataset(images[train], labels[train]), batch_size=30, sampler=sampler
    )
    val_loader = DataLoader(TensorDataset(images[val], labels[val]), batch_size=60)
    trainer = Trainer(Classifier(3), train_loader, val_loader)
    before = trainer.validate()
    after = trainer.fit(6)
    assert after < before


if __name__ == "__main__":
    main()
