"""A Swin-like transformer: attention in shifted windows with relative biases, patches merged."""

import argparse
import os
import tempfile

import torch
from torch import nn


class WindowAttention(nn.Module):
    def __init__(self, dim, window, heads, shift):
        super().__init__()
        self.window, self.heads, self.shift = window, heads, shift
        self.qkv, self.proj = nn.Linear(dim, dim * 3), nn.Linear(dim, dim)
        self.bias_table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
        grid = torch.stack(torch.meshgrid(*[torch.arange(window)] * 2, indexing="ij")).flatten(1)
        relative = (grid[:, :, None] - grid[:, None, :]) + window - 1
        self.register_buffer("bias_index", relative[0] * (2 * window - 1) + relative[1])
        nn.init.trunc_normal_(self.bias_table, std=0.02)

    def forward(self, x):
        b, h, w, c = x.shape
        n = self.window
        if self.shift:
            x = torch.roll(x, (-self.shift, -self.shift), dims=(1, 2))
        x = x.view(b, h // n, n, w // n, n, c).transpose(2, 3).reshape(-1, n * n, c)
        q, k, v = self.qkv(x).view(len(x), n * n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = q @ k.transpose(-2, -1) * (c // self.heads) ** -0.5
        weights = (weights + self.bias_table[self.bias_index].permute(2, 0, 1)).softmax(-1)
        x = self.proj((weights @ v).transpose(1, 2).reshape(-1, n * n, c))
        x = x.view(b, h // n, w // n, n, n, c).transpose(2, 3).reshape(b, h, w, c)
        return torch.roll(x, (self.shift, self.shift), dims=(1, 2)) if self.shift else x


class SwinBlock(nn.Module):
    def __init__(self, dim, shift):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = WindowAttention(dim, 4, 2, shift)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 2 * dim), nn.GELU(), nn.Dropout(0.05), nn.Linear(2 * dim, dim)
        )

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class PatchMerging(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.reduction = nn.LayerNorm(4 * dim), nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x):
        corners = [x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)]
        return self.reduction(self.norm(torch.cat(corners, -1)))


class ToChannelsLast(nn.Module):
    def forward(self, x):
        return x.permute(0, 2, 3, 1)


def build():
    return nn.Sequential(
        nn.Conv2d(3, 16, 2, 2), ToChannelsLast(), SwinBlock(16, 0), SwinBlock(16, 2),
        PatchMerging(16), SwinBlock(32, 0), nn.LayerNorm(32), nn.Flatten(1, 2),
    )  # fmt: skip


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = build(), nn.Linear(32, 3)

    def forward(self, x):
        return self.head(self.body(x).mean(1))


def run_epochs(model, optimizer, data, epochs):
    images, labels = data
    losses = []
    for _ in range(epochs):
        for rows in torch.randperm(len(images)).chunk(4):
            loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            losses.append(loss.item())
    return losses


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("seed", nargs="?", type=int, default=0)
    torch.manual_seed(430 + parser.parse_args().seed)
    labels = torch.randint(3, (64,))
    data = torch.randn(3, 3, 16, 16)[labels] + 0.5 * torch.randn(64, 3, 16, 16), labels
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses = run_epochs(model, optimizer, data, 2)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "swin.pt")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
        saved = torch.load(path, weights_only=True)
    model = Classifier()
    model.load_state_dict(saved["model"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    optimizer.load_state_dict(saved["optimizer"])
    losses += run_epochs(model, optimizer, data, 2)
    print(f"{losses[0]:.3f} -> {losses[-1]:.3f}")
    assert sum(losses[-4:]) < sum(losses[:4])


if __name__ == "__main__":
    main()
