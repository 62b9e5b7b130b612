"""The state of optimizers and the options of their groups, per parameter (docs/recording.md).

Read when an optimizer has made its first step, before the step that follows its load_state_dict
(earlier its parameters may have no names: the model was not called yet), and after its first step
since a checkpoint was loaded: in between it moves at each step, and that nobody can judge.
"""

import sys
import weakref
from itertools import count

from tocsin import _core, pieces

OPTIMIZER_STATE = 3  # tocsin/event.h: tocsin_variable_kind
OPTIONS_MAX = 16

_amount = 0
_amount_loaded = 0
_stepped = weakref.WeakSet()
_read = weakref.WeakSet()  # since something was loaded
_numbers = count(1)
_loaded = weakref.WeakKeyDictionary()  # and did not step since: number of the loading


def install(amount):
    global _amount
    _amount = amount


def expect_change():
    """Something was loaded: what was read is old."""
    _read.clear()


def stepped(optimizer):
    """After each step of an optimizer."""
    if optimizer not in _read:
        _stepped.add(optimizer)
        _read.add(optimizer)
        if _amount:
            record(optimizer, "data", _amount)


def loaded(optimizer, amount):
    """After its load_state_dict: what it has now is read before its next step. Returns what to say
    of each tensor that it was given."""
    global _amount_loaded
    _amount_loaded = amount
    pairs = (("loading", next(_numbers)),)
    _loaded[optimizer] = pairs
    _core.watch_before_step(_steps)
    return lambda _: pairs


def _steps(optimizer):
    pairs = _loaded.pop(optimizer, None)
    if pairs is not None:
        record(optimizer, "loaded", _amount_loaded, pairs)
    if not _loaded:
        _core.watch_before_step(None)


def _class_name(module):
    """The class of a module; of one that fully_shard() gave a class of its own, the former."""
    cls = type(module)
    if len(cls.__mro__) > 2 and cls.__mro__[1].__name__ == "FSDPModule":
        cls = cls.__mro__[2]
    return f"{cls.__module__}.{cls.__qualname__}"


def _axes(parameter):
    """Its number of axes as a pair, if known. Torch is not asked: a mode would see it."""
    layout = _core.tensor_layout_read(parameter)
    if layout is not None:
        return (("ndim", len(layout[1])),)
    whole = pieces.whole_shape(parameter)
    return () if whole is None else (("ndim", len(whole)),)


def _names():
    """Parameter names, and the classes of the modules that have them, by id of the parameter."""
    variables, _ = _core.recorder_variables()
    names = {}
    for name, kind, _, owner, key, *_ in variables:
        if kind == 1 and owner is not None:
            named = name, _class_name(owner)
            names.setdefault(id(owner._parameters.get(key)), named)
    return names


def names_by_memory():
    """"PARAMETER#KEY" of what the optimizers that stepped keep, by where it lies."""
    found, names, tensor = {}, _names(), sys.modules["torch"].Tensor
    for optimizer in list(_stepped):
        for number, group in enumerate(optimizer.param_groups):
            for index, parameter in enumerate(group["params"]):
                name, _ = names.get(id(parameter), (f"group{number}.param{index}", ""))
                for key, value in (dict.get(optimizer.state, parameter) or {}).items():
                    memory = _core.tensor_memory(value) if isinstance(value, tensor) else None
                    if memory is not None:
                        found[memory] = f"{name}#{key}"
    return found


def options_of(group):
    """Plain numbers and switches of a parameter group, as pairs."""
    pairs = []
    for key, value in group.items():
        if key == "betas" and isinstance(value, tuple):
            pairs += [(f"beta{i + 1}", beta) for i, beta in enumerate(value) if type(beta) is float]
        elif type(key) is str and type(value) in (bool, int, float):
            pairs.append((key, value))
    return pairs[:OPTIONS_MAX]


def record(optimizer, attribute, amount, loading=()):
    """A state for each tensor that the optimizer keeps, "PARAMETER#KEY", and for each parameter one
    with the options of its group, "PARAMETER#options"; of a group without parameters one with its
    options, "groupN#options". loading: pairs that say which state dict it has loaded; then the
    place of each parameter in it and the parameter stand with them."""
    names = _names()
    tensor = sys.modules["torch"].Tensor
    cls = type(optimizer)
    type_name = f"{cls.__module__}.{cls.__qualname__}"
    place, part_of = 0, pieces.mark_reader()
    for number, group in enumerate(optimizer.param_groups):
        options = options_of(group)
        if not group["params"]:
            _core.record_state(f"group{number}#options", OPTIMIZER_STATE, type_name, "value", 1,
                               None, False, (("parameters", 0), *options))  # fmt: skip
        for index, parameter in enumerate(group["params"]):
            name, owner = names.get(id(parameter), (f"group{number}.param{index}", ""))
            axes = _axes(parameter)
            pairs = (("group", number), ("module", owner), *axes, *options)
            part = part_of(parameter)
            _core.record_state(f"{name}#options", OPTIMIZER_STATE, type_name, "value", 1,
                               parameter if part is None else (parameter, part), True,
                               pairs)  # fmt: skip
            state = dict.get(optimizer.state, parameter)
            said = pairs[:1]
            if loading:
                said += (*loading, ("place", place), ("parameter", parameter))
            for key, value in (state or {}).items():
                if isinstance(value, tensor):
                    if part is not None and value.shape == parameter.shape:
                        value = (value, part)
                    _core.record_state(f"{name}#{key}", OPTIMIZER_STATE, type_name, attribute,
                                       amount, value, True, said)  # fmt: skip
            place += 1
