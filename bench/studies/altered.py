"""Run a program with one thing changed: altered.py CHANGE PROGRAM [ARGUMENT]...

PyTorch is changed, not the program, so that every program can be run with every change. A mistake
is what people forget or get wrong; a variation is as healthy as the program. A program's own check
of its result is not asked. Exit status 4: the change met nothing to change, the run is as it was.
"""

import os
import runpy
import sys
import weakref

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

NO_EFFECT = 4

_met = False
_optimizers = weakref.WeakSet()


def took_effect():
    global _met
    _met = True


def wrap(owner, name, make):
    setattr(owner, name, make(getattr(owner, name)))


def each_optimizer(change):
    """Calls change(optimizer) when an optimizer has been made."""

    def make(construct):
        def constructed(self, *args, **kwargs):
            construct(self, *args, **kwargs)
            change(self)

        return constructed

    wrap(torch.optim.Optimizer, "__init__", make)


def each_backward(before=lambda loss: loss, after=lambda: None):
    """The loss goes through `before`; `after` is called when the gradients are there."""
    each_optimizer(_optimizers.add)

    def make(backward):
        def changed(self, *args, **kwargs):
            backward(before(self), *args, **kwargs)
            after()

        return changed

    wrap(torch.Tensor, "backward", make)


def gradients():
    return [
        parameter.grad
        for optimizer in _optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.grad is not None
    ]


def set_option(name, new):
    """An option of every group of every optimizer that has it."""

    def change(optimizer):
        for group in optimizer.param_groups:
            if name in group:
                took_effect()
                group[name] = new(group[name])

    each_optimizer(change)


