"""A mixture of experts with expert parallelism: a rank holds some of the experts, computes their
part of every token, and the parts are summed over the ranks. Dense routing: every expert sees every
token, weighted by the router.

    tocsin plan export examples/verify/moe.py:build --mesh dp=2,ep=2 -o moe.plan --logical one.plan
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import _functional_collectives as collectives
from torch.nn import functional as F

from tocsin.plan import shard_batch

WIDTH, HIDDEN, EXPERTS, TOKENS = 12, 20, 4, 24


class CopyToRanks(torch.autograd.Function):
    """The same value on every rank; its gradients are summed."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return collectives.all_reduce(gradient, "sum", ctx.group), None


class SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        return collectives.all_reduce(x, "sum", group)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class MoE(nn.Module):
    def __init__(self, ranks=1, rank=0, group=None):
        super().__init__()
        local = EXPERTS // ranks
        self.group, self.first = group, rank * local
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.up = nn.Parameter(torch.randn(local, WIDTH, HIDDEN) * 0.1)
        self.down = nn.Parameter(torch.randn(local, HIDDEN, WIDTH) * 0.1)

    def forward(self, x):
        weights = F.softmax(self.router(x), dim=-1)
        if self.group is not None:
            x, weights = CopyToRanks.apply(x, self.group), CopyToRanks.apply(weights, self.group)
        local = self.up.shape[0]
        weights = weights[:, self.first:self.first + local].t().unsqueeze(2)
        hidden = F.silu(torch.bmm(x.expand(local, -1, -1), self.up))
        out = (torch.bmm(hidden, self.down) * weights).sum(0)
        return out if self.group is None else SumOverRanks.apply(out, self.group)


def build(mesh):
    batch = {"x": shard_batch(mesh, "x", (TOKENS, WIDTH), shard={"dp": 0}),
             "y": shard_batch(mesh, "y", (TOKENS, WIDTH), shard={"dp": 0})}
    model = MoE() if mesh is None else MoE(mesh["ep"].size(), mesh["ep"].get_local_rank(),
                                           mesh["ep"].get_group())

    def step(model, batch):
        loss = (model(batch["x"]) - batch["y"]).pow(2).mean()
        loss.backward()
        if mesh is not None:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG, group=mesh["dp"].get_group())
        return loss

    return {"model": model, "batch": batch, "step_fn": step,
            "shards": {"up": {"ep": 0}, "down": {"ep": 0}}}
