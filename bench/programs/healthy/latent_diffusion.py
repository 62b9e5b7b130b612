"""Two stages: an autoencoder is trained and frozen, then a diffusion model on its latents."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 30


class AutoEncoder(nn.Module):
    def __init__(self, latent=2):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 8, 4, 2, 1), nn.SiLU(), nn.Conv2d(8, 2 * latent, 4, 2, 1)
        )
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(latent, 8, 4, 2, 1), nn.SiLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1)
        )

    def encode(self, x):
        mean, logvar = self.encoder(x).chunk(2, dim=1)
        return mean, logvar.clamp(-10, 5)

    def forward(self, x):
        mean, logvar = self.encode(x)
        z = mean + (0.5 * logvar).exp() * torch.randn_like(mean)
        kl = 0.5 * (mean**2 + logvar.exp() - 1 - logvar).mean()
        return F.mse_loss(self.decoder(z), x) + 1e-3 * kl


class Denoiser(nn.Module):
    def __init__(self, channels=2, width=24):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(1, width), nn.SiLU(), nn.Linear(width, width))
        self.enter = nn.Conv2d(channels, width, 3, padding=1)
        self.norm = nn.GroupNorm(6, width)
        self.middle = nn.Conv2d(width, width, 3, padding=1)
        self.exit = nn.Conv2d(width, channels, 3, padding=1)

    def forward(self, z, t):
        h = self.enter(z) + self.time(t[:, None] / STEPS)[:, :, None, None]
        return self.exit(h + F.silu(self.middle(F.silu(self.norm(h)))))


def images(count):
    centre = torch.randint(3, 9, (count, 2, 1, 1))
    y, x = torch.meshgrid(torch.arange(12), torch.arange(12), indexing="ij")
    return torch.exp(-((y - centre[:, :1]) ** 2 + (x - centre[:, 1:]) ** 2) / 6.0)


def train_autoencoder(model, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0)
    losses = []
    for _ in range(steps):
        loss = model(images(32))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_diffusion(denoiser, first_stage, abar, steps):
    with torch.no_grad():
        scale = 1 / first_stage.encode(images(64))[0].std()
    optimizer = torch.optim.AdamW(denoiser.parameters(), lr=4e-3)
    losses = []
    for _ in range(steps):
        with torch.no_grad():
            z = first_stage.encode(images(32))[0] * scale
        t = torch.randint(STEPS, (len(z),))
        a, noise = abar[t].view(-1, 1, 1, 1), torch.randn_like(z)
        loss = F.mse_loss(denoiser(a.sqrt() * z + (1 - a).sqrt() * noise, t.float()), noise)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, scale


def main(seed):
    torch.manual_seed(340 + seed)
    first_stage = AutoEncoder()
    rebuilt = train_autoencoder(first_stage, 12)
    first_stage.eval()
    for p in first_stage.parameters():
        p.requires_grad_(False)
    abar = torch.cumprod(1 - torch.linspace(1e-3, 0.15, STEPS), 0)
    denoiser = Denoiser()
    denoised, scale = train_diffusion(denoiser, first_stage, abar, 16)
    denoiser.eval()
    with torch.no_grad():
        z = torch.randn(4, 2, 3, 3)
        for t in range(STEPS - 1, -1, -5):
            eps = denoiser(z, torch.full((4,), float(t)))
            x0 = (z - (1 - abar[t]).sqrt() * eps) / abar[t].sqrt()
            z = abar[max(t - 5, 0)].sqrt() * x0 + (1 - abar[max(t - 5, 0)]).sqrt() * eps
        print(first_stage.decoder(z / scale).shape)
    assert rebuilt[-1] < rebuilt[0]
    assert sum(denoised[-4:]) < sum(denoised[:4])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
