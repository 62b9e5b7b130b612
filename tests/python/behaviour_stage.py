"""What the behaviour checks share: models, tensors, and the list of checks."""

import os
import traceback
import warnings

import torch
import torch.nn.functional as F
from torch import nn

CHECKS = {}
x = torch.arange(12.0).reshape(3, 4) / 7
image = torch.arange(64.0).reshape(1, 1, 8, 8) / 50


def check(function):
    CHECKS[function.__name__] = function
    return function


class Recording(torch.Tensor):
    seen: list = []

    @classmethod
    def __torch_function__(cls, func, kinds, args=(), kwargs=None):
        cls.seen.append(func)
        return super().__torch_function__(func, kinds, args, kwargs or {})


HANDLERS = {torch.add: lambda *_: "add", F.relu: lambda *_, **__: "relu"}


class Handled(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, kinds, args=(), kwargs=None):
        handler = HANDLERS.get(func)
        return handler(*args, **(kwargs or {})) if handler else NotImplemented


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.activation = F.relu
        self.builtin = torch.tanh

    def forward(self, t):
        return self.builtin(self.activation(self.linear(t)))


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(1, 2, 3)
        self.linear = nn.Linear(2, 3)

    def forward(self, t):
        t = F.max_pool2d(F.relu(self.convolution(t)), 2)
        return self.linear(torch.flatten(torch.add(t, t).mean((2, 3)), 1))


class Variadic(nn.Module):
    def forward(self, *ts, scale=2.0, **extra):
        return torch.add(ts[0], ts[1]) * scale + extra["c"]


def scripted(t):
    return torch.add(F.relu(t), torch.sigmoid(t))


def scripted_pool(t):
    return F.max_pool2d(t, 2) + F.dropout(t[:, :, ::2, ::2], 0.5, False)


def train(steps=4, optimizer=torch.optim.AdamW, **options):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.ReLU(), nn.Linear(8, 2))
    stepper = optimizer(model.parameters(), **options)
    losses = []
    for _ in range(steps):
        stepper.zero_grad()
        loss = F.cross_entropy(model(torch.randn(6, 4)), torch.randint(0, 2, (6,)))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        stepper.step()
        losses.append(loss.item().hex())
    return losses


def error_of(function):
    try:
        function()
    except BaseException as error:
        frames = [
            (os.path.basename(f.filename), f.name, f.lineno)
            for f in traceback.extract_tb(error.__traceback__)
        ]
        return type(error).__name__, str(error)[:200], frames
    return None


def caught_warnings(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return [(os.path.basename(w.filename), w.lineno, str(w.message)[:60]) for w in caught]
