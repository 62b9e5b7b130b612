"""A normalising flow of affine couplings: exact likelihood in double precision."""

import sys

import torch
from torch import nn
from torch.distributions import MultivariateNormal

torch.set_default_dtype(torch.float64)


class Coupling(nn.Module):
    def __init__(self, mask, hidden=32):
        super().__init__()
        self.register_buffer("mask", mask)
        self.log_scale = nn.Parameter(torch.zeros(2))
        self.net = nn.Sequential(nn.Linear(2, hidden), nn.Tanh(), nn.Linear(hidden, 4))

    def parts(self, kept):
        shift, scale = self.net(kept).chunk(2, dim=1)
        free = 1 - self.mask
        return shift * free, torch.tanh(scale) * self.log_scale.exp() * free

    def forward(self, x):
        kept = x * self.mask
        shift, scale = self.parts(kept)
        return kept + (1 - self.mask) * (x * scale.exp() + shift), scale.sum(1)

    def inverse(self, z):
        kept = z * self.mask
        shift, scale = self.parts(kept)
        return kept + (1 - self.mask) * (z - shift) * (-scale).exp()


class Flow(nn.Module):
    def __init__(self, depth=4):
        super().__init__()
        masks = [torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])]
        self.couplings = nn.ModuleList(Coupling(masks[i % 2]) for i in range(depth))
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("cov", torch.eye(2))

    def log_prob(self, x):
        total = x.new_zeros(len(x))
        for coupling in self.couplings:
            x, log_det = coupling(x)
            total = total + log_det
        return total + MultivariateNormal(self.mean, self.cov).log_prob(x)

    @torch.no_grad()
    def sample(self, count):
        z = MultivariateNormal(self.mean, self.cov).sample((count,))
        for coupling in reversed(self.couplings):
            z = coupling.inverse(z)
        return z


def bananas(count):
    x = 1.5 * torch.randn(count)
    return torch.stack([x, 0.5 * x**2 - 1 + 0.3 * torch.randn(count)], 1)


def main():
    torch.manual_seed(620 + (int(sys.argv[1]) if len(sys.argv) > 1 else 0))
    flow = Flow()
    optimizer = torch.optim.Adam(flow.parameters(), lr=5e-3, weight_decay=1e-5)
    losses = []
    for step in range(24):
        loss = -flow.log_prob(bananas(128)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 12 == 11:
            print(f"{step}: {loss.item():.3f}, sample mean {flow.sample(64).mean(0).tolist()}")
    assert sum(losses[-5:]) < sum(losses[:5])


if __name__ == "__main__":
    main()
