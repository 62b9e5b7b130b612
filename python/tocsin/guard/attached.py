"""`tocsin run --guard`: a guard for each optimizer of a script that knows nothing of it.

An optimizer that is about to step for the first time gets its guard: all ranks are there then. Its
checks run before and after each of its steps. The gradients of the very first step are seen only
after they were averaged. A step that a GradScaler skips never comes here.
"""

import gc
import sys
import weakref

from tocsin.guard.exchange import PeerLost
from tocsin.guard.guard import Guard
from tocsin.guard.unseen import Unseen
from tocsin.messages import say

_guards = weakref.WeakKeyDictionary()  # optimizer -> _Attached, None: it has no guard
_action, _folder = "stop", "tocsin-guard"
_stepping = None  # weak: the outermost optimizer whose step is under way


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
        return  # it does the work of the outer one, which is not done when this one is
    _stepping = weakref.ref(optimizer)
    if optimizer not in _guards:
        _guards[optimizer] = _attach(optimizer)
    attached = _guards[optimizer]
    if attached is not None:
        attached.before()


def _stepped(optimizer, args, kwargs):
    global _stepping
    if _stepping is not None and _stepping() is not optimizer:
        return
    _stepping = None
    attached = _guards.get(optimizer)
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

    def __init__(self, guard, optimizer):
        self.guard, self.optimizer = guard, weakref.ref(optimizer)
        self.outcome = None

    def before(self):
        self.outcome = self.guard.before_update()
        if self.outcome.skipped_by == "guard":
            for group in self.optimizer().param_groups:
                for parameter in group["params"]:
                    parameter.grad = None  # an optimizer does not move what has no gradient

    def after(self):
        if self.outcome is not None:
            self.guard.after_update(self.outcome)
        self.outcome = None


def _attach(optimizer):
    with Unseen():
        model = _model_of(optimizer)
        if model is None:
            _warn("an optimizer has parameters of no module: it is not guarded")
            return None
        try:
            guard = Guard(model, optimizer, on_alarm=_action, folder=_folder)
        except PeerLost as lost:
            _warn(f"an optimizer is not guarded: not all ranks step it ({lost})")
            return None
        return _Attached(guard, optimizer)


def _model_of(optimizer):
    """The outermost module that has the optimizer's first parameter: DistributedDataParallel if
    there is one, else the one with most parameters."""
    torch = sys.modules["torch"]
    first = next((p for group in optimizer.param_groups for p in group["params"]), None)
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
        if any(parameter is first for parameter in parameters):
            rank = (issubclass(type(thing), wrapper), len(parameters), len(list(thing.modules())))
            if best_rank is None or rank > best_rank:
                best, best_rank = thing, rank
    return best


def _warn(text):
    say(f"guard: warning: {text}")
