"""A detector on a pretrained backbone whose stem is frozen whenever train() is called.

Two groups of parameters, one without weight decay; validated after each epoch.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU())
        self.body = nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU())

    def train(self, mode=True):
        super().train(mode)
        self.stem.requires_grad_(False)
        self.stem.eval()
        return self

    def forward(self, image):
        return self.body(self.stem(image))


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = Backbone()
        self.boxes = nn.Conv2d(8, 4, 1)
        self.score = nn.Conv2d(8, 1, 1)

    def forward(self, image):
        features = self.backbone(image)
        return self.boxes(features), self.score(features)


def loss_of(model, count):
    image, there = torch.randn(count, 1, 16, 16), torch.rand(count, 1, 5, 5).round()
    boxes, score = model(image)
    return F.smooth_l1_loss(boxes * there, torch.ones_like(boxes) * there) + \
        F.binary_cross_entropy_with_logits(score, there)


def main():
    torch.manual_seed(51 + SEED)
    model = Detector().train()
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": 0.05},
        {"params": [p for p in trained if p.ndim == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=2e-3)
    for epoch in range(2):
        model.train()
        for _ in range(5):
            optimizer.zero_grad()
            loss_of(model, 6).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            print(epoch, loss_of(model, 6).item())


if __name__ == "__main__":
    main()
