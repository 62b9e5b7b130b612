"""What models have of the weights that they loaded, when training goes on (docs/recording.md).

A module that has loaded a state dict is remembered, weakly, until an optimizer that holds one of
its parameters steps; then all its parameters are read once. Each loading has a number, so that what
is found then is compared with what was loaded into this module and no other.
"""

import weakref
from itertools import count

from tocsin import _core, variables

PARAMETER = 1  # tocsin/event.h: tocsin_variable_kind
MODULES_MAX = 256

_numbers = count(1)
_waiting: list[tuple[weakref.ref, int]] = []


def _parameters(module):
    """Parameters by their names in the module, without the parts of wrappers."""
    return {
        f"{name}.{key}" if name else key: parameter
        for name, inner in variables.walk(module, "")
        for key, parameter in inner._parameters.items()
        if parameter is not None
    }


def _unwrapped(module):
    """The model in a wrapper, which may live longer."""
    inner = module
    while inner is not None:
        module = inner
        inner = module._modules.get(variables._WRAPPERS.get(type(module).__name__))
    return module


def loaded(module):
    """After its load_state_dict. Returns what to say of each tensor by its key."""
    module = _unwrapped(module)
    number, parameters = next(_numbers), _parameters(module)
    others = [w for w in _waiting if w[0]() is not None and w[0]() is not module]
    _waiting[:] = [*others[1 - MODULES_MAX :], (weakref.ref(module), number)]

    def into(key):
        return (("loading", number),) if key in parameters else ()

    return into


def before_step(optimizer, amount):
    """Before a step: True if some module still waits for one."""
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    for entry in list(_waiting):
        module = entry[0]()
        parameters = {} if module is None else _parameters(module)
        if module is not None and held.isdisjoint(map(id, parameters.values())):
            continue
        _waiting.remove(entry)
        for name, parameter in parameters.items():
            _core.record_state(name, PARAMETER, "torch.nn.Parameter", "loaded", amount, parameter,
                               True, (("loading", entry[1]), ("parameter", parameter)))  # fmt: skip
    return bool(_waiting)
