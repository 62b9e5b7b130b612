"""DINO: a student learns from its moving average over crops of two sizes; centred, no labels."""

import copy
import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F


class TinyViT(nn.Module):
    def __init__(self, dim=24, grid=4):
        super().__init__()
        self.patch = nn.Conv2d(1, dim, 4, 4)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(torch.randn(1, dim, grid, grid) * 0.02)
        self.block = nn.TransformerEncoderLayer(
            dim, 4, 48, dropout=0.0, activation=F.gelu, batch_first=True, norm_first=True
        )
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        x = self.patch(x)
        place = F.interpolate(self.pos, size=x.shape[2:], mode="bilinear", align_corners=False)
        x = (x + place).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1)
        return self.norm(self.block(x))[:, 0]


class Head(nn.Module):
    def __init__(self, dim=24, out=16):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, 12))
        self.last = nn.utils.parametrizations.weight_norm(nn.Linear(12, out, bias=False))
        self.last.parametrizations.weight.original0.data.fill_(1.0)
        self.last.parametrizations.weight.original0.requires_grad = False

    def forward(self, x):
        return self.last(F.normalize(self.mlp(x), dim=-1))


def crops(images):
    def crop(size):
        top, left = torch.randint(0, 17 - size, (2,)).tolist()
        view = images[:, :, top : top + size, left : left + size]
        return view + 0.1 * torch.randn_like(view)

    return [crop(16), crop(12)], [crop(8), crop(8)]


def main():
    torch.manual_seed(450 + (int(sys.argv[1]) if len(sys.argv) > 1 else 0))
    student = nn.Sequential(TinyViT(), Head())
    teacher = copy.deepcopy(student)
    for p in teacher.parameters():
        p.requires_grad = False
    trained = [p for p in student.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=2e-3)
    centre = torch.zeros(1, 16)
    kinds = torch.randn(6, 1, 16, 16)
    losses = []
    steps = 16
    for it in range(steps):
        for group in optimizer.param_groups:
            group["weight_decay"] = 0.04 + 0.3 * it / steps
        images = kinds[torch.randint(6, (24,))] + 0.2 * torch.randn(24, 1, 16, 16)
        large, small = crops(images)
        with torch.no_grad():
            told = [teacher(x) for x in large]
        targets = [((t - centre) / 0.05).softmax(-1) for t in told]
        views = [student(x) for x in [*large, *small]]
        terms = [
            -(target * (view / 0.1).log_softmax(-1)).sum(-1).mean()
            for i, target in enumerate(targets)
            for j, view in enumerate(views)
            if i != j
        ]
        loss = sum(terms) / len(terms)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 3.0)
        if it < 2:
            for p in student[1].last.parameters():
                p.grad = None
        optimizer.step()
        momentum = 1 - 0.05 * (math.cos(math.pi * it / steps) + 1) / 2
        with torch.no_grad():
            for s, t in zip(student.parameters(), teacher.parameters()):
                t.data.mul_(momentum).add_((1 - momentum) * s.detach().data)
            centre = 0.9 * centre + 0.1 * torch.cat(told).mean(0, keepdim=True)
        losses.append(loss.item())
    print([round(value, 3) for value in losses])
    assert all(math.isfinite(value) for value in losses)
    assert not torch.equal(teacher[0].norm.weight, torch.ones(24))


if __name__ == "__main__":
    main()
