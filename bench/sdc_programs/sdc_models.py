"""What is trained in bench/sdc.py: the models of bench/align.py, and the healthy configurations."""

import contextlib
import dataclasses

import torch
import torch.nn.functional as F
from align_models import MODELS, RNN, sequences
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 4


def optimizer_of(name, parameters):
    if name == "cnn":
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
    return torch.optim.AdamW(parameters, lr=0.01)


def compute_loss(model, batch):
    x, y = batch
    return F.cross_entropy(model(x), y)


def batch_of(make, step, rank, micro=0, seed=0):
    number = ((seed * 100003 + step) * 64 + rank) * 8 + micro
    return make(BATCH, torch.Generator().manual_seed(number))


# ---- healthy configurations ----------------------------------------------------------------------


class Branches(nn.Module):
    """Ranks leave out different branches; two layers share a weight, one is frozen."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.left, self.right = nn.Linear(6, 6), nn.Linear(6, 6)
        self.tied = nn.Linear(6, 6)
        self.tied.weight = self.first.weight
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.head = nn.Linear(6, 5)

    def forward(self, x):
        x = self.first(x)
        branch = self.left if float(x.detach().sum()) > 0 else self.right
        return self.head(self.frozen(self.tied(F.relu(branch(x)))))


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(),
                                    nn.Dropout(0.1), nn.Linear(12, 5))  # fmt: skip

    def forward(self, x):
        return self.layers(x)


@dataclasses.dataclass(frozen=True)
class Healthy:
    """One configuration: what differs from three ranks of plain DistributedDataParallel."""

    name: str
    model: str
    seed: int = 0
    bfloat16: bool = False
    autocast: object = None  # a dtype
    scaler: bool = False
    accumulate: int = 1
    max_norm: float | None = None
    deterministic: bool = False
    audit_every: int = 10
    wrapped: tuple = ()  # options of DistributedDataParallel
    fused: bool = False

    def build(self):
        torch.manual_seed(self.seed + 7)
        builders = {**{name: build for name, (build, _) in MODELS.items()},
                    "branches": Branches, "normed": Normed, "rnn": RNN}  # fmt: skip
        model = builders[self.model]()
        return model.bfloat16() if self.bfloat16 else model

    def make(self):
        if self.model == "rnn":
            return sequences
        return MODELS[self.model][1] if self.model in MODELS else MODELS["moe"][1]

    def wrap(self, model):
        return DistributedDataParallel(model, **dict(self.wrapped))

    def cast(self):
        if self.autocast is None:
            return contextlib.nullcontext()
        return torch.autocast("cpu", self.autocast)


def _options(**options):
    return tuple(options.items())


HEALTHY = (
    Healthy("mlp, BatchNorm and dropout", "normed", deterministic=True),
    Healthy("mlp, another seed, losses only", "normed", seed=11, audit_every=20),
    Healthy("cnn, BatchNorm and dropout", "cnn", audit_every=20, deterministic=True),
    Healthy("gpt, dropout, clipped", "gpt", max_norm=1.0, audit_every=20, deterministic=True),
    Healthy("gpt in bfloat16", "gpt", bfloat16=True, audit_every=20),
    Healthy("mlp under autocast", "normed", autocast=torch.bfloat16, deterministic=True),
    Healthy("mlp with GradScaler", "normed", autocast=torch.float16, scaler=True, max_norm=1.0),
    Healthy("mlp, accumulated under no_sync", "normed", accumulate=3, audit_every=20,
            deterministic=True),
    Healthy("unused branches, tied and frozen", "branches", audit_every=10, deterministic=True,
            wrapped=_options(find_unused_parameters=True)),
    Healthy("mixture of experts, views of buckets", "moe", audit_every=20, deterministic=True,
            wrapped=_options(gradient_as_bucket_view=True)),
    Healthy("rnn, static graph", "rnn", seed=3, audit_every=20, deterministic=True,
            wrapped=_options(static_graph=True)),
)  # fmt: skip
