"""Velocity prediction with min-SNR weights; averaged weights are swapped in and out."""

import contextlib
import math
import sys

import torch
from torch import nn


class ExponentialAverage:
    """Shadow copies of the weights; `applied` puts them into the model for a while."""

    def __init__(self, model, decay):
        self.model, self.decay = model, decay
        self.shadow = [p.detach().clone() for p in model.parameters()]

    def update(self):
        for shadow, p in zip(self.shadow, self.model.parameters()):
            shadow.mul_(self.decay).add_(p.detach(), alpha=1 - self.decay)

    @contextlib.contextmanager
    def applied(self):
        kept = [p.detach().clone() for p in self.model.parameters()]
        self.write(self.shadow)
        try:
            yield
        finally:
            self.write(kept)

    @torch.no_grad()
    def write(self, values):
        for p, value in zip(self.model.parameters(), values):
            p.copy_(value)


class Denoiser1d(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.embed = nn.Linear(2, width)
        self.convs = nn.ModuleList(
            nn.Conv1d(i, width, 5, padding=2, padding_mode="circular") for i in (1, width, width)
        )
        self.norms = nn.ModuleList(nn.GroupNorm(4, width) for _ in range(3))
        self.out = nn.Conv1d(width, 1, 1)

    def forward(self, x, t):
        emb = self.embed(torch.stack([t.sin(), t.cos()], 1)).unsqueeze(2)
        h = x
        for conv, norm in zip(self.convs, self.norms):
            h = torch.nn.functional.mish(norm(conv(h)) + emb)
        return self.out(h)


def signals(count):
    grid = torch.linspace(0, 2 * math.pi, 25)[:24]
    phase = 2 * math.pi * torch.rand(count, 1)
    return torch.sin(grid + phase).unsqueeze(1)


def loss_of(model, x, t):
    alpha, sigma = t.cos().view(-1, 1, 1), t.sin().view(-1, 1, 1)
    noise = torch.randn_like(x)
    velocity = alpha * noise - sigma * x
    error = (model(alpha * x + sigma * noise, t) - velocity).pow(2).mean((1, 2))
    snr = (alpha / sigma).pow(2).flatten()
    return (error * snr.clamp(max=5.0) / (snr + 1)).mean()


def main():
    torch.manual_seed(350 + (int(sys.argv[1]) if len(sys.argv) > 1 else 0))
    model = Denoiser1d()
    ema = ExponentialAverage(model, decay=0.85)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
    fixed, times = signals(32), torch.linspace(0.1, 1.5, 32)
    history = []
    for step in range(20):
        if step % 5 == 0:
            with ema.applied(), torch.no_grad():
                history.append(loss_of(model, fixed, times).item())
        t = 0.05 + 1.45 * torch.rand(32)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model, signals(32), t)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_value_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        ema.update()
    with ema.applied(), torch.no_grad():
        history.append(loss_of(model, fixed, times).item())
    print([round(value, 4) for value in history])
    assert history[-1] < history[0]


if __name__ == "__main__":
    main()
