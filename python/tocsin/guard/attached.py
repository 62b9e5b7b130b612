"""`tocsin run --guard`: a guard for each optimizer of a script that knows nothing of it.

An optimizer that is about to step for the first time gets its guard, if all ranks step one like it
then; they ask each other through the job's store, which needs nobody to answer. Checks run before
and after each step, with a closure after the gradients that it computes. Without one, the gradients
of the very first step are seen only after they were averaged. A step that a GradScaler skips never
comes here.

A guard lies in its optimizer, so that both go when the script drops them.
"""

import gc
import sys
import weakref

from tocsin.guard import digests
from tocsin.guard.exchange import Exchange, all_come
from tocsin.guard.gradient_check import find_ddp
from tocsin.guard.guard import Guard
from tocsin.guard.unseen import Unseen
from tocsin.messages import say

PLACE = "_tocsin_guard"  # the attribute of an optimizer; copies and pickles of it are without

_action, _folder = "stop", "tocsin-guard"
_stepping = None  # weak: the outermost optimizer whose step is under way
_patience = 60.0  # seconds that ranks wait for each other's first steps
_came = {}  # what an optimizer is -> how many of them have come; -1: not on all ranks
_shared = None, None  # the job's process group, weak, and the exchange in it
_warned = set()


def install(action, folder):
    """Guard every optimizer that steps from here on."""
    global _action, _folder
    from torch.optim import optimizer

    _action, _folder = action, folder
    optimizer.register_optimizer_step_pre_hook(_about_to_step)
    optimizer.register_optimizer_step_post_hook(_stepped)


def _about_to_step(optimizer, args, kwargs):
    global _stepping
    outer = _stepping() if _stepping is not None else None
    if outer is not None and outer is not optimizer and _holds(outer, optimizer):
        return None  # it does the work of the outer one, which is not done when this one is
    if digests.is_capturing():
        _warn("steps that are captured in a CUDA graph are not guarded")
        return None
    _stepping = weakref.ref(optimizer)
    if PLACE not in vars(optimizer):
        setattr(optimizer, PLACE, _attach(optimizer))
    attached = getattr(optimizer, PLACE)
    return None if attached is None else attached.before(args, kwargs)


def _stepped(optimizer, args, kwargs):
    global _stepping
    if _stepping is not None and _stepping() is not optimizer:
        return
    _stepping = None
    attached = vars(optimizer).get(PLACE)
    if attached is not None:
        attached.after()


def _holds(outer, inner):
    """Is it an attribute of the other (ZeroRedundancyOptimizer), or in a list of its?"""
    for value in vars(outer).values():
        held = value if isinstance(value, (list, tuple)) else (value,)
        if any(each is inner for each in held):
            return True
    return False


class _Attached:
    """A guard, and the step that is between its halves."""

    def __init__(self, guard):
        self.guard = guard
        self.outcome = None

    def before(self, args, kwargs):
        """Check now, or, with a closure, when it has computed gradients: then the arguments of
        step() with that closure instead."""
        self.outcome = None
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if not callable(closure):
            self._check()
            return None
        checked = self._checked(closure)
        if "closure" in kwargs:
            return args, {**kwargs, "closure": checked}
        return (args[0], checked, *args[2:]), kwargs

    def _checked(self, closure):
        def computed(*arguments, **named):
            loss = closure(*arguments, **named)
            if self.outcome is None:  # some call it again in a step
                self._check()
            return loss

        return computed

    def _check(self):
        self.outcome = self.guard.before_update()
        if self.outcome.skipped_by == "guard":
            for group in self.guard.optimizers[0].param_groups:
                for parameter in group["params"]:
                    parameter.grad = None  # an optimizer does not move what has no gradient

    def after(self):
        if self.outcome is not None:
            self.guard.after_update(self.outcome)
        self.outcome = None


def _attach(optimizer):
    with Unseen():
        if _steps_in_backward(optimizer):
            _warn("optimizers that step inside a backward pass are not guarded")
            return None
        gc.collect()  # a model that is only not yet collected is none
        model = _model_of(optimizer)
        if model is None:
            _warn("an optimizer has parameters of no module: it is not guarded")
            return None
        kind = type(optimizer).__name__
        try:
            if _all_ranks_come(optimizer, model):
                exchange = _exchange()
                return _Attached(
                    Guard(model, optimizer, on_alarm=_action, folder=_folder, exchange=exchange)
                )
            _warn(f"{kind} is not guarded: not all ranks came to step one like it")
        except Exception as error:  # no reason to end a healthy job
            _warn(f"{kind} is not guarded: {error}")
        return None


def _steps_in_backward(optimizer):
    """Then no gradient is complete before an update, and threads of the job may step it."""
    torch = sys.modules["torch"]
    return torch._C._current_graph_task_id() != -1 or any(
        hasattr(parameter, "_in_backward_optimizers")
        for group in optimizer.param_groups for parameter in group["params"]
    )  # fmt: skip


def _all_ranks_come(optimizer, model):
    """Do all ranks step one like it for the first time, as the n-th of its kind?"""
    distributed = sys.modules["torch"].distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return True
    kind = type(optimizer).__name__
    if find_ddp(model) is not None:  # else ranks may have different parts of a model
        kind += repr([tuple(each.shape) for each in model.parameters()])
    number = _came.get(kind, 0)
    if number >= 0:
        here = distributed.group.WORLD.group_name
        came = all_come(f"{here} {number} {kind}", _patience)
        _came[kind] = number + 1 if came else -1
    return _came[kind] > 0


def _exchange():
    """One for all guards: they step one after another."""
    global _shared
    distributed = sys.modules["torch"].distributed
    world = distributed.group.WORLD if distributed.is_available() else None
    known, exchange = _shared
    if exchange is None or (known is None) != (world is None) or known and known() is not world:
        exchange = Exchange()
        _shared = None if world is None else weakref.ref(world), exchange
    return exchange


def _model_of(optimizer):
    """The outermost module that has most of the optimizer's parameters: DistributedDataParallel if
    there is one, else the one with most parameters."""
    torch = sys.modules["torch"]
    own = {id(p) for group in optimizer.param_groups for p in group["params"]}
    distributed = sys.modules.get("torch.nn.parallel.distributed")
    wrapper = distributed.DistributedDataParallel if distributed is not None else ()
    best, best_rank = None, None
    for thing in gc.get_objects():
        if not issubclass(type(thing), torch.nn.Module):  # isinstance() would ask proxies
            continue
        try:
            parameters = list(thing.parameters())
        except Exception:
            continue  # half made
        held = sum(id(parameter) in own for parameter in parameters)
        if held > 0:
            rank = (issubclass(type(thing), wrapper), held, len(parameters),
                    len(list(thing.modules())))  # fmt: skip
            if best_rank is None or rank > best_rank:
                best, best_rank = thing, rank
    return best


def _warn(text):
    """Once."""
    if text not in _warned:
        _warned.add(text)
        say(f"guard: warning: {text}")
