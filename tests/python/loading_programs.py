"""Small trainings for test_loading.py: `python loading_programs.py NAME`.

All load something and train on. The healthy ones are near to a mistake; of each rule there is a
buggy one.
"""

import copy
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)


def network():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.Linear(16, 2))


def draw(layer):
    if isinstance(layer, nn.Linear):
        nn.init.normal_(layer.weight, std=0.1)
        nn.init.zeros_(layer.bias)


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=1e-2)


def update(model, optimizer, count=3):
    for _ in range(count):
        x = torch.randn(16, 8, dtype=next(model.parameters()).dtype)
        optimizer.zero_grad()
        F.cross_entropy(model(x).float(), (x.sum(1) > 0).long()).backward()
        optimizer.step()


def pretrained(dtype=torch.float32):
    """A checkpoint of a training that is over."""
    model = network().to(dtype)
    optimizer = adam(model)
    update(model, optimizer)
    path = Path(tempfile.mkdtemp()) / "checkpoint.pt"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    return torch.load(path)


# ---- healthy --------------------------------------------------------------------------------


def fine_tuning():
    """The weights go on, with a new head and a new optimizer."""
    model = network()
    model.load_state_dict(pretrained()["model"])
    draw(model[3])
    update(model, adam(model))


def new_head_by_its_own_optimizer():
    model = network()
    model.load_state_dict(pretrained()["model"])
    model[:3].requires_grad_(False)
    draw(model[3])
    update(model, adam(model[3]))


def used_before_it_is_drawn_again():
    """What a pretrained model is worth, then the same architecture from scratch."""
    kept, model = pretrained(), network()
    model.load_state_dict(kept["model"])
    with torch.no_grad():
        model(torch.randn(4, 8))
    model.apply(draw)
    update(model, adam(model))


def folds():
    """The best weights of a fold are tested; then the same model starts over."""
    model = network()
    for _ in range(2):
        model.apply(draw)
        update(model, adam(model))
        best = copy.deepcopy(model.state_dict())
        with torch.no_grad():
            model(torch.randn(4, 8))
        model.load_state_dict(best)
        with torch.no_grad():
            model(torch.randn(4, 8))


def tried_and_thrown_away():
    """A first model only shows that the file can be read; another one lies where it lay."""
    kept = pretrained()
    for _ in range(2):
        model = network()
        model.load_state_dict(kept["model"])
        del model
    model = network()
    model.apply(draw)
    update(model, adam(model))


def pruned():
    model = network()
    first = copy.deepcopy(model.state_dict())
    update(model, adam(model))
    masks = [(p.abs() > 0.1).float() for p in model.parameters()]
    model.load_state_dict(first)
    with torch.no_grad():
        for parameter, mask in zip(model.parameters(), masks, strict=True):
            parameter.mul_(mask)
    update(model, adam(model))


def average_restored_by_hand():
    """The average is loaded for an evaluation, the weights are copied back."""
    model = network()
    optimizer = adam(model)
    average = copy.deepcopy(model.state_dict())
    for _ in range(3):
        update(model, optimizer)
        kept = [parameter.detach().clone() for parameter in model.parameters()]
        model.load_state_dict(average)
        with torch.no_grad():
            model(torch.randn(4, 8))
            for parameter, before in zip(model.parameters(), kept, strict=True):
                parameter.copy_(before)


def in_another_precision():
    """A float32 checkpoint, its moments too, goes on in bfloat16."""
    kept, model = pretrained(), network().bfloat16()
    model.load_state_dict(kept["model"])
    optimizer = adam(model)
    optimizer.load_state_dict(kept["optimizer"])
    update(model, optimizer)


def wrapped():
    kept = pretrained()
    model = nn.DataParallel(network())
    model.load_state_dict({f"module.{key}": value for key, value in kept["model"].items()})
    optimizer = adam(model)
    optimizer.load_state_dict(kept["optimizer"])
    update(model, optimizer)


def two_models_in_another_order():
    """Which model is "model0" depends on which one is called first."""
    models = [network(), network()]
    optimizers = [adam(model) for model in models]
    for model, optimizer in zip(models, optimizers, strict=True):
        update(model, optimizer)
    kept = [copy.deepcopy(optimizer.state_dict()) for optimizer in optimizers]
    torch.save(kept, Path(tempfile.mkdtemp()) / "optimizers.pt")
    weights = [model.state_dict() for model in models]
    models = [network(), network()]
    optimizers = [adam(model) for model in models]
    for i in (1, 0):
        models[i].load_state_dict(weights[i])
        optimizers[i].load_state_dict(kept[i])
        update(models[i], optimizers[i])


def target_network():
    """A copy that is loaded every few steps, and never trained."""
    model, target = network(), network()
    optimizer = adam(model)
    for _ in range(3):
        target.load_state_dict(model.state_dict())
        update(model, optimizer)
        with torch.no_grad():
            target(torch.randn(4, 8))
    target.apply(draw)
    update(model, optimizer)


# ---- buggy ----------------------------------------------------------------------------------


def drawn_again():
    model = network()
    model.load_state_dict(pretrained()["model"])
    model.apply(draw)
    update(model, adam(model))


class Layers(nn.Module):
    def __init__(self, names):
        super().__init__()
        for name in names:
            setattr(self, name, nn.Linear(8, 8))

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))[:, :2]


def other_order():
    model = Layers(["first", "last"])
    optimizer = adam(model)
    update(model, optimizer)
    path = Path(tempfile.mkdtemp()) / "checkpoint.pt"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    kept, model = torch.load(path), Layers(["last", "first"])
    model.load_state_dict(kept["model"])
    optimizer = adam(model)
    optimizer.load_state_dict(kept["optimizer"])
    update(model, optimizer)


class WideMoments(torch.optim.Optimizer):
    """Keeps float32 moments of bfloat16 weights, and forgets that load_state_dict casts them."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.01})

    @torch.no_grad()
    def step(self, closure=None):
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            mean = state.setdefault("mean", torch.zeros(parameter.shape))
            mean.lerp_(parameter.grad.to(mean.dtype), 0.1)
            parameter.sub_((self.param_groups[0]["lr"] * mean).to(parameter.dtype))


def narrowed():
    model = network().bfloat16()
    optimizer = WideMoments(model.parameters())
    update(model, optimizer)
    path = Path(tempfile.mkdtemp()) / "checkpoint.pt"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    kept, model = torch.load(path), network().bfloat16()
    model.load_state_dict(kept["model"])
    optimizer = WideMoments(model.parameters())
    optimizer.load_state_dict(kept["optimizer"])
    update(model, optimizer)


HEALTHY = """
    fine_tuning new_head_by_its_own_optimizer used_before_it_is_drawn_again folds
    tried_and_thrown_away pruned average_restored_by_hand in_another_precision wrapped
    two_models_in_another_order target_network
""".split()

if __name__ == "__main__":
    torch.manual_seed(0)
    globals()[sys.argv[1]]()
