"""A variational autoencoder whose averaged weights are swapped in for evaluation and out again."""

import copy
import sys

import torch
from torch import nn

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(14, 16), nn.SiLU(), nn.Linear(16, 8))
        self.decode = nn.Sequential(nn.Linear(4, 16), nn.SiLU(), nn.Linear(16, 14))

    def forward(self, x):
        mean, log_variance = self.encode(x).chunk(2, 1)
        if self.training:
            z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        else:
            z = mean
        divergence = 0.5 * (mean.square() + log_variance.exp() - log_variance - 1).sum(1)
        return self.decode(z), divergence


def main():
    torch.manual_seed(41 + SEED)
    model = Autoencoder()
    mean = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=1e-2)
    for step in range(1, 11):
        x = torch.rand(16, 14)
        optimizer.zero_grad()
        output, divergence = model(x)
        ((output - x).square().sum(1) + 0.1 * divergence).mean().backward()
        optimizer.step()
        with torch.no_grad():
            for average, live in zip(mean.parameters(), model.parameters()):
                average.lerp_(live, 0.2)
        if step % 5 == 0:
            live = copy.deepcopy(model.state_dict())
            model.load_state_dict(mean.state_dict())
            model.eval()
            with torch.no_grad():
                model(torch.rand(4, 14))
            model.load_state_dict(live)
            model.train()


if __name__ == "__main__":
    main()
