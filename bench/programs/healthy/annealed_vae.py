"""A VAE: Bernoulli likelihood, the KL weight warmed up, BatchNorm1d, samples from the prior."""

import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader


class VAE(nn.Module):
    def __init__(self, pixels=64, hidden=32, latent=4):
        super().__init__()
        self.fc1 = nn.Sequential(nn.Linear(pixels, hidden), nn.BatchNorm1d(hidden), nn.ReLU())
        self.fc_mu, self.fc_logvar = nn.Linear(hidden, latent), nn.Linear(hidden, latent)
        self.decoder = nn.Sequential(
            nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, pixels)
        )

    def reparameterize(self, mu, logvar):
        if not self.training:
            return mu
        return mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)

    def forward(self, x):
        h = self.fc1(x.flatten(1))
        mu, logvar = self.fc_mu(h), self.fc_logvar(h)
        return self.decoder(self.reparameterize(mu, logvar)), mu, logvar


def elbo(logits, x, mu, logvar, beta):
    reconstruction = F.binary_cross_entropy_with_logits(logits, x.flatten(1), reduction="sum")
    kl = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return (reconstruction + beta * kl) / len(x)


def bars(count):
    rows = (torch.rand(count, 8, 1) < 0.25).float().expand(-1, -1, 8)
    columns = (torch.rand(count, 1, 8) < 0.25).float().expand(-1, 8, -1)
    return torch.maximum(rows, columns).unsqueeze(1)


def train(epoch, model, loader, optimizer):
    model.train()
    total = 0
    for x in loader:
        optimizer.zero_grad()
        logits, mu, logvar = model(x)
        loss = elbo(logits, x, mu, logvar, beta=min(1.0, epoch / 4))
        loss.backward()
        total += loss.item()
        optimizer.step()
    return total / len(loader)


def test(model, images):
    model.eval()
    with torch.no_grad():
        logits, mu, logvar = model(images)
        return elbo(logits, images, mu, logvar, beta=0.0).item()


if __name__ == "__main__":
    torch.manual_seed(600 + (int(sys.argv[1]) if len(sys.argv) > 1 else 0))
    train_images, test_images = bars(160), bars(40)
    loader = DataLoader(train_images, batch_size=32, shuffle=True)
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    before = test(model, test_images)
    for epoch in range(1, 5):
        print(f"epoch {epoch}: {train(epoch, model, loader, optimizer):.2f}")
        after = test(model, test_images)
    with torch.no_grad():
        print(model.decoder(torch.randn(2, 4)).sigmoid().round().mean().item())
    assert after < before
