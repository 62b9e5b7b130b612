"""A GAN with spectral norm: two optimizers, two steps of the critic, samples in eval mode."""

import sys
import warnings

import torch
from torch import nn

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0

warnings.simplefilter("ignore")


def main():
    torch.manual_seed(38 + SEED)
    generator = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 6))
    critic = nn.Sequential(
        nn.utils.spectral_norm(nn.Linear(6, 16)), nn.LeakyReLU(0.2), nn.Linear(16, 1)
    )
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.9))
    optimizer_c = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))
    for step in range(8):
        for _ in range(2):
            real = torch.randn(12, 6) + 1
            fake = generator(torch.randn(12, 4)).detach()
            optimizer_c.zero_grad()
            (critic(fake).relu().mean() - critic(real).mean()).backward()
            optimizer_c.step()
        optimizer_g.zero_grad()
        (-critic(generator(torch.randn(12, 4))).mean()).backward()
        optimizer_g.step()
        if step % 4 == 3:
            generator.eval()
            with torch.no_grad():
                generator(torch.randn(3, 4))
            generator.train()


if __name__ == "__main__":
    main()
