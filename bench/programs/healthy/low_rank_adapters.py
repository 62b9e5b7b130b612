"""Adapters of low rank on frozen projections: B starts at zero, only they are saved; merged."""

import math
import os
import sys
import tempfile

import torch
import torch.nn.functional as F
from torch import nn


class LoraLinear(nn.Module):
    def __init__(self, base, rank=4, alpha=8):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.empty(rank, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scaling = alpha / rank
        self.dropout = nn.Dropout(0.05)
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, x):
        update = self.dropout(x) @ self.lora_A.t() @ self.lora_B.t()
        return self.base(x) + self.scaling * update

    @torch.no_grad()
    def merge(self):
        self.base.weight += self.scaling * self.lora_B @ self.lora_A
        return self.base


class Model(nn.Module):
    def __init__(self, vocab=24, width=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.q_proj, self.v_proj = nn.Linear(width, width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocab)

    def forward(self, ids):
        x = self.embed(ids)
        q, v = self.q_proj(x), self.v_proj(x)
        y = F.scaled_dot_product_attention(q, x, v, is_causal=True)
        return self.lm_head(self.norm(x + y))


def lm_loss(model, ids):
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def corpus(stride, count=24):
    return (torch.randint(24, (count, 1)) + stride * torch.arange(10)) % 24


def pretrain(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(10):
        lm_loss(model, corpus(1)).backward()
        optimizer.step()
        optimizer.zero_grad()


def main(seed):
    torch.manual_seed(250 + seed)
    model = Model()
    pretrain(model)
    model.requires_grad_(False)
    model.q_proj, model.v_proj = LoraLinear(model.q_proj), LoraLinear(model.v_proj)
    trainable = {n: p for n, p in model.named_parameters() if p.requires_grad}
    print(f"{sum(p.numel() for p in trainable.values())} trainable parameters")
    optimizer = torch.optim.AdamW(trainable.values(), lr=3e-2, weight_decay=0.0)
    warmup = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=3)
    losses = []
    for step in range(16):
        loss = lm_loss(model, corpus(5))
        loss.backward()
        optimizer.step()
        warmup.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "adapter.pt")
        torch.save({n: t for n, t in model.state_dict().items() if "lora_" in n}, path)
        print(sorted(torch.load(path, weights_only=True)))
    model.eval()
    ids = corpus(5)
    with torch.no_grad():
        adapted = lm_loss(model, ids)
        model.q_proj, model.v_proj = model.q_proj.merge(), model.v_proj.merge()
        merged = lm_loss(model, ids)
    assert torch.allclose(adapted, merged, atol=1e-4)
    assert sum(losses[-4:]) < sum(losses[:4])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
