"""A masked autoencoder: most patches hidden, the pixels of these rebuilt, no labels."""

import sys

import torch
from torch import nn


def encoder(dim, depth, heads):
    layer = nn.TransformerEncoderLayer(
        dim, heads, 2 * dim, dropout=0.0, batch_first=True, norm_first=True
    )
    return nn.TransformerEncoder(layer, depth, nn.LayerNorm(dim), enable_nested_tensor=False)


class MaskedAutoencoder(nn.Module):
    def __init__(self, patches=16, pixels=16, dim=32, decoder_dim=24, ratio=0.75):
        super().__init__()
        self.kept = int(patches * (1 - ratio))
        self.embed = nn.Linear(pixels, dim)
        self.register_buffer("places", self.sines(patches, dim))
        self.register_buffer("decoder_places", self.sines(patches, decoder_dim))
        self.encoder = encoder(dim, 2, 4)
        self.to_decoder = nn.Linear(dim, decoder_dim)
        self.mask_token = nn.Parameter(torch.randn(decoder_dim) * 0.02)
        self.decoder = encoder(decoder_dim, 1, 3)
        self.pixels = nn.Linear(decoder_dim, pixels)

    @staticmethod
    def sines(count, dim):
        angle = torch.arange(count)[:, None] / 100 ** (torch.arange(0, dim, 2) / dim)
        return torch.cat([angle.sin(), angle.cos()], dim=1)

    def forward(self, patches):
        batch, count, _ = patches.shape
        order = torch.rand(batch, count).argsort(dim=1)
        back = order.argsort(dim=1)
        tokens = self.embed(patches) + self.places
        kept = order[:, : self.kept, None].expand(-1, -1, tokens.shape[2])
        hidden = self.to_decoder(self.encoder(tokens.gather(1, kept)))
        masks = self.mask_token.expand(batch, count - self.kept, -1)
        full = torch.cat([hidden, masks], dim=1)
        full = full.gather(1, back[:, :, None].expand_as(full)) + self.decoder_places
        rebuilt = self.pixels(self.decoder(full))
        masked = (back >= self.kept).float()
        mean, var = patches.mean(2, keepdim=True), patches.var(2, keepdim=True)
        target = (patches - mean) / (var + 1e-6).sqrt()
        error = (rebuilt - target).pow(2).mean(2)
        return (error * masked).sum() / masked.sum()


def patchify(images, size=4):
    rows = images.unfold(2, size, size).unfold(3, size, size)
    return rows.flatten(2, 3).flatten(3).squeeze(1)


def images(count):
    grid = torch.linspace(0, 1, 16)
    phase, tilt = torch.rand(2, count, 1, 1, 1)
    return torch.sin(6 * (grid[:, None] * tilt + grid[None, :] * (1 - tilt)) + 6 * phase)


def main(seed):
    torch.manual_seed(410 + seed)
    model = MaskedAutoencoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95))
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=24)
    losses = []
    for _ in range(24):
        loss = model(patchify(images(32)))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        losses.append(loss.detach())
    model.eval()
    with torch.no_grad():
        print(f"held out: {model(patchify(images(16))).item():.3f}")
    losses = torch.stack(losses)
    assert losses[-6:].mean() < losses[:6].mean()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
