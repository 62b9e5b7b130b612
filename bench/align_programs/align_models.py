"""Four small models, their data and their training, for bench/align.py: what differs between two
runs of one of them is what was put in, and nothing else."""

import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

STEPS = 3
BATCH = 8
VOCABULARY = 32


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(96, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return self.head(self.drop(x.flatten(1)))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        weights = (q @ k.transpose(1, 2) / 4).masked_fill(~mask, float("-inf")).softmax(-1)
        x = x + self.out(weights @ v)
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)))))


class GPT(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x).transpose(1, 2)


class Expert(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return self.down(F.relu(self.up(x)))


class MoE(nn.Module):
    """Each row goes to the best two of four experts."""

    def __init__(self, width=12):
        super().__init__()
        self.embed = nn.Linear(6, width)
        self.router = nn.Linear(width, 4)
        self.experts = nn.ModuleList(Expert(width) for _ in range(4))
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        x = self.embed(x)
        weights, chosen = self.router(x).softmax(-1).topk(2)
        mixed = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            row, place = (chosen == number).nonzero(as_tuple=True)
            mixed = mixed.index_add(0, row, expert(x[row]) * weights[row, place, None])
        return self.head(self.drop(mixed))


class RNN(nn.Module):
    def __init__(self, width=10):
        super().__init__()
        self.cell = nn.LSTMCell(4, width)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        state = None
        for moment in x.unbind(1):
            state = self.cell(moment, state)
        return self.head(self.drop(state[0]))


def images(count, generator):
    return torch.randn(count, 3, 8, 8, generator=generator), classes(count, generator)


def tokens(count, generator):
    text = torch.randint(VOCABULARY, (count, 9), generator=generator)
    return text[:, :-1].clone(), text[:, 1:].clone()


def vectors(count, generator):
    return torch.randn(count, 6, generator=generator), classes(count, generator)


def sequences(count, generator):
    return torch.randn(count, 5, 4, generator=generator), classes(count, generator)


def classes(count, generator):
    return torch.randint(5, (count,), generator=generator)


MODELS = {"cnn": (CNN, images), "gpt": (GPT, tokens), "moe": (MoE, vectors),
          "rnn": (RNN, sequences)}  # fmt: skip


def prepare(model, way):
    """The model as it is called, and as the optimizer knows it."""
    if way == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if way == "fsdp":
        from torch.distributed.fsdp import fully_shard

        for child in model.children():
            if not isinstance(child, nn.ModuleList) and any(True for _ in child.parameters()):
                fully_shard(child)
        return fully_shard(model)
    return torch.compile(model, backend=way) if way != "plain" else model


def train(name, way="plain", world=1, rank=0, steps=STEPS):
    """A few steps of model `name`; `way`: plain, ddp, fsdp or a backend of torch.compile."""
    random.seed(1)
    torch.manual_seed(7)
    build, make = MODELS[name]
    model = build()
    called = prepare(model, way)
    data = TensorDataset(*make(BATCH * STEPS * world, torch.Generator().manual_seed(11)))
    sampler = DistributedSampler(data, world, rank, shuffle=False) if world > 1 else None
    optimizer = torch.optim.AdamW(called.parameters(), lr=1e-2)
    done = 0
    torch.manual_seed(100 + rank)
    while done < steps:
        for x, y in DataLoader(data, BATCH, sampler=sampler):
            optimizer.zero_grad()
            F.cross_entropy(called(x), y).backward()
            optimizer.step()
            done += 1
            if done == steps:
                break
