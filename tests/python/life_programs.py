"""Small trainings for test_library_life.py: `python life_programs.py NAME`.

What parameters, modules and attributes go through in healthy programs, and four mistakes that are
near to it.
"""

import sys

import torch
import torch.nn.functional as F
from library_programs import adamw, batches, update
from torch import nn


def perceptron():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(),
                         nn.Linear(16, 2))  # fmt: skip


def trained(model):
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)


def renew(module, **flags):
    for child in module.modules():
        for name, old in list(child.named_parameters(recurse=False)):
            setattr(child, name, nn.Parameter(old.data, **flags))


def phases(between, freeze=True):
    """Train, do something to the model, train on."""
    model = perceptron()
    model[0].requires_grad_(not freeze)
    for phase in range(2):
        if phase == 1:
            between(model)
        optimizer = trained(model)
        for x, y in batches(3):
            update(model, optimizer, x, y)


# ---- parameters registered anew --------------------------------------------------------------


def unfrozen_by_wrapping():
    phases(renew)


def renewed():
    """Flags are handed on; unfrozen before; frozen again after; frozen by being registered anew;
    other memory; one that no update saw frozen."""

    def handed_on(model):
        for child in model.modules():
            for name, old in list(child.named_parameters(recurse=False)):
                setattr(child, name, nn.Parameter(old.data, requires_grad=old.requires_grad))

    def unfrozen_before(model):
        model.requires_grad_(True)
        handed_on(model)

    def frozen_after(model):
        renew(model)
        model[0].requires_grad_(False)

    def new_memory(model):
        model[0].weight = nn.Parameter(model[0].weight.detach().clone())
        model[0].bias = nn.Parameter(torch.zeros(16))

    def frozen_meanwhile(model):
        model.requires_grad_(False)
        renew(model)

    for between in (handed_on, unfrozen_before, frozen_after, new_memory):
        phases(between)
    phases(lambda model: renew(model[0], requires_grad=False), freeze=False)
    phases(frozen_meanwhile, freeze=False)


# ---- groups of an optimizer ------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, bias=True):
        super().__init__()
        self.norm = nn.LayerNorm(8, elementwise_affine=bias)
        self.up = nn.Linear(8, 16, bias=bias)
        self.down = nn.Linear(16, 8, bias=bias)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def grouped(model, is_spared, decay=0.1):
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    spared = [p for n, p in named if is_spared(n)]
    decayed = [p for n, p in named if not is_spared(n)]
    return torch.optim.AdamW([{"params": decayed, "weight_decay": decay},
                              {"params": spared, "weight_decay": 0.0}])  # fmt: skip


def fit(model, optimizer, steps=3):
    for x, _ in batches(steps):
        optimizer.zero_grad()
        (model(x) - x.roll(1, 1)).square().mean().backward()
        optimizer.step()


def none_is_spared():
    model = nn.Sequential(Block(), Block())
    fit(model, grouped(model, lambda name: name in ("bias", "norm.weight")))


def decay_groups():
    """Spared as usual; none there to be spared; what would be is frozen; no decay at all; one
    group; the head's biases are decayed, the body's are not."""
    usual = nn.Sequential(Block(), Block())
    fit(usual, grouped(usual, lambda name: name.endswith(("bias", "norm.weight"))))
    plain = nn.Sequential(Block(bias=False), Block(bias=False))
    fit(plain, grouped(plain, lambda name: name.endswith("bias")))
    frozen = nn.Sequential(Block(), Block())
    for name, parameter in frozen.named_parameters():
        parameter.requires_grad_(parameter.ndim == 2)
    fit(frozen, grouped(frozen, lambda name: name.endswith("bias")))
    usual = nn.Sequential(Block(), Block())
    fit(usual, grouped(usual, lambda name: False, decay=0.0))
    fit(usual, torch.optim.AdamW(usual.parameters(), weight_decay=0.1))
    body = [p for p in usual[0].parameters() if p.ndim == 1]
    rest = [p for p in usual[0].parameters() if p.ndim > 1] + list(usual[1].parameters())
    fit(usual, torch.optim.AdamW([{"params": rest, "weight_decay": 0.1},
                                  {"params": body, "weight_decay": 0.0}]))  # fmt: skip


# ---- attributes of modules -------------------------------------------------------------------


class Numbered(nn.Linear):
    def __init__(self, index):
        super().__init__(8, 8)
        self.index = index
        self.rate = 0.0
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


def numbering(name):
    model = nn.Sequential(Numbered(4), nn.ReLU(), Numbered(5))
    optimizer = adamw(model)
    fit(model, optimizer, 2)
    for number, module in enumerate(model.modules()):
        setattr(module, name, number)
    fit(model, optimizer, 2)


def attribute_overwritten():
    numbering("index")


def attributes_change():
    """Counters, a numbering under a name of its own, a schedule that is set on all modules, another
    one on those that know it, and a number changed by hand."""
    numbering("engine_index")
    model = nn.Sequential(Numbered(4), nn.ReLU(), Numbered(5))
    optimizer = adamw(model)
    for step in range(4):
        for depth, module in enumerate(model.modules()):
            module.rate = step
            if hasattr(module, "index"):
                module.index = depth * 10 + step
        fit(model, optimizer, 1)


# ---- initialisation --------------------------------------------------------------------------


class Mixer(nn.Module):
    def __init__(self, start=None):
        super().__init__()
        self.gate = nn.Parameter(torch.rand(8) if start is None else torch.full((8,), start))
        self.proj = nn.Linear(8, 8)

    def forward(self, x):
        return x + self.proj(x) * self.gate


def one_left_out():
    fit(model := nn.Sequential(Mixer(), Mixer(), Mixer(1.0), Mixer()), adamw(model))


def unlike_siblings():
    """All placeholders; the first and the last are special; two are; one begins at zero; a list of
    different layers, of which one has a constant bias; three layers are too few."""
    for starts in (
        (1.0, 1.0, 1.0, 1.0),
        (1.0, None, None, None),
        (None, None, None, 1.0),
        (None, 0.5, None, 0.5, None),
        (None, 0.0, None, None),
        (None, 1.0, None),
    ):
        fit(model := nn.Sequential(*(Mixer(start) for start in starts)), adamw(model))
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(5)))
    nn.init.constant_(model[2].bias, 0.1)
    fit(model, adamw(model))


# ---- train() of one's own --------------------------------------------------------------------


def own_train():
    """A train() that has nothing more to do at the start, and is not called."""

    class Taught(nn.Module):
        def __init__(self):
            super().__init__()
            self.teacher = Mixer().requires_grad_(False).eval()
            self.student = Mixer()

        def train(self, mode=True):
            super().train(mode)
            self.teacher.eval()
            return self

        def forward(self, x):
            return self.student(x) - self.teacher(x).detach()

    fit(model := Taught(), adamw(model.student))


if __name__ == "__main__":
    torch.manual_seed(0)
    globals()[sys.argv[1]]()
