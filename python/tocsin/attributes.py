"""What modules are, and their plain attributes: a STATE "value" for each at the first step, and
again after a step when it has changed (docs/recording.md)."""

import weakref

from tocsin import _core, variables

ATTRIBUTE = 6  # tocsin/event.h: tocsin_variable_kind
PER_MODULE_MAX = 64
TEXT_MAX = 100
CHANGES_MAX = 8  # what changes more often is a counter: it is left alone from then on
_PLAIN = frozenset((bool, int, float, str))

_wanted = False
_base = None  # torch.nn.Module
_stepped = False
_modules: list["_Module"] = []
_trained: dict[int, weakref.ref] = {}  # those of _overrides_train that train() reached, by id


def _family(cls):
    """The class below torch.nn.Module that it comes from."""
    line = [parent for parent in cls.__mro__ if _base in parent.__mro__]
    return line[-2] if len(line) > 1 else cls


def _name_of(cls):
    return f"{cls.__module__}.{cls.__qualname__}"


def _overrides_train(cls):
    """Does the class have a train() of its own? Only one that passes it on can be seen called."""
    code = getattr(cls.train, "__code__", None)
    return code is not None and cls.train is not _base.train and "train" in code.co_names \
        and not cls.train.__module__.startswith("torch.")  # fmt: skip


class _Module:
    """The attributes of one module as they were last."""

    def __init__(self, module, name):
        self.reference = weakref.ref(module)
        self.name = name
        self.type = _name_of(type(module))
        self.recorded = False
        self.seen = {}
        self.changes = {}

    def record(self):
        module = self.reference()
        if module is None:
            return
        if not self.recorded:
            self._is(module)
        own = object.__getattribute__(module, "__dict__")
        now = {name: value for name, value in own.items() if type(value) in _PLAIN}
        if now != self.seen:
            for name, value in list(now.items())[:PER_MODULE_MAX]:
                if name not in self.seen or self.seen[name] != value:
                    self._changed(name, value)
            self.seen = now
        self.recorded = True

    def _is(self, module):
        """Its class and family, and was a train() of its own called before the first step?"""
        pairs = [("value", _name_of(_family(type(module))))]
        if not _stepped and _overrides_train(type(module)):
            reference = _trained.get(id(module))
            called = reference is not None and reference() is module
            pairs += [("class", self.type), ("trained", called)]
        self._state("__class__", tuple(pairs))

    def _changed(self, name, value):
        count = self.changes[name] = self.changes.get(name, -1) + 1
        private = name.startswith("_") or name == "training"  # mode has a meaning of its own
        if private or count > CHANGES_MAX or (type(value) is str and len(value) > TEXT_MAX):
            return
        added = (("added", True),) if self.recorded and name not in self.seen else ()
        self._state(name, (("value", value), *added))

    def _state(self, name, pairs):
        variable = f"{self.name}.{name}" if self.name else name
        _core.record_state(variable, ATTRIBUTE, self.type, "value", 1, None, False, pairs)


def install(torch, wanted):
    global _wanted, _base
    _wanted, _base = wanted, torch.nn.Module
    if wanted:
        _core.watch_role("mode", _moded)


def _moded(name, args, kwargs, result):
    """train() or eval() returned, which calls the train() of all modules below."""
    if not _stepped and not name.endswith(".requires_grad_"):
        for _, module in variables.walk(args[0], ""):
            if _overrides_train(type(module)):
                _trained[id(module)] = weakref.ref(module)


def found(modules):
    """The (module, name) pairs of the models, whenever they are named anew. What is known of a
    module that was there before under this name is kept."""
    if _wanted:
        known = {(id(m.reference()), m.name): m for m in _modules}
        _modules[:] = [known.get((id(module), name)) or _Module(module, name)
                       for module, name in modules]  # fmt: skip


def stepped():
    global _stepped
    for module in _modules:
        module.record()
    _stepped = True
    _trained.clear()
