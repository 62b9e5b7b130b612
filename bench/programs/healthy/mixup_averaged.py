"""Mixup in bf16 autocast; an AveragedModel is evaluated, its batch norms updated at the end."""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn
from torch.utils.data import DataLoader, TensorDataset

seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
torch.manual_seed(120 + seed)

CLASSES = 6


def mixup(x, y, alpha=0.2):
    lam = torch.distributions.Beta(alpha, alpha).sample()
    partner = torch.randperm(len(x))
    targets = F.one_hot(y, CLASSES).float()
    return lam * x + (1 - lam) * x[partner], lam * targets + (1 - lam) * targets[partner]


def separable(channels):
    return nn.Sequential(
        nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False),
        nn.BatchNorm2d(channels),
        nn.Conv2d(channels, channels, 1),
        nn.SiLU(),
    )


model = nn.Sequential(
    nn.Conv2d(1, 16, 4, stride=4), separable(16), separable(16), nn.Flatten(),
    nn.Linear(16 * 9, CLASSES),
)  # fmt: skip
average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.8))
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.02)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)

templates = torch.randn(CLASSES, 1, 12, 12)
labels = torch.randint(CLASSES, (180,))
data = TensorDataset(templates[labels] + 0.5 * torch.randn(180, 1, 12, 12), labels)
train_loader = DataLoader(data, batch_size=36, shuffle=True, num_workers=0)


@torch.no_grad()
def evaluate(network):
    network.eval()
    x, y = data.tensors
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(network(x), y)
    return loss.item()


start = evaluate(model)
for epoch in range(4):
    model.train()
    for x, y in train_loader:
        x, targets = mixup(x, y)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update_parameters(model)
    scheduler.step()
    print(f"epoch {epoch}: model {evaluate(model):.3f}, average {evaluate(average):.3f}")
update_bn(train_loader, average)
assert evaluate(model) < start
assert evaluate(average) < start
