"""A two-layer MLP, tensor-parallel with DTensor and data-parallel by an all-reduce of gradients.

    tocsin plan export examples/verify/mlp.py:build --mesh dp=2,tp=2 -o mlp.plan --logical one.plan
    tocsin verify one.plan mlp.plan
"""

import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from tocsin.plan import shard_batch


class MLP(nn.Module):
    def __init__(self, width=12, hidden=20):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        return self.down(nn.functional.silu(self.up(x)))


def loss_fn(model, batch):
    return (model(batch["x"]) - batch["y"]).pow(2).mean()


def average_gradients(model, mesh):
    """Data parallelism by hand: each gradient is averaged as soon as it is there."""
    group = mesh["dp"].get_group()

    def average(parameter):
        gradient = parameter.grad
        local = gradient.to_local() if isinstance(gradient, DTensor) else gradient
        dist.all_reduce(local, op=dist.ReduceOp.AVG, group=group)

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(average)


def build(mesh):
    model = MLP()
    batch = {"x": shard_batch(mesh, "x", (8, 12), shard={"dp": 0}),
             "y": shard_batch(mesh, "y", (8, 12), shard={"dp": 0})}
    if mesh is not None:
        parallelize_module(model, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        if mesh["dp"].size() > 1:
            average_gradients(model, mesh)
    return {"model": model, "batch": batch, "loss_fn": loss_fn}
