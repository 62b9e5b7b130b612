"""What models have of the weights that they loaded, when they run next (docs/recording.md).

A module that has loaded a state dict is remembered, weakly, until it runs, or a model that it is
in, or a part of it; then all its parameters are read once. Each loading has a number, so that what
is found then is compared with what was loaded into this module and no other.
"""

import weakref
from itertools import count

from tocsin import _core, variables

PARAMETER = 1  # tocsin/event.h: tocsin_variable_kind
MODULES_MAX = 256
RUNS_MAX = 64  # of other models; then it is given up

_numbers = count(1)
_waiting: list["_Loading"] = []


class _Loading:
    def __init__(self, module):
        self.number = next(_numbers)
        self.module = weakref.ref(module)
        self.runs = 0


def _unwrapped(module):
    """The model in a wrapper, which may live longer."""
    inner = module
    while inner is not None:
        module = inner
        inner = module._modules.get(variables._WRAPPERS.get(type(module).__name__))
    return module


def _parameters(module):
    """Parameters by their names in the module, without the parts of wrappers."""
    return {
        f"{name}.{key}" if name else key: parameter
        for name, inner in variables.walk(module, "")
        for key, parameter in inner._parameters.items()
        if parameter is not None
    }


def _is_part(module, whole):
    return any(inner is module for _, inner in variables.walk(whole, ""))


def loaded(module, amount):
    """After its load_state_dict. Returns what to say of each tensor by its key."""
    module = _unwrapped(module)
    others = [w for w in _waiting if w.module() is not None and w.module() is not module]
    _waiting[:] = [*others[1 - MODULES_MAX :], _Loading(module)]
    _core.watch_before_run(lambda model: _runs(model, amount))
    pairs, names = (("loading", _waiting[-1].number),), _parameters(module).keys()
    return lambda key: pairs if key in names else ()


def _runs(model, amount):
    """Before an outermost model runs."""
    for loading in list(_waiting):
        module = loading.module()
        loading.runs += 1
        concerned = module is not None and (_is_part(module, model) or _is_part(model, module))
        if concerned:
            _record(module, loading.number, amount)
        if concerned or module is None or loading.runs >= RUNS_MAX:
            _waiting.remove(loading)
    if not _waiting:
        _core.watch_before_run(None)


def _record(module, number, amount):
    for name, parameter in _parameters(module).items():
        _core.record_state(name, PARAMETER, "torch.nn.Parameter", "loaded", amount, parameter, True,
                           (("loading", number), ("parameter", parameter)))  # fmt: skip
