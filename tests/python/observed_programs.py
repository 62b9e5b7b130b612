"""Trainings in which an observer shows, if it changes anything: observed_programs.py [extra].

Prints what came out, bit by bit, and how much torch.compile compiled. With `extra` an operation
that changes nothing is done in the middle, so that lists of operations differ.
"""

import hashlib
import json
import sys

import torch
import torch._dynamo
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import checkpoint


class InPlace(nn.Module):
    """What modules return is written before it is used, whole and in part."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 8)
        self.pick = nn.Flatten(0)

    def forward(self, x):
        x = F.relu(self.first(x), inplace=True)
        x = self.second(x)
        x[:, :4].mul_(2)
        view = self.pick(x)  # a view, returned by a module
        view.add_(1)
        return F.dropout(x, 0.1, True, inplace=True)


class Recomputed(nn.Module):
    """A block that does not keep what it computes, in the three ways there are."""

    def __init__(self):
        super().__init__()
        self.early = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
        self.late = nn.Sequential(nn.Linear(6, 6), nn.Tanh())
        self.wrapped = checkpoint_wrapper(nn.Sequential(nn.Linear(6, 6), nn.Sigmoid()))

    def forward(self, x):
        x = checkpoint(self.early, x, use_reentrant=False)
        x = checkpoint(self.late, x, use_reentrant=True)
        return self.wrapped(x)


class Half(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, x):
        x = F.gelu(self.inner(x))
        if EXTRA:
            x = torch.clamp(x, max=1e30)
        return torch.sin(x)


class Compiled(nn.Module):
    """One part is compiled before, one with what is around it, one in place."""

    def __init__(self):
        super().__init__()
        self.before = torch.compile(Half(), backend="aot_eager")
        self.around = Half()
        self.inside = Half()
        self.inside.compile(backend="aot_eager")

    def forward(self, x):
        x = self.before(x)
        if type(self) is Compiled:
            torch._dynamo.graph_break()
        return self.inside(self.around(x))


class PerBlock(Compiled):
    """What is around the compiled parts is not."""


class Plain(nn.Sequential):
    pass


EXTRA = "extra" in sys.argv[1:]


def train(model, called):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(3):
        x = torch.randn(5, 6, generator=torch.Generator().manual_seed(step), requires_grad=True)
        optimizer.zero_grad()
        loss = called(x).square().sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    digest.update(x.grad.numpy().tobytes())
    return [losses, digest.hexdigest()]


def main():
    found = {}
    for kind in (Plain, InPlace, Recomputed, PerBlock, Compiled):
        torch.manual_seed(1)
        model = kind(Half(), Half()) if kind is Plain else kind()
        compiles = kind is Compiled
        called = torch.compile(model, backend="aot_eager") if compiles else model
        found[kind.__name__] = train(model, called)
        del model, called
    counters = torch._dynamo.utils.counters
    found["frames"] = dict(counters["frames"])
    found["breaks"] = sum(counters["graph_break"].values())
    found["graphs"] = counters["stats"]["unique_graphs"]
    print(json.dumps(found))


main()
