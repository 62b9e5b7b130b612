"""A pretrained ViT gets another head: linear probing, then rates by depth for all, resumed."""

import os
import sys
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F


class PlainViT(nn.Module):
    def __init__(self, classes, dim=20, depth=3):
        super().__init__()
        self.stem = nn.Conv2d(1, dim, 5, 5)
        self.register_parameter("pos", nn.Parameter(torch.randn(9, dim) * 0.02))
        self.layers = nn.ModuleList()
        for _ in range(depth):
            self.layers.append(
                nn.ModuleDict({
                    "ln1": nn.LayerNorm(dim), "qkv": nn.Linear(dim, 3 * dim),
                    "ln2": nn.LayerNorm(dim), "up": nn.Linear(dim, 2 * dim),
                    "down": nn.Linear(2 * dim, dim),
                })
            )  # fmt: skip
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.stem(x).flatten(2).mT + self.pos
        for layer in self.layers:
            q, k, v = layer["qkv"](layer["ln1"](x)).chunk(3, -1)
            x = x + F.scaled_dot_product_attention(q, k, v)
            x = x + layer["down"](F.gelu(layer["up"](layer["ln2"](x))))
        return self.head(x.mean(1))


def layerwise_groups(model, lr, factor):
    groups = [{"params": model.head.parameters(), "lr": lr}]
    for depth, layer in enumerate(reversed(model.layers)):
        groups.append({"params": layer.parameters(), "lr": lr * factor ** (depth + 1)})
    lowest = lr * factor ** (len(model.layers) + 1)
    groups.append({"params": [model.pos, *model.stem.parameters()], "lr": lowest})
    return groups


def train(model, optimizer, scheduler, patterns, steps):
    losses = []
    for _ in range(steps):
        y = torch.randint(len(patterns), (32,))
        x = patterns[y] + 0.5 * torch.randn(32, 1, 15, 15)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        losses.append(loss.item())
    return losses


def main(seed):
    torch.manual_seed(460 + seed)
    patterns = torch.randn(7, 1, 15, 15)
    model = PlainViT(4)
    train(model, torch.optim.Adam(model.parameters(), lr=3e-3), None, patterns[:4], 8)

    model.head = nn.Linear(20, 3)
    for name, p in model.named_parameters():
        p.requires_grad_(name.startswith("head."))
        p.grad = None
    probe = torch.optim.SGD(model.head.parameters(), lr=0.1, momentum=0.9)
    losses = train(model, probe, None, patterns[4:], 4)

    model.requires_grad_(True)
    optimizer = torch.optim.AdamW(layerwise_groups(model, 3e-3, 0.75), weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.2, total_iters=12)
    losses += train(model, optimizer, scheduler, patterns[4:], 6)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "last.ckpt")
        parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
        torch.save({name: part.state_dict() for name, part in parts.items()}, path)
        for name, state in torch.load(path, weights_only=True).items():
            parts[name].load_state_dict(state)
    losses += train(model, optimizer, scheduler, patterns[4:], 6)
    print(f"{losses[0]:.3f} -> {losses[-1]:.3f}")
    assert sum(losses[-4:]) < sum(losses[:4])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
