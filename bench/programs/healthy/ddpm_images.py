"""DDPM on 8x8 images: noise predicted by a U-Net, weights averaged in a copy, sampling."""

import copy
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 50


def time_embedding(t, width):
    frequencies = torch.exp(-math.log(1000) * torch.arange(width // 2) / (width // 2))
    angles = t[:, None].float() * frequencies[None]
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class ResBlock(nn.Module):
    def __init__(self, inputs, outputs, width):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, inputs), nn.GroupNorm(4, outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time = nn.Linear(width, outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x, emb):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(emb)[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class UNet(nn.Module):
    def __init__(self, ch=8, width=16):
        super().__init__()
        self.width = width
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.inp = nn.Conv2d(1, ch, 3, padding=1)
        self.down = ResBlock(ch, ch, width)
        self.pool = nn.Conv2d(ch, 2 * ch, 3, stride=2, padding=1)
        self.mid = ResBlock(2 * ch, 2 * ch, width)
        self.up = ResBlock(3 * ch, ch, width)
        self.out = nn.Conv2d(ch, 1, 3, padding=1)

    def forward(self, x, t):
        emb = self.mlp(time_embedding(t, self.width))
        h1 = self.down(self.inp(x), emb)
        h2 = self.mid(self.pool(h1), emb)
        h2 = F.interpolate(h2, scale_factor=2, mode="nearest")
        return self.out(F.silu(self.up(torch.cat([h2, h1], dim=1), emb)))


@torch.no_grad()
def update_average(average, model, decay):
    for a, p in zip(average.parameters(), model.parameters()):
        a.lerp_(p, 1 - decay)


@torch.no_grad()
def sample(model, betas, alphas_bar, count):
    x = torch.randn(count, 1, 8, 8)
    for t in reversed(range(STEPS)):
        eps = model(x, torch.full((count,), t))
        x = (x - betas[t] / (1 - alphas_bar[t]).sqrt() * eps) / (1 - betas[t]).sqrt()
        if t > 0:
            x = x + betas[t].sqrt() * torch.randn_like(x)
    return x


def main():
    torch.manual_seed(300 + (int(sys.argv[1]) if len(sys.argv) > 1 else 0))
    betas = torch.linspace(1e-4, 0.1, STEPS)
    alphas_bar = torch.cumprod(1 - betas, 0)
    ramp = torch.linspace(-1, 1, 8)
    model = UNet()
    average = copy.deepcopy(model).eval().requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    losses = []
    for step in range(24):
        x0 = ramp[None, None, :, None] * (0.5 + torch.rand(32, 1, 1, 1)) + torch.zeros(1, 1, 1, 8)
        t = torch.randint(STEPS, (32,))
        noise = torch.randn_like(x0)
        a = alphas_bar[t][:, None, None, None]
        loss = F.mse_loss(model(a.sqrt() * x0 + (1 - a).sqrt() * noise, t), noise)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        update_average(average, model, 0.9)
        losses.append(loss.item())
    images = sample(average, betas, alphas_bar, 4)
    print(images.shape, images.std().item())
    assert sum(losses[-5:]) < sum(losses[:5])


if __name__ == "__main__":
    main()
