"""CLIP: a ViT and a text encoder, symmetric loss, a learned temperature that is clamped."""

import math
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def block(width):
    return nn.TransformerEncoderLayer(
        width, nhead=2, dim_feedforward=2 * width, dropout=0.0, batch_first=True
    )


class ImageTower(nn.Module):
    def __init__(self, width=24, joint=16):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, kernel_size=4, stride=4, bias=False)
        self.place = nn.Parameter(width**-0.5 * torch.randn(9, width))
        self.block, self.proj = block(width), nn.Linear(width, joint, bias=False)

    def forward(self, x):
        x = self.conv1(x).flatten(2).transpose(1, 2) + self.place
        return self.proj(self.block(x).mean(dim=1))


class TextTower(nn.Module):
    def __init__(self, width=24, joint=16):
        super().__init__()
        self.words = nn.EmbeddingBag(32, width, mode="mean")
        self.net = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, joint))

    def forward(self, tokens):
        return self.net(self.words(tokens))


class Pairs(nn.Module):
    def __init__(self):
        super().__init__()
        self.visual, self.textual = ImageTower(), TextTower()
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, images, tokens):
        a = F.normalize(self.visual(images), dim=-1)
        b = F.normalize(self.textual(tokens), dim=-1)
        return self.logit_scale.exp() * a @ b.t()


def symmetric_loss(logits):
    target = torch.arange(len(logits))
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target)) / 2


seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
torch.manual_seed(470 + seed)
words = torch.randint(0, 32, (192, 4))
meaning = torch.randn(32, 3, 1, 1)
pictures = meaning[words].sum(1) + 0.2 * torch.randn(192, 3, 12, 12)
loader = DataLoader(TensorDataset(pictures, words), batch_size=24, shuffle=True, drop_last=True)
model = Pairs()
gains = [p for n, p in model.named_parameters() if p.ndim < 2]
weights = [p for n, p in model.named_parameters() if p.ndim >= 2]
optimizer = torch.optim.AdamW(
    [{"params": weights, "weight_decay": 0.2}, {"params": gains, "weight_decay": 0.0}],
    lr=3e-3, betas=(0.9, 0.98), eps=1e-6,
)  # fmt: skip
losses = []
for epoch in range(2):
    for images, tokens in loader:
        loss = symmetric_loss(model(images, tokens))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, math.log(100))
        losses.append(loss.item())
    with torch.no_grad():
        best = model(pictures[:24], words[:24]).argmax(1)
    print(f"epoch {epoch}: {(best == torch.arange(24)).float().mean().item():.2f} retrieved")
assert sum(losses[-4:]) < sum(losses[:4])
