"""Plain attributes of modules: a STATE "value" for each at the first step, and again after a step
when it has changed (docs/recording.md)."""

import weakref

from tocsin import _core

ATTRIBUTE = 6  # tocsin/event.h: tocsin_variable_kind
PER_MODULE_MAX = 64
TEXT_MAX = 100
CHANGES_MAX = 8  # what changes more often is a counter: it is left alone from then on
_PLAIN = frozenset((bool, int, float, str))

_wanted = False
_modules: list["_Module"] = []


class _Module:
    """The attributes of one module as they were last."""

    def __init__(self, module, name):
        self.reference = weakref.ref(module)
        self.name = name
        self.type = f"{type(module).__module__}.{type(module).__qualname__}"
        self.seen = {}
        self.changes = {}

    def record(self):
        module = self.reference()
        own = {} if module is None else object.__getattribute__(module, "__dict__")
        now = {name: value for name, value in own.items() if type(value) in _PLAIN}
        if now != self.seen:
            for name, value in list(now.items())[:PER_MODULE_MAX]:
                if name not in self.seen or self.seen[name] != value:
                    self._changed(name, value)
            self.seen = now

    def _changed(self, name, value):
        count = self.changes[name] = self.changes.get(name, -1) + 1
        private = name.startswith("_") or name == "training"  # mode has a meaning of its own
        if private or count > CHANGES_MAX or (type(value) is str and len(value) > TEXT_MAX):
            return
        variable = f"{self.name}.{name}" if self.name else name
        _core.record_state(variable, ATTRIBUTE, self.type, "value", 1, None, False,
                           (("value", value),))  # fmt: skip


def install(wanted):
    global _wanted
    _wanted = wanted


def found(modules):
    """The (module, name) pairs of the models, whenever they are named anew. What is known of a
    module that was there before under this name is kept."""
    if _wanted:
        known = {(id(m.reference()), m.name): m for m in _modules}
        _modules[:] = [known.get((id(module), name)) or _Module(module, name)
                       for module, name in modules]  # fmt: skip


def stepped():
    for module in _modules:
        module.record()
