"""Conditional flow matching in two dimensions: a velocity field, Euler and midpoint sampling."""

import sys

import torch
from torch import nn, optim

seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
generator = torch.Generator().manual_seed(seed)
torch.manual_seed(310 + seed)


def moons(count):
    angle = torch.rand(count, generator=generator) * torch.pi
    upper = torch.rand(count, generator=generator) < 0.5
    x = torch.where(upper, angle.cos(), 1 - angle.cos())
    y = torch.where(upper, angle.sin(), 0.5 - angle.sin())
    return torch.stack([x, y], 1) + 0.05 * torch.randn(count, 2, generator=generator)


class Velocity(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(3, hidden), nn.ELU(), nn.Linear(hidden, hidden), nn.ELU(),
            nn.Linear(hidden, 2),
        )  # fmt: skip

    def forward(self, t, x):
        return self.net(torch.cat([t.expand(len(x), 1), x], dim=1))


@torch.inference_mode()
def integrate(field, x, steps, midpoint=False):
    for i in range(steps):
        t, dt = torch.full((1, 1), i / steps), 1 / steps
        if midpoint:
            x = x + dt * field(t + dt / 2, x + dt / 2 * field(t, x))
        else:
            x = x + dt * field(t, x)
    return x


field = Velocity()
opt = optim.RMSprop(field.parameters(), lr=3e-3, momentum=0.5)
schedule = optim.lr_scheduler.ExponentialLR(opt, gamma=0.97)
history = []
for iteration in range(24):
    x1 = moons(256)
    x0 = torch.randn(256, 2, generator=generator)
    t = torch.rand(256, 1, generator=generator)
    xt = (1 - t) * x0 + t * x1
    opt.zero_grad()
    loss = (field(t, xt) - (x1 - x0)).pow(2).mean()
    loss.backward()
    opt.step()
    schedule.step()
    history.append(loss.item())
    if iteration % 8 == 7:
        field.eval()
        points = integrate(field, torch.randn(64, 2, generator=generator), 6)
        print(f"{iteration + 1}: loss {history[-1]:.3f}, mean {points.mean(0).tolist()}")
        field.train()
integrate(field, torch.randn(16, 2, generator=generator), 4, midpoint=True)
assert sum(history[-6:]) < sum(history[:6])
