"""Two stages of a pipeline on two ranks, or in one process, two micro-batches a step:
pipeline_program.py CHANGE.

CHANGE, in step 2: none, first (the first stage's weight), last (the last one's loss).
"""

import os
import sys

import gloo_end
import torch
import torch.distributed as dist
from torch import nn


class Stages(nn.Module):
    """Those that this process has."""

    def __init__(self, has_first, has_last):
        super().__init__()
        torch.manual_seed(1)
        last = nn.Linear(5, 2)
        torch.manual_seed(0)
        first = nn.Linear(3, 5)
        if has_first:
            self.first = first
        if has_last:
            self.last = last

    def forward(self, x):
        for stage in ("first", "last"):
            if hasattr(self, stage):
                x = getattr(self, stage)(x)
        return x


def run_first(model, x):
    out = model(x)
    dist.send(out.detach(), 1, tag=7)
    gradient = torch.empty_like(out)
    works = dist.batch_isend_irecv([dist.P2POp(dist.irecv, gradient, 1)])
    [work.wait() for work in works]
    out.backward(gradient)


def run_last(model, scale):
    x = torch.empty(4, 5)
    dist.recv(x, src=0, tag=7)
    x.requires_grad_()
    (model(x).square().sum() * scale).backward()
    dist.isend(x.grad, dst=0).wait()


def main():
    change, ranks = sys.argv[1], int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        dist.init_process_group("gloo")
    rank = dist.get_rank() if ranks > 1 else None
    model = Stages(rank != 1, rank != 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1, 4):
        optimizer.zero_grad()
        scale = 1.5 if change == "last" and step == 2 else 1.0
        if step == 2 and change == "first" and rank != 1:
            model.first.weight.data *= 1.5
        for _ in range(2):
            x = torch.randn(4, 3)
            if rank is None:
                (model(x).square().sum() * scale).backward()
            elif rank == 0:
                run_first(model, x)
            else:
                run_last(model, scale)
        optimizer.step()
    if ranks > 1:
        gloo_end.leave()


main()
