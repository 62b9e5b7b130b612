"""A Llama-like model: rotary positions, grouped queries, SwiGLU, recomputed layers, bf16."""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
        return (x.float() * scale).type_as(x) * self.weight


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Attention(nn.Module):
    def __init__(self, dim, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, dim // heads
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wk = nn.Linear(dim, kv_heads * self.size, bias=False)
        self.wv = nn.Linear(dim, kv_heads * self.size, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)

    def forward(self, x, cos, sin):
        b, t, d = x.shape
        q = rotate(self.wq(x).view(b, t, self.heads, -1).transpose(1, 2), cos, sin)
        k = rotate(self.wk(x).view(b, t, self.kv_heads, -1).transpose(1, 2), cos, sin)
        v = self.wv(x).view(b, t, self.kv_heads, -1).transpose(1, 2)
        repeats = self.heads // self.kv_heads
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
        scores = (q @ k.transpose(2, 3)) * self.size**-0.5
        hidden = torch.ones(t, t, dtype=torch.bool).triu(1)
        weights = scores.float().masked_fill(hidden, float("-inf")).softmax(-1)
        return self.wo((weights.type_as(v) @ v).transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, dim, heads, kv_heads):
        super().__init__()
        self.attention_norm, self.ffn_norm = RMSNorm(dim), RMSNorm(dim)
        self.attention = Attention(dim, heads, kv_heads)
        self.w1, self.w3 = (nn.Linear(dim, 2 * dim, bias=False) for _ in range(2))
        self.w2 = nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.attention_norm(x), cos, sin)
        y = self.ffn_norm(x)
        return x + self.w2(F.silu(self.w1(y)) * self.w3(y))


class Llama(nn.Module):
    def __init__(self, vocab=32, dim=32, depth=2, length=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim, 4, 2) for _ in range(depth))
        self.norm, self.lm_head = RMSNorm(dim), nn.Linear(dim, vocab, bias=False)
        angles = torch.outer(torch.arange(length), 1000.0 ** (-torch.arange(4) / 4))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, ids):
        x, n = self.embed(ids), ids.shape[1]
        for block in self.blocks:
            if self.training:
                x = checkpoint(block, x, self.cos[:n], self.sin[:n], use_reentrant=False)
            else:
                x = block(x, self.cos[:n], self.sin[:n])
        return self.lm_head(self.norm(x))


def main():
    torch.manual_seed(220 + (int(sys.argv[1]) if len(sys.argv) > 1 else 0))
    model = Llama()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, betas=(0.9, 0.95), eps=1e-5)
    losses = []
    for step in range(16):
        start, stride = torch.randint(32, (2, 12, 1))
        ids = (start + (stride % 3 + 1) * torch.arange(21)) % 32
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.float().reshape(-1, 32), ids[:, 1:].reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        print(f"step {step} loss {losses[-1]:.3f} grad norm {norm.item():.2f}")
    assert sum(losses[-4:]) < sum(losses[:4])


if __name__ == "__main__":
    main()
