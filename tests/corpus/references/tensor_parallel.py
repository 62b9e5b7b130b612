"""Two ranks share one feed-forward layer by columns; norms are replicated; the norm is global.

What is dropped is replicated, too: from the first step on both ranks draw the same numbers.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0


class Reduced(torch.autograd.Function):
    """Forward: sum over ranks. Backward: the gradient as it is."""

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Copied(torch.autograd.Function):
    """Forward: as it is. Backward: sum over ranks."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient


class FeedForward(nn.Module):
    def __init__(self, width, rank):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        torch.manual_seed(340 + rank + SEED)
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, width, bias=False)
        self.dropped = nn.Dropout(0.15)
        for parameter in [*self.up.parameters(), *self.down.parameters()]:
            parameter.tensor_model_parallel = True

    def forward(self, x):
        hidden = torch.relu(self.up(Copied.apply(self.norm(x))))
        return x + self.dropped(Reduced.apply(self.down(hidden)))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = nn.Sequential(FeedForward(8, rank), FeedForward(8, rank))
    torch.manual_seed(341 + SEED)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    data = torch.Generator().manual_seed(34 + SEED)
    for step in range(8):
        x = torch.randn(16, 8, generator=data)
        optimizer.zero_grad()
        (model(x) - x.roll(2, 1)).square().mean().backward()
        own = sum(p.grad.square().sum() for n, p in model.named_parameters() if "norm" not in n)
        dist.all_reduce(own)
        own += sum(p.grad.square().sum() for n, p in model.named_parameters() if "norm" in n)
        nn.utils.clip_grads_with_norm_(model.parameters(), 1.0, own.sqrt())
        optimizer.step()
    if rank == 0:
        print("done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
