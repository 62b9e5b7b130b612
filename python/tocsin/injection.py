"""Faults put into a run on purpose, to see what finds them: tocsin.inject (docs/inject.md).

Where a fault comes in is a hook that torch offers, on the one module, parameter or loader that is
named, put there when the model is called first; a step ends with the first optimizer that stepped.
What it does to the bits is in fault_patterns.py, collectives and checkpoints are in
injected_calls.py. A recorder sees the tensor after the fault, and nothing of what is done here.
"""

import atexit
import contextlib
import copy
import dataclasses
import json
import os
import random
import shlex
import sys
import weakref

from tocsin import injected_calls
from tocsin.messages import say

PLACES = ("gradient", "activation", "input", "weight", "optimizer", "batch", "generator",
          "collective", "checkpoint")  # fmt: skip
PATTERNS = ("bit", "warp", "tile", "rows", "sign", "scale", "stuck", "nan", "reorder", "rounded",
            "rescale", "roll")  # fmt: skip
CALLS = ("first", "all")
LATE = ("gradient", "weight", "collective", "checkpoint")


@dataclasses.dataclass(frozen=True)
class Fault:
    """What tocsin.inject takes, checked."""

    place: str
    name: str = ""
    step: int = 1
    pattern: str = "bit"
    rank: int | None = None
    seed: int = 0
    persistent: bool = False
    late: bool = False
    calls: str = "first"
    element: tuple[int, ...] | None = None
    bit: int | None = None
    value: float | None = None
    log: str | None = None

    def __post_init__(self):
        if self.place not in PLACES:
            raise ValueError(f"place is {self.place!r}, not one of {', '.join(PLACES)}")
        if self.pattern not in PATTERNS:
            raise ValueError(f"pattern is {self.pattern!r}, not one of {', '.join(PATTERNS)}")
        if self.step < 1:
            raise ValueError(f"step is {self.step}; the first is 1")
        if self.late and self.place not in LATE:
            raise ValueError(f"late is for {', '.join(LATE)}, not for {self.place}")
        if self.calls not in CALLS:
            raise ValueError(f"calls is {self.calls!r}, not one of {', '.join(CALLS)}")
        if self.place == "optimizer" and "#" not in self.name:
            raise ValueError("an optimizer's state is named PARAMETER#KEY: layer.weight#exp_avg")
        if self.place == "collective" and self.name not in ("", *injected_calls.COLLECTIVES):
            known = ", ".join(injected_calls.COLLECTIVES)
            raise ValueError(f"a collective is named by its function, one of {known}")
        if self.place == "checkpoint" and self.late:
            if self.pattern not in injected_calls.BYTE_PATTERNS:
                raise ValueError(f"a file's bytes cannot be changed by {self.pattern!r}")

    def owner(self):
        """The names of the module and of its parameter: ("first", "weight"); of a module None."""
        if self.place in ("gradient", "weight", "optimizer"):
            owner, _, key = self.name.partition("#")[0].rpartition(".")
            return owner, key
        return self.name, None

    def describe(self):
        what = "the generator" if self.place == "generator" else f"{self.pattern} in {self.place}"
        name = f" of {self.name}" if self.name else ""
        rank = "" if self.rank is None else f" on rank {self.rank}"
        calls = ", all calls" if self.calls == "all" else ""
        return f"{what}{name}, {'from ' if self.persistent else ''}step {self.step}{calls}{rank}"


def _rank():
    distributed = sys.modules.get("torch.distributed")
    if distributed and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank()
    return int(os.environ.get("RANK", "0"))


@contextlib.contextmanager
def _unseen():
    """Nothing that is done here is recorded."""
    core = sys.modules.get("tocsin._core")
    held = core.hold() if core else None
    try:
        yield
    finally:
        if core:
            core.release(held)


def _plain(tensor):
    """The memory of a tensor: of a distributed one this rank's part. No version is counted up, as
    none is when memory fails."""
    return getattr(tensor, "_local_tensor", tensor).data


def _place_of_part(tensor):
    """Of a distributed tensor: where this rank's part begins in the whole."""
    if not hasattr(tensor, "_local_tensor"):
        return {}
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    _, offset = compute_local_shape_and_global_offset(
        tensor.shape, tensor.device_mesh, tensor.placements
    )
    return {"whole": list(tensor.shape), "offset": list(offset)}


