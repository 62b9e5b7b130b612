"""Two stages of a pipeline on two ranks, two micro-batches a step: pipeline_program.py CHANGE.

CHANGE, in step 2: none, first (the first stage's weight), last (the last one's loss).
"""

import sys

import torch
import torch.distributed as dist
from torch import nn


def first_stage(layer, x, wrong):
    if wrong:
        layer.weight.data *= 1.5
    out = layer(x)
    dist.send(out.detach(), 1, tag=7)
    return out


def first_backward(out):
    gradient = torch.empty_like(out)
    works = dist.batch_isend_irecv([dist.P2POp(dist.irecv, gradient, 1)])
    [work.wait() for work in works]
    out.backward(gradient)


def last_stage(layer, wrong):
    x = torch.empty(4, 5)
    dist.recv(x, src=0, tag=7)
    x.requires_grad_()
    loss = layer(x).square().sum()
    if wrong:
        loss = loss * 1.5
    loss.backward()
    dist.isend(x.grad, dst=0).wait()


def main():
    dist.init_process_group("gloo")
    rank, change = dist.get_rank(), sys.argv[1]
    torch.manual_seed(rank)
    layer = nn.Linear(3, 5) if rank == 0 else nn.Linear(5, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for step in range(1, 4):
        optimizer.zero_grad()
        for _ in range(2):
            if rank == 0:
                wrong = change == "first" and step == 2
                first_backward(first_stage(layer, torch.randn(4, 3), wrong))
            else:
                last_stage(layer, change == "last" and step == 2)
        optimizer.step()
    dist.destroy_process_group()


main()
