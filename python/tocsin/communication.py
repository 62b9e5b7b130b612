"""What is read around communication, for comparing runs: the gradients before and after
DistributedDataParallel averages them, and what an asynchronous collective has filled once it has
been waited for.

Nothing of DistributedDataParallel is replaced. A communication hook would have to repeat the
reducer's arithmetic to the last bit, and there is one per model, which may be the user's. A hook of
a parameter sees its gradient before the reducer copies it into a bucket, and is not in its way; and
parameters keep their names where buckets are built anew.
"""

import sys
import weakref

from tocsin import _core, variables

_NO_HOOK = 0xFFFFFFFF
_wanted = False
_averaged: dict[tuple[int, str], "_Averaged"] = {}  # by id of the module, and attribute
_work_wait = _tensor_wait = _NO_HOOK


def install(torch, wanted):
    global _wanted, _work_wait
    _wanted = wanted and torch.distributed.is_available()
    if not _wanted:
        return
    _core.watch_after_backward(_backward_ended)
    wait = vars(torch.distributed.Work)["wait"]
    _work_wait = _hook(getattr(wait, "__func__", wait), "torch.distributed.Work.wait",
                       _core.METHOD | _core.BOUND)  # fmt: skip
    functional_imported()


def functional_imported():
    """The module of functional collectives may be there now."""
    global _tensor_wait
    if _wanted:
        module = sys.modules.get("torch.distributed._functional_collectives")
        wait = getattr(module, "wait_tensor", None)
        if wait is not None:
            _tensor_wait = _hook(wait, f"{module.__name__}.wait_tensor", 0)
        _core.boundaries_waits(_work_wait, _tensor_wait)


def _hook(target, name, flags):
    try:
        return _core.hook(target, name, "", _core.ARGUMENTS | flags)
    except TypeError:
        return _NO_HOOK


class _Averaged:
    """A parameter, looked up in its module at each use, and its hook."""

    def __init__(self, owner, key):
        self.owner = weakref.ref(owner)
        self.key = key
        self.name = self.handle = self.address = None

    def parameter(self):
        owner = self.owner()
        return None if owner is None else owner._parameters.get(self.key)

    def follow(self, name):
        parameter = self.parameter()
        if (self.name, self.address) == (name, id(parameter)):
            return
        hook = _core.gradient_hook(name)
        if hook is not None:
            if self.handle is not None:
                self.handle.remove()
            with sys.modules["torch"]._C.DisableTorchFunction():  # a mode of the user's
                self.handle = parameter.register_post_accumulate_grad_hook(hook)
            self.name, self.address = name, id(parameter)


def found(named, modules):
    """Variables, and (module, name) pairs of the models, whenever they are named anew."""
    if not _wanted:
        return
    for key in [key for key, place in _averaged.items() if place.owner() is None]:
        del _averaged[key]
    wrapper = sys.modules["torch"].nn.parallel.DistributedDataParallel
    inner = set()
    for module, name in modules:
        if issubclass(type(module), wrapper):
            inner.update(id(each) for _, each in variables.walk(module, name))
    seen = set()
    for name, kind, _, owner, key, *_ in named:
        parameter = owner._parameters.get(key) if id(owner) in inner else None
        if kind != variables.PARAMETER or parameter is None or id(parameter) in seen:
            continue  # of several names the first counts
        seen.add(id(parameter))
        if parameter.requires_grad and parameter.is_leaf:
            place = _averaged.get((id(owner), key))
            if place is None or place.owner() is not owner:
                place = _averaged[id(owner), key] = _Averaged(owner, key)
            place.follow(name)


def _backward_ended(_):
    """And with it the reduction."""
    for place in list(_averaged.values()):
        parameter = place.parameter()
        if parameter is not None:
            _core.record_gradient(place.name, parameter)
