"""WGAN-GP: the critic trained more often, gradients of its input penalised, samples in between."""

import sys

import torch
from torch import autograd, nn


class Generator(nn.Module):
    def __init__(self, latent=8):
        super().__init__()
        self.latent = latent
        self.main = nn.Sequential(
            nn.Linear(latent, 32), nn.ReLU(True), nn.Linear(32, 32), nn.ReLU(True),
            nn.Linear(32, 2),
        )  # fmt: skip

    def forward(self, count):
        return self.main(torch.randn(count, self.latent))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.LeakyReLU(0.2),
            nn.Linear(32, 1),
        )  # fmt: skip

    def forward(self, x):
        return self.main(x).view(-1)


def calc_gradient_penalty(netD, real, fake):
    alpha = torch.rand(len(real), 1)
    interpolates = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    scores = netD(interpolates)
    gradients = autograd.grad(
        outputs=scores, inputs=interpolates, grad_outputs=torch.ones_like(scores),
        create_graph=True, retain_graph=True,
    )[0]  # fmt: skip
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean() * 5.0


def real_data(count):
    angle = torch.randint(8, (count,)) * torch.pi / 4
    return 2 * torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(count, 2)


def main(seed):
    torch.manual_seed(610 + seed)
    netG, netD = Generator(), Critic()
    optimizerD = torch.optim.Adam(netD.parameters(), lr=1e-3, betas=(0.5, 0.9))
    optimizerG = torch.optim.Adam(netG.parameters(), lr=1e-3, betas=(0.5, 0.9))
    distances = []
    for iteration in range(10):
        for p in netD.parameters():
            p.requires_grad = True
        for _ in range(3):
            netD.zero_grad()
            real = real_data(64)
            with torch.no_grad():
                fake = netG(64)
            distance = netD(real).mean() - netD(fake).mean()
            (calc_gradient_penalty(netD, real, fake) - distance).backward()
            optimizerD.step()
        for p in netD.parameters():
            p.requires_grad = False
        netG.zero_grad()
        (-netD(netG(64)).mean()).backward()
        optimizerG.step()
        distances.append(distance.item())
        if iteration % 5 == 4:
            with torch.no_grad():
                print(f"{iteration}: distance {distances[-1]:.3f}, spread {netG(64).std():.3f}")
    assert max(map(abs, distances)) < 10


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
