"""What a checkpoint holds: a STATE "saved" or "loaded" for each tensor (docs/recording.md).

Read are what torch.save was given and torch.load returned, the dicts given to load_state_dict of
modules and optimizers, and what these have of it when they run or step next. Only dicts, lists and
tuples are looked into, none by way of code of the user's.
"""

import sys

from tocsin import _core, loaded_models, optimizer_state, variables

PARAMETER, OPTIMIZER_STATE = 1, 3  # tocsin/event.h: tocsin_variable_kind
TENSORS_MAX = 1 << 16
DEPTH_MAX = 8

# What a wrapper puts before every key of the state dict of its model (variables.py).
_PREFIXES = ("module.", "_orig_mod.", "_fsdp_wrapped_module.")

_saved = _loaded = 0


def install(saved, loaded):
    """Watch checkpoints. How much is read of each tensor: 0 nothing, 1 presence, 2 its digest."""
    global _saved, _loaded
    _saved, _loaded = saved, loaded
    _core.watch_role("checkpoint", returned)


def _argument(args, kwargs, position, name):
    return args[position] if len(args) > position else kwargs.get(name)


def returned(name, args, kwargs, result):
    if name == "torch.save":
        _record(_argument(args, kwargs, 0, "obj"), "saved", _saved)
    elif name == "torch.load":
        _record(result, "loaded", _loaded)
    elif name == "torch.nn.Module.load_state_dict":
        given = _argument(args, kwargs, 1, "state_dict")
        into = loaded_models.loaded(args[0], _loaded) if _loaded else None
        _record(given, "loaded", _loaded, into)
    elif name == "torch.optim.Optimizer.load_state_dict" and _loaded:
        loading = optimizer_state.loaded(args[0], _loaded)
        _record(_argument(args, kwargs, 1, "state_dict"), "loaded", _loaded, loading)
    if name.endswith((".load", ".load_state_dict")):
        optimizer_state.expect_change()


def _record(content, attribute, amount, into=None):
    """into: what loads it says of each tensor by its key, as pairs."""
    if not amount:
        return
    held = optimizer_state.names_by_memory() if attribute == "saved" else {}
    for path, key, value in _entries(content, (), [TENSORS_MAX]):
        if isinstance(value, list):
            _emit_groups(path, value, attribute)
        else:
            _emit(path, key, value, attribute, amount, held, into)


def _emit_groups(path, groups, attribute):
    """The options of the groups of an optimizer that is in the checkpoint."""
    place = (("in", ".".join(path)),) if path else ()
    for number, group in enumerate(groups):
        _core.record_state(f"group{number}#options", OPTIMIZER_STATE, "", attribute, 1, None, False,
                           place + tuple(optimizer_state.options_of(group)))  # fmt: skip


def _emit(path, key, tensor, attribute, amount, held, into):
    kind = PARAMETER
    if len(path) >= 2 and path[-2] == "state":  # of an optimizer: state, number or name, key
        kind = OPTIMIZER_STATE
        key = held.get(_core.tensor_memory(tensor)) or f"{path[-1]}#{key}"
        path = path[:-2]
    values = (("in", ".".join(path)),) if path else ()
    if into is not None:
        values += into(key)
    _core.record_state(key, kind, "torch.Tensor", attribute, amount, tensor, True, values or None)


def _prefix(keys):
    """The part that a wrapper put before every key."""
    prefix = ""
    while True:
        rest = [key[len(prefix) :] for key in keys]
        more = next((p for p in _PREFIXES if all(key.startswith(p) for key in rest)), None)
        if more is None:
            return prefix
        prefix += more


def _items(container):
    """(key, value) of a dict or sequence, wrappers' prefixes taken off; None: it is neither."""
    if isinstance(container, dict):
        items = list(dict.items(container))
        tensor = sys.modules["torch"].Tensor
        named = {key for key, value in items if isinstance(value, tensor) and type(key) is str}
        start = len(_prefix(named)) if named else 0
        return [(variables.text(str(key)[start if key in named else 0 :]), value)
                for key, value in items]  # fmt: skip
    if isinstance(container, (list, tuple)):
        return [(str(index), value) for index, value in enumerate(container)]
    return None


def _is_groups(key, value):
    """Are these the parameter groups of an optimizer's state_dict?"""
    return key == "param_groups" and isinstance(value, list) and all(
        isinstance(group, dict) and "params" in group for group in value
    )


def _entries(content, path, left):
    """(path to its container, key, value) of each tensor in nested containers, and of the groups of
    each optimizer."""
    items = _items(content) if len(path) <= DEPTH_MAX else None
    for key, value in items or ():
        if left[0] <= 0:
            return
        if isinstance(value, sys.modules["torch"].Tensor):
            left[0] -= 1
            yield path, key, value
        elif _is_groups(key, value):
            left[0] -= 1
            yield path, key, value
        else:
            yield from _entries(value, (*path, key), left)
