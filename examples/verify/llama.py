"""A Llama-style transformer: RMSNorm, rotary positions, grouped-query attention, SwiGLU; tensor
parallel with DTensor, with or without sequence parallelism, and data parallel.

    tocsin plan export examples/verify/llama.py:build --mesh dp=2,tp=2 -o tp.plan --logical one.plan
    tocsin plan export examples/verify/llama.py:build --mesh tp=2 --arg sequence=1 -o sp.plan
    tocsin plan export examples/verify/llama.py:build --mesh tp=2 --arg vocabulary=1 -o vp.plan
"""

import torch
from torch import nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput,
                                               RowwiseParallel, SequenceParallel, loss_parallel,
                                               parallelize_module)
from torch.nn import functional as F

from mlp import average_gradients
from tocsin.plan import shard_batch

VOCABULARY, WIDTH, HEADS, KV_HEADS, HIDDEN, LAYERS, BATCH, LENGTH = 52, 40, 4, 2, 56, 2, 4, 12


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rotary_tables(length, width, theta=10000.0):
    frequencies = theta ** (-torch.arange(0, width, 2).float() / width)
    angles = torch.outer(torch.arange(length).float(), frequencies)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    """x: [batch, length, heads, width]; the halves of the width are the pairs."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = cos[None, :, None, :], sin[None, :, None, :]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class Attention(nn.Module):
    def __init__(self, width, heads, kv_heads):
        super().__init__()
        self.head_width = width // heads
        self.repeats = heads // kv_heads
        self.wq = nn.Linear(width, heads * self.head_width, bias=False)
        self.wk = nn.Linear(width, kv_heads * self.head_width, bias=False)
        self.wv = nn.Linear(width, kv_heads * self.head_width, bias=False)
        self.wo = nn.Linear(width, width, bias=False)

    def forward(self, x, cos, sin):
        batch, length = x.shape[:2]
        # The number of heads is the local one: -1.
        q = self.wq(x).view(batch, length, -1, self.head_width)
        k = self.wk(x).view(batch, length, -1, self.head_width)
        v = self.wv(x).view(batch, length, -1, self.head_width)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k = k.repeat_interleave(self.repeats, dim=2)
        v = v.repeat_interleave(self.repeats, dim=2)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        scores = q @ k.transpose(2, 3) * self.head_width ** -0.5
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
        out = F.softmax(scores, dim=-1) @ v
        return self.wo(out.transpose(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.w1 = nn.Linear(width, hidden, bias=False)
        self.w2 = nn.Linear(hidden, width, bias=False)
        self.w3 = nn.Linear(width, hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, width, heads, kv_heads, hidden):
        super().__init__()
        self.attention_norm = RMSNorm(width)
        self.attention = Attention(width, heads, kv_heads)
        self.ffn_norm = RMSNorm(width)
        self.ffn = FeedForward(width, hidden)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.ffn(self.ffn_norm(x))


class Llama(nn.Module):
    def __init__(self, layers=LAYERS):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Block(WIDTH, HEADS, KV_HEADS, HIDDEN) for _ in range(layers))
        self.norm = RMSNorm(WIDTH)
        self.output = nn.Linear(WIDTH, VOCABULARY, bias=False)
        cos, sin = rotary_tables(LENGTH, WIDTH // HEADS)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.output(self.norm(x))


def loss_fn(model, batch):
    logits = model(batch["tokens"])
    return F.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten())


def vocabulary_parallel_step(model, batch):
    """Each rank keeps the logits of its part of the vocabulary."""
    with loss_parallel():
        loss = loss_fn(model, batch)
        loss.backward()
    return loss


def tensor_parallel(model, mesh, sharded_logits=False):
    output = (ColwiseParallel(output_layouts=Shard(-1), use_local_output=False) if sharded_logits
              else ColwiseParallel(output_layouts=Replicate()))
    parallelize_module(model, mesh, {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate()),
        "output": output,
    })
    for layer in model.layers:
        parallelize_module(layer, mesh, {
            "attention.wq": ColwiseParallel(), "attention.wk": ColwiseParallel(),
            "attention.wv": ColwiseParallel(), "attention.wo": RowwiseParallel(),
            "ffn.w1": ColwiseParallel(), "ffn.w3": ColwiseParallel(), "ffn.w2": RowwiseParallel(),
        })


def sequence_parallel(model, mesh):
    """Between the matrix products the tokens of a sequence are split over the same ranks."""
    parallelize_module(model, mesh, {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    })
    for layer in model.layers:
        parallelize_module(layer, mesh, {
            "attention_norm": SequenceParallel(),
            "attention": PrepareModuleInput(input_layouts=(Shard(1), None, None),
                                            desired_input_layouts=(Replicate(), None, None)),
            "attention.wq": ColwiseParallel(), "attention.wk": ColwiseParallel(),
            "attention.wv": ColwiseParallel(),
            "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
            "ffn_norm": SequenceParallel(),
            "ffn": PrepareModuleInput(input_layouts=(Shard(1),),
                                      desired_input_layouts=(Replicate(),)),
            "ffn.w1": ColwiseParallel(), "ffn.w3": ColwiseParallel(),
            "ffn.w2": RowwiseParallel(output_layouts=Shard(1)),
        })


def local_batch(mesh):
    return {name: shard_batch(mesh, name, (BATCH, LENGTH), shard={"dp": 0}, dtype=torch.int64,
                              high=VOCABULARY) for name in ("tokens", "targets")}


def build(mesh, sequence=0, vocabulary=0):
    model = Llama()
    job = {"model": model, "batch": local_batch(mesh), "loss_fn": loss_fn}
    if mesh is not None:
        if sequence:
            sequence_parallel(model, mesh["tp"])
        else:
            tensor_parallel(model, mesh["tp"], sharded_logits=vocabulary)
        if vocabulary:
            job["step_fn"] = vocabulary_parallel_step
        if "dp" in mesh.mesh_dim_names:
            average_gradients(model, mesh)
    return job
