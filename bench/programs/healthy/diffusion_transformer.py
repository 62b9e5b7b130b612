"""A diffusion transformer: adaptive norms whose gates start at zero, a frozen position table."""

import sys
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn

config = SimpleNamespace(patch=2, size=8, hidden=32, heads=4, depth=2, steps=18, batch=24)


def modulate(x, shift, scale):
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class DiTBlock(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(hidden, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(hidden, elementwise_affine=False)
        self.qkv, self.proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.heads = heads
        self.mlp = nn.Sequential(
            nn.Linear(hidden, 2 * hidden),
            nn.GELU(approximate="tanh"),
            nn.Linear(2 * hidden, hidden),
        )
        self.adaLN = nn.Sequential(nn.SiLU(), nn.Linear(hidden, 6 * hidden))
        nn.init.zeros_(self.adaLN[1].weight)
        nn.init.zeros_(self.adaLN[1].bias)

    def attend(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, c))

    def forward(self, x, c):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.adaLN(c).chunk(6, dim=1)
        x = x + gate1.unsqueeze(1) * self.attend(modulate(self.norm1(x), shift1, scale1))
        return x + gate2.unsqueeze(1) * self.mlp(modulate(self.norm2(x), shift2, scale2))


class DiT(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.patch, tokens = cfg.patch, (cfg.size // cfg.patch) ** 2
        self.x_embed = nn.Linear(cfg.patch**2, cfg.hidden)
        self.pos = nn.Parameter(torch.randn(1, tokens, cfg.hidden) * 0.2, requires_grad=False)
        self.t_embed = nn.Sequential(
            nn.Linear(1, cfg.hidden), nn.SiLU(), nn.Linear(cfg.hidden, cfg.hidden)
        )
        self.y_embed = nn.Embedding(2, cfg.hidden)
        self.blocks = nn.ModuleList(DiTBlock(cfg.hidden, cfg.heads) for _ in range(cfg.depth))
        self.final = nn.Linear(cfg.hidden, cfg.patch**2)
        nn.init.zeros_(self.final.weight)
        nn.init.zeros_(self.final.bias)

    def forward(self, x, t, y):
        tokens = F.unfold(x, self.patch, stride=self.patch).transpose(1, 2)
        h = self.x_embed(tokens) + self.pos
        c = self.t_embed(t.unsqueeze(1)) + self.y_embed(y)
        for block in self.blocks:
            h = block(h, c)
        return F.fold(self.final(h).transpose(1, 2), x.shape[2:], self.patch, stride=self.patch)


def main(seed):
    torch.manual_seed(360 + seed)
    model = DiT(config)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=5e-3, weight_decay=0)
    stripes = torch.ones(8, 8) * torch.tensor([1.0, -1.0]).repeat(4)
    losses = []
    for _ in range(config.steps):
        y = torch.randint(2, (config.batch,))
        x0 = torch.stack([stripes, stripes.t()])[y].unsqueeze(1)
        t, noise = torch.rand(config.batch), torch.randn(config.batch, 1, 8, 8)
        tt = t.view(-1, 1, 1, 1)
        predicted = model((1 - tt) * x0 + tt * noise, t, y)
        loss = F.mse_loss(predicted, noise - x0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.inference_mode():
        x, y = torch.randn(2, 1, 8, 8), torch.tensor([0, 1])
        for i in range(5, 0, -1):
            x = x - model(x, torch.full((2,), i / 5), y) / 5
    print(f"{losses[0]:.3f} -> {losses[-1]:.3f}, samples within {x.abs().max().item():.2f}")
    assert sum(losses[-4:]) < sum(losses[:4])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
