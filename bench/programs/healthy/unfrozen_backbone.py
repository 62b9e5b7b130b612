"""Fine-tuning: a pretrained backbone frozen first, later unfrozen as a group with a lower rate."""

import os
import sys
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F


def make_backbone():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(),
    )  # fmt: skip


class FineTuned(nn.Module):
    def __init__(self, backbone, num_classes):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(64, num_classes)
        self.frozen = True

    def train(self, mode=True):
        super().train(mode)
        if self.frozen:
            self.backbone.eval()
        return self

    def forward(self, x):
        return self.head(self.backbone(x))


def pretrain(path, patterns):
    """The backbone learns to tell the first patterns from their negatives."""
    net = nn.Sequential(make_backbone(), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for _ in range(6):
        sign = torch.randint(2, (24,))
        x = patterns[torch.randint(3, (24,))] * (2.0 * sign - 1)[:, None, None, None]
        optimizer.zero_grad()
        F.cross_entropy(net(x + 0.2 * torch.randn_like(x)), sign).backward()
        optimizer.step()
    torch.save(net[0].state_dict(), path)


def train(model, optimizer, patterns, steps):
    model.train()
    losses = []
    for _ in range(steps):
        y = torch.randint(len(patterns), (24,))
        x = patterns[y] + 0.3 * torch.randn(24, 1, 15, 15)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main(seed):
    torch.manual_seed(140 + seed)
    patterns = torch.randn(5, 1, 15, 15)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "backbone.pt")
        pretrain(path, patterns)
        backbone = make_backbone()
        print(backbone.load_state_dict(torch.load(path, weights_only=True)))
    for parameter in backbone.parameters():
        parameter.requires_grad = False
    model = FineTuned(backbone, len(patterns))
    optimizer = torch.optim.Adam(model.head.parameters(), lr=2e-2)
    losses = train(model, optimizer, patterns, 10)
    for parameter in backbone.parameters():
        parameter.requires_grad = True
    model.frozen = False
    optimizer.add_param_group({"params": list(backbone.parameters()), "lr": 1e-3})
    losses += train(model, optimizer, patterns, 10)
    print(f"{losses[0]:.3f} -> {losses[-1]:.3f}")
    assert sum(losses[-4:]) < sum(losses[:4])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
