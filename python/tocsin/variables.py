"""Names the variables of a training process: parameters and buffers of the models that run, and
parameters that an optimizer holds.

Called by the extension when the set of parameters has changed, which is rare. Reads attributes of
modules and optimizers only; runs no operation and keeps no strong reference.
"""

import weakref

from tocsin import _core, cuts, pieces

# tocsin/event.h: tocsin_variable_kind and tocsin_state.flags
PARAMETER, BUFFER = 1, 2
IN_OPTIMIZER, IN_MODEL, TENSOR_PARALLEL, TIED = 16, 64, 128, 512

_DEPTH_MAX = 128
# Of a module that many places share. Where all know each other, paths are without number.
_NAMES_MAX = 64

# Wrappers whose child is the model: they add no part to a canonical name.
_WRAPPERS = {
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "OptimizedModule": "_orig_mod",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "CheckpointWrapper": "_checkpoint_wrapped_module",
}

# By id, with a weak reference to tell whose it is: modules may define __eq__ as they like.
_prefixes: dict[int, tuple[weakref.ref, str]] = {}


class _Variable:
    """One name of one tensor."""

    def __init__(self, name, kind, tensor, owner, key, flags):
        self.name = name
        self.kind = kind
        self.tensor = tensor
        self.owner = owner
        self.key = key
        self.flags = flags
        self.slots = 0
        self.group_slot = -1
        self.group = -1
        self.index = -1
        self.alias_of = -1
        self.place = None
        self.cut = None

    def held_by(self, slot, group, index):
        if not self.slots:
            self.group_slot, self.group, self.index = slot, group, index
        self.slots |= 1 << slot
        self.flags |= IN_OPTIMIZER

    def as_tuple(self):
        cls = type(self.tensor)
        module = "" if cls.__module__ == "builtins" else cls.__module__ + "."
        return (
            self.name,
            self.kind,
            module + cls.__qualname__,
            self.owner,
            self.key,
            self.flags,
            self.slots,
            self.group_slot,
            self.group,
            self.index,
            self.alias_of,
            self.place,
            self.cut,
        )


def text(name):
    """A name as files of events can hold it: torch takes any characters."""
    return str(name).encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def _children(module):
    """(name without wrappers, child) of a module."""
    wrapped = _WRAPPERS.get(type(module).__name__)
    for name, child in module._modules.items():
        if child is not None:
            yield ("" if name == wrapped else text(name)), child


def walk(module, prefix, path=(), seen=None):
    """(canonical name, module) of a module and all below it, once per path to it, of which the
    first _NAMES_MAX count."""
    seen = {} if seen is None else seen
    count = seen[id(module)] = seen.get(id(module), 0) + 1
    if count > _NAMES_MAX:
        return
    yield prefix, module
    if len(path) >= _DEPTH_MAX or any(module is outer for outer in path):
        return
    for name, child in _children(module):
        full = f"{prefix}.{name}" if prefix and name else prefix or name
        yield from walk(child, full, (*path, module), seen)


def _outermost(roots):
    """The roots that are not a part of another one."""
    inner = {id(m) for root in roots for _, m in walk(root, "") if m is not root}
    return [root for root in roots if id(root) not in inner]


def _has_parameters(module):
    return any(
        parameter is not None
        for _, inner in walk(module, "")
        for parameter in inner._parameters.values()
    )


def _kept_prefix(model):
    reference, prefix = _prefixes.get(id(model), (None, None))
    return prefix if reference is not None and reference() is model else None


def _model_prefixes(models):
    """ "" for the only model; "model0", "model1" for several. A model keeps a prefix it has."""
    prefixes = [_kept_prefix(model) for model in models]
    first = 1 if any(prefix is not None for prefix in prefixes) else 0
    for index, prefix in enumerate(prefixes):
        if prefix is None and len(models) > 1:
            free = (f"model{number}" for number in range(first, len(models) + 1))
            prefixes[index] = next(name for name in free if name not in prefixes)
        elif prefix is None:
            prefixes[index] = ""
    return prefixes


def _root_names(roots, final):
    """(prefix, root) of the roots that count: not part of another one. A root without parameters
    (a loss with weights, a metric) goes by its class."""
    roots = _outermost(roots)
    models = [root for root in roots if _has_parameters(root)]
    names = list(zip(_model_prefixes(models), models, strict=True))
    if final:
        _prefixes.clear()
        _prefixes.update({id(model): (weakref.ref(model), prefix) for prefix, model in names})
    used = {prefix for prefix, _ in names}
    for root in roots:
        if any(root is model for model in models):
            continue
        name, index = type(root).__name__, 1
        while name in used:
            name, index = f"{type(root).__name__}{index}", index + 1
        used.add(name)
        names.append((name, root))
    return names


def _is_own(parameter):
    """Is it this rank's own by Megatron's mark, or DeepSpeed's of an expert?"""
    own = getattr(parameter, "tensor_model_parallel", False) is True
    return own or getattr(parameter, "allreduce", True) is False


def _of_module(module, prefix, place):
    dot = f"{prefix}." if prefix else ""
    for key, parameter in module._parameters.items():
        if parameter is not None:
            flags = IN_MODEL
            if _is_own(parameter):
                flags |= TENSOR_PARALLEL
            variable = _Variable(dot + text(key), PARAMETER, parameter, module, key, flags)
            variable.place = place(parameter)
            yield variable
    for key, buffer in module._buffers.items():
        if buffer is not None:
            yield _Variable(dot + text(key), BUFFER, buffer, module, key, IN_MODEL)


def _held(optimizers, by_id):
    """Mark what optimizers hold; yield what no model has."""
    for slot, optimizer in optimizers:
        for group_index, group in enumerate(optimizer.param_groups):
            for index, parameter in enumerate(group["params"]):
                found = by_id.get(id(parameter))
                if found is None:
                    name = f"optimizer{slot}.group{group_index}.param{index}"
                    found = [_Variable(name, PARAMETER, parameter, None, "", 0)]
                    by_id[id(parameter)] = found
                    yield found[0]
                for variable in found:
                    variable.held_by(slot, group_index, index)


def _storage_key(tensor):
    """What two names of one tensor have in common. Torch is not asked: a mode would see it."""
    return _core.tensor_memory(tensor) or id(tensor)


def _tie(variables):
    """Find names of the same storage: all are reported, the first is read."""
    first = {}
    for index, variable in enumerate(variables):
        if variable.kind != PARAMETER:
            continue
        key = _storage_key(variable.tensor)
        if key in first:
            variable.alias_of = first[key]
            variable.flags |= TIED
            variables[first[key]].flags |= TIED
        else:
            first[key] = index


def resolve(roots, optimizers, final):
    """(variables, modules): tuples as variables.c reads them, and (module, canonical name).

    final: a step is about to be made, so the models have been seen; before, names may change."""
    variables, modules, by_id, names = [], [], {}, set()
    place = pieces.mark_reader()
    for prefix, root in _root_names(roots, final):
        for name, module in walk(root, prefix):
            modules.append((module, name))
            for variable in _of_module(module, name, place):
                if variable.name in names:
                    continue  # a wrapper's own attribute beside its model's
                names.add(variable.name)
                variables.append(variable)
                by_id.setdefault(id(variable.tensor), []).append(variable)
    variables.extend(_held(optimizers, by_id))
    _tie(variables)
    for index, cut in cuts.of([(variable.name, variable.tensor) for variable in variables]).items():
        variables[index].cut = cut
    seen = set()
    modules = [m for m in modules if not (id(m[0]) in seen or seen.add(id(m[0])))]
    return [variable.as_tuple() for variable in variables], modules