def _first_tensor(value):
    """The first tensor with elements in nested tuples, lists and dicts."""
    if hasattr(value, "_local_tensor") or hasattr(value, "element_size"):
        return value if value.numel() else None
    items = value.values() if isinstance(value, dict) else value
    if isinstance(items, (str, bytes)) or not hasattr(items, "__iter__"):
        return None
    return next((found for item in items if (found := _first_tensor(item)) is not None), None)


def _with_a_copy(value):
    """The value with its first tensor copied: what a module returned before stays as it was, and a
    recorder that knows that tensor reads the copy anew."""
    if hasattr(value, "element_size"):
        return value.clone() if value.numel() else value
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items if isinstance(value, (dict, list, tuple)) else ():
        if _first_tensor(item) is None:
            continue
        if not isinstance(value, tuple):
            value[key] = _with_a_copy(item)
            return value
        parts = (*value[:key], _with_a_copy(item), *value[key + 1 :])
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def _tensors(value, path=()):
    """(path, tensor) of all tensors in nested dicts, lists and tuples."""
    if hasattr(value, "element_size"):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _tensors(item, (*path, key))
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            yield from _tensors(item, (*path, place))


def _dotted(path):
    return ".".join(map(str, path))


def _with_copy_at(value, path):
    """The nested value with its tensor at that path copied, and that copy; the caller's containers
    stay as they are."""
    if not path:
        tensor = value.detach().clone()
        return tensor, tensor
    inner, tensor = _with_copy_at(value[path[0]], path[1:])
    if isinstance(value, tuple):
        parts = (*value[: path[0]], inner, *value[path[0] + 1 :])
        return (type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)), tensor
    changed = copy.copy(value)
    changed[path[0]] = inner
    return changed, tensor


