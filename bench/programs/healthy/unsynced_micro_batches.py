"""A language model on two ranks: DDP, four micro-batches of which only the last is synchronised."""

import contextlib
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Mixer(nn.Module):
    """A causal model without attention: a learned lower-triangular mixing of the positions."""

    def __init__(self, vocab=16, width=16, length=12):
        super().__init__()
        self.tok = nn.Embedding(vocab, width)
        self.mix = nn.Parameter(torch.zeros(length, length))
        self.ff = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 32), nn.GELU(),
                                nn.Linear(32, width))  # fmt: skip
        self.head = nn.Linear(width, vocab)

    def forward(self, ids):
        x = self.tok(ids)
        n = ids.shape[1]
        weights = self.mix[:n, :n].masked_fill(torch.ones(n, n).triu(1).bool(), -1e9).softmax(-1)
        x = x + weights @ x
        return self.head(x + self.ff(x))


def micro_batch(generator):
    start = torch.randint(16, (8, 1), generator=generator)
    return (start + 3 * torch.arange(13)) % 16


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    dist.init_process_group(backend="gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(280 + seed)
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    model = DDP(Mixer())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    micro_steps = 4
    losses = []
    for step in range(12):
        total = torch.zeros(())
        for micro in range(micro_steps):
            last = micro == micro_steps - 1
            with contextlib.nullcontext() if last else model.no_sync():
                ids = micro_batch(generator)
                loss = F.cross_entropy(model(ids[:, :-1]).transpose(1, 2), ids[:, 1:])
                (loss / micro_steps).backward()
            total += loss.detach() / micro_steps
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(total)
        losses.append(total.item() / world)
        if rank == 0 and step % 4 == 0:
            print(f"step {step}: loss {losses[-1]:.3f}, norm {norm.item():.3f}")
    dist.destroy_process_group()
    assert sum(losses[-3:]) < sum(losses[:3])


if __name__ == "__main__":
    main()
