"""Denoising score matching at several noise levels; annealed Langevin samples; AMSGrad."""

import argparse

import torch
import torch.nn as nn


class ScoreNet(nn.Module):
    def __init__(self, levels, dim=4, width=64):
        super().__init__()
        self.register_buffer("sigmas", torch.logspace(0.3, -1, levels))
        self.first = nn.Linear(dim, width)
        self.scale = nn.Embedding(levels, width)
        self.shift = nn.Embedding(levels, width)
        nn.init.ones_(self.scale.weight)
        nn.init.zeros_(self.shift.weight)
        self.rest = nn.Sequential(nn.Softplus(), nn.Linear(width, width), nn.Softplus())
        self.last = nn.Linear(width, dim)

    def forward(self, x, level):
        h = self.first(x) * self.scale(level) + self.shift(level)
        return self.last(self.rest(h)) / self.sigmas[level].unsqueeze(-1)


def dsm_loss(model, x):
    level = torch.randint(len(model.sigmas), (len(x),))
    sigma = model.sigmas[level].unsqueeze(-1)
    noise = torch.randn_like(x)
    score = model(x + sigma * noise, level)
    return 0.5 * ((sigma * score + noise) ** 2).sum(-1).mean()


@torch.no_grad()
def langevin(model, count, per_level=3):
    x = 2 * torch.randn(count, 4)
    for level, sigma in enumerate(model.sigmas):
        step = 0.1 * sigma**2
        for _ in range(per_level):
            score = model(x, torch.full((count,), level))
            x = x + step * score + (2 * step).sqrt() * torch.randn_like(x)
    return x


def data(count):
    signs = torch.randint(0, 2, (count, 1)) * 2.0 - 1
    return signs * torch.tensor([1.0, -1.0, 0.5, 0.0]) + 0.1 * torch.randn(count, 4)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("seed", type=int, nargs="?", default=0)
    parser.add_argument("--steps", type=int, default=24)
    options = parser.parse_args()
    torch.manual_seed(330 + options.seed)
    model = ScoreNet(levels=6)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, amsgrad=True)
    with torch.no_grad():
        held_out = data(256)
        torch.manual_seed(options.seed)
        before = dsm_loss(model, held_out).item()
    for step in range(options.steps):
        loss = dsm_loss(model, data(128))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 8 == 0:
            print(f"{step + 1}: {loss.item():.3f}; {langevin(model, 32).std(0).tolist()}")
    torch.manual_seed(options.seed)
    with torch.no_grad():
        after = dsm_loss(model, held_out).item()
    assert after < before


if __name__ == "__main__":
    main()
