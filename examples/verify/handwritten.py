"""A transformer with hand-written tensor and sequence parallelism (the way Megatron-LM does it:
autograd functions around collectives), and twelve ways to get it wrong.

    tocsin plan export examples/verify/handwritten.py:build --mesh dp=2,tp=2 -o good.plan \\
        --logical one.plan
    tocsin plan export examples/verify/handwritten.py:build --mesh dp=2,tp=2 -o bad.plan \\
        --arg bug=norm_gradient

BUGS says what each does. All of them train: the loss goes down, only not as it should.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import _functional_collectives as collectives
from torch.nn import functional as F

from llama import RMSNorm, rotary_tables, rotate
from tocsin.plan import shard_batch

VOCABULARY, WIDTH, HEADS, HIDDEN, BATCH, LENGTH = 52, 40, 4, 56, 4, 12

BUGS = {
    "copy_backward": "the gradient at the input of the column-parallel products is not summed",
    "row_forward": "the row-parallel product of the feed-forward part is not summed",
    "wrong_axis": "gradients are averaged over the tensor-parallel ranks",
    "loss_twice": "the loss is divided by the data-parallel size, and gradients averaged as well",
    "sum_gradients": "gradients are summed over the data-parallel ranks, not averaged",
    "norm_gradient": "gradients of norm weights under sequence parallelism are not summed",
    "position_offset": "every sequence shard adds the positions of the first",
    "epsilon": "one tensor-parallel rank normalises with another epsilon",
    "scale": "attention scores are scaled by the width of all local heads",
    "bias_early": "a bias is added before the sum over ranks: once for each rank",
    "gather_dim": "sequence shards are joined along the batch and then taken for whole sequences",
    "rotation": "one rank rotates queries and keys the other way round",
}

# PyTorch 2.13 calls them so; before, all_gather_tensor and reduce_scatter_tensor.
all_gather = getattr(collectives, "all_gather_single", collectives.all_gather_tensor)
reduce_scatter = getattr(collectives, "reduce_scatter_single", collectives.reduce_scatter_tensor)


class Parallel:
    """The ranks of one tensor-parallel group; without a mesh, one rank and no communication."""

    def __init__(self, mesh, bug):
        self.size = mesh["tp"].size() if mesh is not None else 1
        self.rank = mesh["tp"].get_local_rank() if mesh is not None else 0
        self.group = mesh["tp"].get_group() if mesh is not None else None
        self.bug = bug

    def sum(self, x):
        return collectives.all_reduce(x, "sum", self.group) if self.size > 1 else x

    def gather(self, x, dim):
        if self.size == 1:
            return x
        if self.bug == "gather_dim":
            shards = all_gather(x, 0, self.group)
            return shards.reshape(x.shape[0], -1, *x.shape[2:])
        return all_gather(x, dim, self.group)

    def scatter_sum(self, x, dim):
        return (reduce_scatter(x, "sum", dim, self.group) if self.size > 1 else x)

    def part(self, x, dim):
        return x.chunk(self.size, dim)[self.rank]


class CopyToRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, ranks):
        ctx.ranks = ranks
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        if ctx.ranks.bug == "copy_backward":
            return gradient, None
        return ctx.ranks.sum(gradient), None


class SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, ranks):
        return ranks.sum(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class GatherSequence(torch.autograd.Function):
    """Shards of the sequence in, the whole out; their gradients are summed and scattered."""

    @staticmethod
    def forward(ctx, x, ranks):
        ctx.ranks = ranks
        return ranks.gather(x, 1)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.ranks.scatter_sum(gradient, 1), None


class ScatterSequence(torch.autograd.Function):
    """Partial sums of the whole in, shards of the sequence of the sum out."""

    @staticmethod
    def forward(ctx, x, ranks):
        ctx.ranks = ranks
        return ranks.scatter_sum(x, 1)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.ranks.gather(gradient, 1), None


class Attention(nn.Module):
    def __init__(self, ranks):
        super().__init__()
        self.ranks, self.head_width = ranks, WIDTH // HEADS
        local = WIDTH // ranks.size
        self.q = nn.Linear(WIDTH, local, bias=False)
        self.k = nn.Linear(WIDTH, local, bias=False)
        self.v = nn.Linear(WIDTH, local, bias=False)
        self.o = nn.Linear(local, WIDTH, bias=False)

    def forward(self, x, cos, sin):
        x = GatherSequence.apply(x, self.ranks)
        batch, length = x.shape[:2]
        if self.ranks.bug == "rotation" and self.ranks.rank == 1:
            sin = -sin
        q = rotate(self.q(x).view(batch, length, -1, self.head_width), cos, sin).transpose(1, 2)
        k = rotate(self.k(x).view(batch, length, -1, self.head_width), cos, sin).transpose(1, 2)
        v = self.v(x).view(batch, length, -1, self.head_width)
        width = q.shape[1] * q.shape[3] if self.ranks.bug == "scale" else q.shape[3]
        scores = q @ k.transpose(2, 3) * width ** -0.5
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = F.softmax(scores.masked_fill(future, float("-inf")), dim=-1)
        out = (weights @ v.transpose(1, 2)).transpose(1, 2).reshape(batch, length, -1)
        return ScatterSequence.apply(self.o(out), self.ranks)


class FeedForward(nn.Module):
    """Not sequence-parallel inside: the whole sequence is gathered, and summed at the end."""

    def __init__(self, ranks):
        super().__init__()
        self.ranks = ranks
        local = HIDDEN // ranks.size
        self.gate = nn.Linear(WIDTH, local, bias=False)
        self.up = nn.Linear(WIDTH, local, bias=False)
        self.down = nn.Linear(local, WIDTH, bias=False)
        self.bias = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x):
        x = CopyToRanks.apply(x, self.ranks)
        x = self.down(F.silu(self.gate(x)) * self.up(x))
        if self.ranks.bug == "bias_early":
            x = x + self.bias
        if self.ranks.bug != "row_forward":
            x = SumOverRanks.apply(x, self.ranks)
        return x if self.ranks.bug == "bias_early" else x + self.bias


class Model(nn.Module):
    def __init__(self, ranks):
        super().__init__()
        self.ranks = ranks
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        self.norm = RMSNorm(WIDTH)
        self.attention = Attention(ranks)
        self.ffn_norm = RMSNorm(WIDTH)
        self.ffn = FeedForward(ranks)
        self.output = nn.Linear(WIDTH, VOCABULARY, bias=False)
        if ranks.bug == "epsilon" and ranks.rank == 1:
            self.ffn_norm.eps = 1e-3
        cos, sin = rotary_tables(LENGTH, WIDTH // HEADS)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)

    def forward(self, tokens):
        ranks = self.ranks
        x = self.embedding(ranks.part(tokens, 1))  # from here on a shard of the sequence
        first = 0 if ranks.bug == "position_offset" else ranks.rank * x.shape[1]
        x = x + self.positions[first:first + x.shape[1]]
        x = x + self.attention(self.norm(x), self.cos, self.sin)
        x = GatherWhole.apply(x, ranks)
        x = x + self.ffn(self.ffn_norm(x))
        return self.output(x)


class GatherWhole(torch.autograd.Function):
    """Shards of the sequence in, the whole out, on which all ranks then compute the same."""

    @staticmethod
    def forward(ctx, x, ranks):
        ctx.ranks = ranks
        return ranks.gather(x, 1)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.ranks.part(gradient, 1).contiguous(), None


def synchronise(model, mesh, bug):
    """Averages gradients over data-parallel ranks; sums those of parameters that see a part of the
    sequence only over tensor-parallel ranks."""
    sequence_parallel = [model.embedding.weight, model.positions]
    if bug != "norm_gradient":
        sequence_parallel.append(model.norm.weight)
    tensor_group = mesh["tp"].get_group()
    data_group = tensor_group if bug == "wrong_axis" else mesh["dp"].get_group()
    operation = dist.ReduceOp.SUM if bug == "sum_gradients" else dist.ReduceOp.AVG
    for parameter in sequence_parallel:
        dist.all_reduce(parameter.grad, group=tensor_group)
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, op=operation, group=data_group)


def build(mesh, bug=""):
    if bug and bug not in BUGS:
        raise ValueError(f"no bug {bug}; there are {', '.join(BUGS)}")
    ranks = Parallel(mesh, bug)
    model = Model(ranks)
    batch = {name: shard_batch(mesh, name, (BATCH, LENGTH), shard={"dp": 0}, dtype=torch.int64,
                               high=VOCABULARY) for name in ("tokens", "targets")}

    def step(model, batch):
        loss = F.cross_entropy(model(batch["tokens"]).flatten(0, 1), batch["targets"].flatten())
        if bug == "loss_twice":
            (loss / mesh["dp"].size()).backward()
        else:
            loss.backward()
        if mesh is not None:
            synchronise(model, mesh, bug)
        return loss

    columns = ["attention.q", "attention.k", "attention.v", "ffn.gate", "ffn.up"]
    shards = {f"{name}.weight": {"tp": 0} for name in columns}
    shards |= {"attention.o.weight": {"tp": 1}, "ffn.down.weight": {"tp": 1}}
    return {"model": model, "batch": batch, "step_fn": step, "shards": shards}
