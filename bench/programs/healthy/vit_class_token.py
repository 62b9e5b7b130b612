"""A vision transformer with a class token and stochastic depth; warm-up and cosine by LambdaLR."""

import math
import sys

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, random_split


def drop_path(x, probability, training):
    if probability == 0.0 or not training:
        return x
    keep = 1 - probability
    mask = x.new_empty(x.shape[0], *[1] * (x.ndim - 1)).bernoulli_(keep)
    return x * mask / keep


class Layer(nn.Module):
    def __init__(self, dim, heads, rate):
        super().__init__()
        self.rate = rate
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        y = self.norm1(x)
        y, _ = self.attention(y, y, y, need_weights=False)
        x = x + drop_path(y, self.rate, self.training)
        return x + drop_path(self.mlp(self.norm2(x)), self.rate, self.training)


class ViT(nn.Module):
    def __init__(self, classes=4, dim=24, depth=3, patch=4, size=12):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, dim, patch, patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + (size // patch) ** 2, dim))
        rates = torch.linspace(0, 0.1, depth).tolist()
        self.blocks = nn.Sequential(*[Layer(dim, 3, rate) for rate in rates])
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, classes)
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


def warmup_cosine(warmup, total):
    def factor(step):
        if step < warmup:
            return step / warmup
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))

    return factor


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hits = [(model(x).argmax(-1) == y).float() for x, y in loader]
    model.train()
    return torch.cat(hits).mean().item()


def main():
    torch.manual_seed(400 + (int(sys.argv[1]) if len(sys.argv) > 1 else 0))
    labels = torch.randint(4, (160,))
    stripes = torch.stack([torch.randn(3, 12, 12) for _ in range(4)])
    images = stripes[labels] + 0.5 * torch.randn(160, 3, 12, 12)
    train_set, val_set = random_split(TensorDataset(images, labels), [128, 32])
    train_loader = DataLoader(train_set, batch_size=32, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=32)
    model = ViT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, warmup_cosine(3, 20))
    criterion = nn.CrossEntropyLoss()
    losses = []
    for epoch in range(5):
        for x, y in train_loader:
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: accuracy {accuracy(model, val_loader):.2f}")
    assert sum(losses[-4:]) < sum(losses[:4])


if __name__ == "__main__":
    main()