def middle(optimizer):
    """A group and a position in it: of a weight in the middle of the model."""
    weights = [
        (group["params"], index)
        for group in optimizer.param_groups
        for index, parameter in enumerate(group["params"])
        if parameter.ndim >= 2
    ]
    return weights[len(weights) // 2] if len(weights) > 1 else None


# ---- mistakes ------------------------------------------------------------------------------------


def no_zero_grad():
    for owner in (torch.optim.Optimizer, nn.Module):
        setattr(owner, "zero_grad", lambda self, *args, **kwargs: took_effect())


def stale_optimizer():
    """It holds copies, as if the model had been made anew."""

    def change(optimizer):
        took_effect()
        for group in optimizer.param_groups:
            group["params"] = [nn.Parameter(p.detach().clone()) for p in group["params"]]

    each_optimizer(change)


def frozen_layer():
    def change(optimizer):
        place = middle(optimizer)
        if place:
            took_effect()
            place[0][place[1]].requires_grad_(False)

    each_optimizer(change)


def left_out_layer():
    def change(optimizer):
        place = middle(optimizer)
        if place:
            took_effect()
            del place[0][place[1]]

    each_optimizer(change)


def detached_layer():
    """What the first layer gives is cut off from the graph."""
    first = []

    def hook(module, inputs, output):
        if module.training and torch.is_grad_enabled() and torch.is_tensor(output):
            leaf = next(module.children(), None) is None
            if not first and leaf and next(module.parameters(), None) is not None:
                first.append(weakref.ref(module))
            if first and first[0]() is module:
                took_effect()
                return output.detach()
        return None

    torch.nn.modules.module.register_module_forward_hook(hook)


def has_modes(module):
    kinds = (nn.Dropout, nn.MultiheadAttention, nn.modules.batchnorm._BatchNorm)
    return any(isinstance(part, kinds) for part in module.modules())


def evaluation_forgotten():
    def make(train):
        def changed(self, mode=True):
            if not mode and self.training and has_modes(self):
                took_effect()
                return self
            return train(self, mode)

        return changed

    wrap(nn.Module, "train", make)


def training_forgotten():
    """After the first evaluation the model stays in evaluation mode."""

    def make(train):
        def changed(self, mode=True):
            if mode and not self.training and has_modes(self):
                took_effect()
                return self
            return train(self, mode)

        return changed

    wrap(nn.Module, "train", make)


def learning_rate_zero():
    set_option("lr", lambda old: 0.0)


def cleared_too_early():
    """Gradients are cleared between the backward pass and the update."""

    def after():
        took_effect()
        for optimizer in list(_optimizers):
            optimizer.zero_grad()

    each_backward(after=after)


def loss_scaled_twice():
    def before(loss):
        took_effect()
        return loss * 1024

    each_backward(before)


def gradient_not_finite():
    passes = []

    def after():
        passes.append(0)
        if len(passes) == 4 and gradients():
            took_effect()
            gradients()[0].view(-1)[0] = float("nan")

    each_backward(after=after)


def clipped_on_one_rank():
    def after():
        if os.environ.get("RANK") == "0":
            for gradient in gradients():
                gradient.mul_(0.5)
        if "RANK" in os.environ:
            took_effect()

    each_backward(after=after)


def wrapper_bypassed():
    """The model is called beside its DistributedDataParallel: nothing is reduced."""

    def forward(self, *args, **kwargs):
        took_effect()
        return self.module(*args, **kwargs)

    DistributedDataParallel.forward = forward


# ---- variations ----------------------------------------------------------------------------------


def smaller_learning_rate():
    set_option("lr", lambda old: old * 0.3)


def other_weight_decay():
    set_option("weight_decay", lambda old: 0.01 if old == 0 else 0.0)


def foreach():
    set_option("foreach", lambda old: True)


def other_optimizer():
    def sgd(params, lr=1e-3, weight_decay=0.0, **rest):
        took_effect()
        return adamw(params, lr=0.1 * lr, weight_decay=weight_decay)

    def adam(params, *args, **kwargs):
        took_effect()
        return adamw(params, *args, **kwargs)

    def rmsprop(params, lr=1e-3, weight_decay=0.0, **rest):
        took_effect()
        return torch.optim.RMSprop(params, lr=lr, weight_decay=weight_decay)

    adamw = torch.optim.AdamW
    torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW = sgd, adam, rmsprop


def other_dropout():
    def make(construct):
        def constructed(self, p=0.5, inplace=False):
            took_effect()
            construct(self, 0.3 if p < 0.2 else 0.1, inplace)

        return constructed

    wrap(nn.modules.dropout._DropoutNd, "__init__", make)


def gradients_kept_as_zero():
    for owner in (torch.optim.Optimizer, nn.Module):

        def make(clear):
            def changed(self, set_to_none=True):
                took_effect()
                clear(self, set_to_none=False)

            return changed

        wrap(owner, "zero_grad", make)


def other_batch_size():
    def make(construct):
        def constructed(self, dataset, batch_size=1, *args, **kwargs):
            if batch_size is not None and batch_size > 4:
                took_effect()
                batch_size = batch_size * 3 // 4
            construct(self, dataset, batch_size, *args, **kwargs)

        return constructed

    wrap(torch.utils.data.DataLoader, "__init__", make)


MISTAKES = (
    no_zero_grad, stale_optimizer, frozen_layer, left_out_layer, detached_layer,
    evaluation_forgotten, training_forgotten, learning_rate_zero, cleared_too_early,
    loss_scaled_twice, gradient_not_finite,
)  # fmt: skip
MISTAKES_OF_RANKS = (clipped_on_one_rank, wrapper_bypassed)
VARIATIONS = (
    smaller_learning_rate, other_weight_decay, foreach, other_optimizer, other_dropout,
    gradients_kept_as_zero, other_batch_size,
)  # fmt: skip


def main():
    change, program, *arguments = sys.argv[1:]
    {c.__name__: c for c in MISTAKES + MISTAKES_OF_RANKS + VARIATIONS}[change]()
    sys.argv = [program, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(program))
    try:
        runpy.run_path(program, run_name="__main__")
    except AssertionError as error:
        print(f"{program}: its own check failed: {error}", file=sys.stderr)
    return 0 if _met else NO_EFFECT


if __name__ == "__main__":
    sys.exit(main())
