"""Parameters that are registered anew over the memory of the one before: two STATEs "value", of the
old one and of the new one (docs/recording.md). What a wrapper makes anew has lost the old one's
flags unless it hands them on."""

import weakref

from tocsin import _core

PARAMETER = 1  # tocsin/event.h: tocsin_variable_kind

_installed = False
_names: dict[int, tuple[weakref.ref, str]] = {}  # of modules of the models, by id


def install(torch):
    global _installed
    _installed = True
    register = torch.nn.Module.register_parameter
    index = _core.hook(register, "torch.nn.Module.register_parameter", "", _core.METHOD)
    _core.watch_before(index, _registering)


def found(modules):
    """The (module, name) pairs of the models, whenever they are named anew."""
    if _installed:
        _names.clear()
        _names.update({id(module): (weakref.ref(module), name) for module, name in modules})


def _registering(_, args, kwargs):
    """A parameter is about to be registered: the old one is still there."""
    reference, prefix = _names.get(id(args[0]), (None, ""))
    if reference is None or reference() is not args[0]:
        return
    name = args[1] if len(args) > 1 else kwargs.get("name")
    new = args[2] if len(args) > 2 else kwargs.get("param")
    old = args[0]._parameters.get(name)
    memory = _core.tensor_memory(new) if old is not None and old is not new else None
    if memory is None or memory != _core.tensor_memory(old):
        return
    variable = f"{prefix}.{name}" if prefix else name
    for tensor, replaced in ((old, True), (new, False)):
        cls = type(tensor)
        _core.record_state(variable, PARAMETER, f"{cls.__module__}.{cls.__qualname__}", "value", 1,
                           tensor, True, (("replaced", replaced),))  # fmt: skip