class Injection:
    """A fault that waits for its place and step. done: what was changed, a dict each time."""

    def __init__(self, fault):
        self.fault = fault
        self.done = []
        self.held = None  # a changed copy that may be on its way
        self._handles = []
        self._step_done = 0  # the last one in which it was put in
        self._bound = False

    def close(self):
        """Take it away: nothing is changed from here on."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        _waiting.discard(self)
        injected_calls.end(self)

    def _step(self):
        """The step that is running; of a checkpoint the one that has ended."""
        return _steps.done + (self.fault.place != "checkpoint")

    def due(self):
        fault, step = self.fault, self._step()
        wanted = step >= fault.step if fault.persistent else step == fault.step
        again = fault.calls == "all" or self._step_done != step
        return wanted and again and fault.rank in (None, _rank())

    def strike(self, value, role, phase, name=None):
        """Change the first tensor of what passes, if it is time."""
        if not self.due():
            return
        with _unseen():
            tensor = _first_tensor(value)
            if tensor is None:
                return
            from tocsin import fault_patterns

            self._step_done = self._step()
            draw = random.Random(f"{self.fault.seed} {self.fault.step}")
            plain = _plain(tensor)
            where = {"shape": list(plain.shape), **_place_of_part(tensor)}
            changed = fault_patterns.apply(plain, self.fault, draw)
            self._log(role, phase, {**where, **changed}, name)

    @staticmethod
    def copied(value):
        """The nested value with a copy of its first tensor."""
        with _unseen():
            paths = [path for path, tensor in _tensors(value) if tensor.numel()]
            return _with_copy_at(value, paths[0])[0] if paths else value

    def struck_copy(self, state):
        """Of a state that is saved: a copy in which one tensor is changed, if it is time."""
        if not self.due():
            return state
        with _unseen():
            paths = [path for path, tensor in _tensors(state) if _plain(tensor).numel()]
            wanted = [path for path in paths if _dotted(path).endswith(self.fault.name)]
            if not wanted:
                return state
            path = random.Random(f"{self.fault.seed} path").choice(wanted)
            state, tensor = _with_copy_at(state, path)
        self.strike(tensor, "data", "checkpoint", _dotted(path))
        return state

    def _log(self, role, phase, changed, name=None):
        fault = self.fault
        truth = {
            "step": self._step(), "rank": _rank(), "fqn": fault.name if name is None else name,
            "role": role, "phase": phase, "place": fault.place, "pattern": fault.pattern,
            **changed,
        }  # fmt: skip
        self.done.append(truth)
        line = json.dumps(truth)
        if fault.log is None:
            say(f"injected {line}")
        else:
            with open(fault.log, "a", encoding="utf-8") as log:
                log.write(line + "\n")

    # ---- where ---------------------------------------------------------------------------------

    def bind(self, names):
        """Put the hook where it belongs, if that is in this model."""
        if self.fault.place == "collective":
            injected_calls.watch_buckets(next(iter(names[""])))
            return True
        owner, key = self.fault.owner()
        for module in names.get(owner, ()):
            if key is None:
                self._bind_module(module)
            elif module._parameters.get(key) is not None:
                self._bind_parameter(next(iter(names[""])), module, key)
            else:
                continue
            self._bound = True
            return True
        return False

    def _bind_module(self, module):
        if self.fault.place == "activation":
            def returned(module, args, output):
                if not self.due():
                    return None
                with _unseen():
                    output = _with_a_copy(output)
                self.strike(output, "output", "forward")
                return output

            self._handles.append(module.register_forward_hook(returned))
            return

        def called(module, args, kwargs):
            if self.fault.place == "generator":
                self._reseed()
            elif self.due():
                with _unseen():
                    args, kwargs = _with_a_copy((args, kwargs))
                self.strike((args, kwargs), "input", "forward")
                return args, kwargs
            return None

        handle = module.register_forward_pre_hook(called, with_kwargs=True)
        self._handles.append(handle)

    def _reseed(self):
        import torch

        if self.due():
            with _unseen():
                self._step_done = self._step()
                torch.manual_seed(self.fault.seed + 1)
                self._log("value", "forward", {"changed": 1, "elements": []})

    def _bind_parameter(self, root, module, key):
        place, late = self.fault.place, self.fault.late
        if place == "weight" and not late:
            def called(root, args):
                self.strike(module._parameters[key], "data", "forward")

            # Before whoever looks at the weights when the model is called.
            self._handles.append(root.register_forward_pre_hook(called, prepend=True))
            return
        import torch

        engine = torch.autograd.Variable._execution_engine

        def at_end(parameter):
            if place == "gradient":
                self.strike(parameter.grad, "grad", "backward")
            elif place == "weight":
                self.strike(parameter, "data", "optimizer")
            else:
                self.strike(_optimizer_state(parameter, self.fault.name), "data", "optimizer")

        def accumulated(parameter):
            if place == "gradient" and not late:
                self.strike(parameter.grad, "grad", "backward")
            elif self.due():
                # Callbacks run in order; what DistributedDataParallel and FSDP do at the end of
                # backward is asked for in such ones, at the latest while they run.
                again = lambda: engine.queue_callback(lambda: at_end(parameter))  # noqa: E731
                engine.queue_callback(again)

        parameter = module._parameters[key]
        if place == "gradient" and not late and self.fault.calls == "all":
            self._handles.append(parameter.register_hook(self._on_its_way))
            return
        handle = parameter.register_post_accumulate_grad_hook(accumulated)
        _put_first(parameter._post_accumulate_grad_hooks, handle.id)
        self._handles.append(handle)


    def _on_its_way(self, gradient):
        """Before it is accumulated, or returned by torch.autograd.grad."""
        if not self.due():
            return None
        with _unseen():
            gradient = gradient.clone()
        self.strike(gradient, "grad", "backward")
        return gradient


def _put_first(hooks, key):
    """Before who reads. Torch runs hooks as a plain dict holds them, whatever order an OrderedDict
    says it has; so all others are put in anew."""
    for other in [held for held in hooks if held != key]:
        hooks[other] = hooks.pop(other)


def _optimizer_state(parameter, name):
    key = name.partition("#")[2]
    for optimizer in list(_steps.optimizers):
        state = dict.get(optimizer.state, parameter)
        if state and key in state:
            return state[key]
    return ()


class _Steps:
    """Counts the steps of the optimizer that stepped first."""

    def __init__(self):
        self.done = 0
        self.optimizers = weakref.WeakSet()
        self._leader = None

    def stepped(self, optimizer, args, kwargs):
        """The hook of all optimizers."""
        self.optimizers.add(optimizer)
        if self._leader is None or self._leader() is None:
            self._leader = weakref.ref(optimizer)
        self.done += self._leader() is optimizer


_steps = _Steps()
_waiting = set()  # injections that have no place yet
_looked_at = weakref.WeakSet()  # modules, for those that wait now
_finder = None
_installed = False
_loaders_watched = []


def _find(module, args):
    """Before each call of a module, as long as some fault has no place: is it in this one?"""
    global _finder
    if module in _looked_at:
        return
    from tocsin import variables

    with _unseen():
        names = {}
        for name, inner in variables.walk(module, ""):
            names.setdefault(name, []).append(inner)
            _looked_at.add(inner)
        if not any(inner._parameters for found in names.values() for inner in found):
            return  # a loss: no model
        for injection in list(_waiting):
            if injection.bind(names):
                _waiting.discard(injection)
    if not _waiting and _finder is not None:
        _finder.remove()  # torch.compile would see it
        _finder = None


def _watch_models(torch):
    global _finder
    _looked_at.clear()
    if _finder is None:
        _finder = torch.nn.modules.module.register_module_forward_pre_hook(_find)


def _watch_loaders(injection):
    from torch.utils.data import dataloader

    if not _loaders_watched:
        for cls in (dataloader._SingleProcessDataLoaderIter,
                    dataloader._MultiProcessingDataLoaderIter):  # fmt: skip
            def next_data(self, original=cls._next_data):
                data = original(self)
                for each in _loaders_watched:
                    each.strike(data, "samples", "data")
                return data

            cls._next_data = next_data
    _loaders_watched.append(injection)


def _remind(injection):
    fault = injection.fault
    if not injection.done and fault.rank in (None, _rank()):
        named = injection._bound or fault.place in ("batch", "collective", "checkpoint")
        found = "" if named else ": nothing has that name"
        say(f"warning: no fault was injected: {fault.describe()}{found}")


def _try(log):
    """A log that cannot be written is said now, not where the fault comes in."""
    try:
        with open(log, "a", encoding="utf-8"):
            pass
    except OSError as error:
        raise ValueError(f"log: {error}") from error


def inject(place, name="", *, step, **options):
    """Put a fault into this process, and say so on stderr. Returns an Injection.

    place, name: "gradient", "weight" of a parameter, "optimizer" state PARAMETER#KEY, "activation",
        "input" of a module (first tensor), "batch" of a DataLoader, "generator" (a module's name:
        it is seeded anew before the call), "collective" (a function of torch.distributed),
        "checkpoint" (a tensor in the state)
    step: the training step, from 1; persistent=True: in each one from there on
    calls: the "first" in the step, or "all" of them, as a device that computes wrongly
    pattern: what happens to the bits, by default "bit"; seed: chooses element and bit;
        element, bit, value: chosen by the caller
    rank: on this one alone
    late=True: a gradient after it was averaged over ranks, a weight after the backward pass, what
        a collective gives this rank, the bytes of a checkpoint's file
    log: a file to which the ground truth is appended as a JSON line; by default stderr
    """
    global _installed
    import torch

    injection = Injection(Fault(place, name, step, **options))
    if injection.fault.log is not None:
        _try(injection.fault.log)
    say(f"warning: FAULT INJECTION: {injection.fault.describe()}")
    if not _installed:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(_steps.stepped)
        _installed = True
    if place == "batch":
        _watch_loaders(injection)
    elif place == "checkpoint":
        injected_calls.begin(injection)
    else:
        if place == "collective":
            injected_calls.begin(injection)
        _waiting.add(injection)
        _watch_models(torch)
    atexit.register(_remind, injection)
    return injection


# ---- the environment ---------------------------------------------------------------------------

_READERS = {
    "step": int, "rank": int, "seed": int, "bit": int, "value": float,
    "persistent": lambda text: {"0": False, "1": True}[text],
    "late": lambda text: {"0": False, "1": True}[text],
    "element": lambda text: tuple(int(part) for part in text.split(",")),
}  # fmt: skip
_NAMES = {field.name for field in dataclasses.fields(Fault)}


def parse(text):
    """The arguments of each fault of "place=gradient name=first.weight step=3; ..."."""
    faults = []
    for part in filter(str.strip, text.split(";")):
        arguments = {}
        for word in shlex.split(part):
            name, equals, value = word.partition("=")
            if not equals or name not in _NAMES:
                raise ValueError(f"TOCSIN_INJECT: {word!r} is not one of {sorted(_NAMES)} = value")
            try:
                arguments[name] = _READERS.get(name, str)(value)
            except (ValueError, KeyError) as error:
                raise ValueError(f"TOCSIN_INJECT: {name} cannot be {value!r}") from error
        if "place" not in arguments or "step" not in arguments:
            raise ValueError(f"TOCSIN_INJECT: {part.strip()!r} has no place or no step")
        faults.append(arguments)
    return faults


def from_environment(text):
    """Put in what TOCSIN_INJECT says."""
    return [inject(**arguments) for arguments in parse(text)]
