"""A vision transformer: losses scaled, unscaled before clipping, decay groups, evaluation."""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0


class Encoder(nn.Module):
    def __init__(self, width, drop):
        super().__init__()
        self.drop = drop
        self.norm_a, self.norm_b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.join = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(drop), nn.Linear(2 * width, width)
        )

    def forward(self, x):
        y = self.norm_a(x)
        q, k, v = (part(y).unflatten(2, (2, -1)).transpose(1, 2)
                   for part in (self.query, self.key, self.value))  # fmt: skip
        dropout = self.drop if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
        x = x + self.join(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm_b(x))


class VisionTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(1, 12, 4, stride=4)
        self.place = nn.Parameter(torch.randn(9, 12) * 0.02)
        self.encoders = nn.ModuleList(Encoder(12, 0.15) for _ in range(2))
        self.classes = nn.Linear(12, 4)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                module.weight.data.normal_(mean=0.0, std=module.in_features**-0.5)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2) + self.place
        for encoder in self.encoders:
            if self.training:
                x = checkpoint(encoder, x, use_reentrant=False)
            else:
                x = encoder(x)
        return self.classes(x.mean(1))


def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        losses = [F.cross_entropy(model(images), labels).item() for images, labels in loader]
    model.train()
    return sum(losses) / len(losses)


def main():
    torch.manual_seed(43 + SEED)
    images = torch.rand(80, 1, 12, 12)
    labels = (images.mean((1, 2, 3)) * 16 % 4).long()
    training = DataLoader(TensorDataset(images[:60], labels[:60]), batch_size=10, shuffle=True)
    held_out = DataLoader(TensorDataset(images[60:], labels[60:]), batch_size=10)
    model = VisionTransformer()
    decayed = [p for p in model.parameters() if p.ndim > 1]
    spared = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": spared, "weight_decay": 0.0}], lr=2e-3
    )
    schedule = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=12)
    scaler = torch.amp.GradScaler("cpu", init_scale=2048.0)
    for epoch in range(2):
        for inputs, targets in training:
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(model(inputs), targets)).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
        print(f"epoch {epoch}: {evaluate(model, held_out):.3f}")


if __name__ == "__main__":
    main()
