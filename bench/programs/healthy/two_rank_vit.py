"""A ViT on two ranks: DDP in bf16 autocast, gradients as views of buckets, metrics gathered."""

import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class PreNorm(nn.Module):
    def __init__(self, dim, inner):
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(dim), inner

    def forward(self, x):
        return x + self.inner(self.norm(x))


class SelfAttention(nn.Module):
    def __init__(self, dim, heads=2):
        super().__init__()
        self.heads = heads
        self.to_qkv, self.to_out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = (t.unflatten(2, (self.heads, -1)).transpose(1, 2)
                   for t in self.to_qkv(x).chunk(3, dim=-1))  # fmt: skip
        attention = torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, dim=-1)
        return self.to_out((attention @ v).transpose(1, 2).flatten(2))


class RegisterViT(nn.Module):
    """A register token that is read by nobody keeps the attention company."""

    def __init__(self, dim=16, classes=4):
        super().__init__()
        self.to_patch = nn.Linear(16, dim)
        self.register = nn.Parameter(torch.randn(1, 1, dim) * 0.02)
        self.pos = nn.Parameter(torch.randn(1, 9, dim) * 0.02)
        mlp = nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim))
        self.layers = nn.Sequential(PreNorm(dim, SelfAttention(dim)), PreNorm(dim, mlp))
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, classes))

    def forward(self, images):
        x = self.to_patch(F.unfold(images, 4, stride=4).mT) + self.pos
        x = self.layers(torch.cat([x, self.register.expand(len(x), -1, -1)], dim=1))
        return self.head(x[:, :-1].mean(dim=1))


def reduce_mean(value):
    total = torch.tensor(value)
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    return total.item() / dist.get_world_size()


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(480 + seed)
    kinds = torch.randn(4, 1, 12, 12)
    model = DistributedDataParallel(RegisterViT(), gradient_as_bucket_view=True)
    torch.manual_seed(4800 + 10 * seed + rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.05)
    losses = []
    for step in range(14):
        labels = torch.randint(4, (16,))
        images = kinds[labels] + 0.5 * torch.randn(16, 1, 12, 12)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(reduce_mean(loss.item()))
    model.eval()
    with torch.no_grad():
        labels = torch.randint(4, (16,))
        right = model(kinds[labels]).argmax(1) == labels
        everywhere = [torch.empty_like(right) for _ in range(dist.get_world_size())]
        dist.all_gather(everywhere, right)
    if rank == 0:
        print(f"{losses[0]:.3f} -> {losses[-1]:.3f}; {torch.cat(everywhere).sum().item()} of 32")
    dist.destroy_process_group()
    assert sum(losses[-4:]) < sum(losses[:4])


if __name__ == "__main__":
    main()
