"""A replay sends nothing and leaves nothing behind.

What modules hold that it runs is kept before and put back after it: buffers, tensors, lists, dicts
and plain values in their attributes; and generators. DistributedDataParallel hands each call on to
its module, whichever one is called and wherever it lies. Collectives are refused: ranks replay
different batches, and some of them none.
"""

import collections
import contextlib
import threading

import torch
from torch import distributed
from torch.utils.checkpoint import CheckpointFunction

from tocsin.guard import replay_work
from tocsin.guard.collective_calls import ANY, COLLECTIVES, MESSAGES, REDUCTIONS
from tocsin.guard.unseen import Unseen

_CONTAINERS = (list, dict, set, collections.OrderedDict, collections.defaultdict, collections.deque)
_NOTHING = object()
_SENDING = (
    *COLLECTIVES, *REDUCTIONS, *MESSAGES, ANY, "allgather_coalesced",
    "allgather_into_tensor_coalesced", "allreduce_coalesced", "barrier", "monitored_barrier",
    "reduce_scatter_tensor_coalesced",
)  # fmt: skip


class _Kept:
    """What modules hold. The contents of a container are kept, what is inside these is not."""

    def __init__(self):
        self._modules = {}  # id -> (module, its attributes)
        self._containers = []  # (container, items)
        self._tensors = {}  # id -> (tensor, value)

    def keep(self, module):
        if id(module) in self._modules:
            return
        for each in module.modules():
            if id(each) in self._modules:
                continue
            self._modules[id(each)] = each, dict(vars(each))
            for value in vars(each).values():
                if type(value) in _CONTAINERS:
                    items = _items(value)
                    self._containers.append((value, items))
                    for item in items:
                        self._keep_tensor(item)
                self._keep_tensor(value)

    def _keep_tensor(self, value):
        if not isinstance(value, torch.Tensor) or isinstance(value, torch.nn.Parameter):
            return
        if id(value) not in self._tensors and not value.is_inference():
            self._tensors[id(value)] = value, value.detach().clone()

    def put_back(self):
        for tensor, value in self._tensors.values():
            replay_work.write(tensor, value)
        for container, items in self._containers:
            now = _items(container)
            if len(now) != len(items) or any(a is not b for a, b in zip(now, items)):
                _refill(container, items)
        for module, attributes in self._modules.values():
            held = vars(module)
            for name, value in attributes.items():
                if held.get(name, _NOTHING) is not value:
                    held[name] = value


def _items(container):
    if isinstance(container, dict):
        return [*container.keys(), *container.values()]
    return list(container)


def _refill(container, items):
    container.clear()
    if isinstance(container, dict):
        half = len(items) // 2
        container.update(zip(items[:half], items[half:]))
    elif isinstance(container, set):
        container.update(items)
    else:
        container.extend(items)


@contextlib.contextmanager
def undisturbed(module, device):
    """Put back what the module and its parts hold, and generators, whatever is computed in between;
    nothing is recorded. Gives what keeps, so that more can be kept."""
    states = replay_work.generator_states(device)
    kept = _Kept()
    kept.keep(module)
    with Unseen():
        try:
            yield kept
        finally:
            kept.put_back()
            replay_work.set_generator_states(states, device)


@contextlib.contextmanager
def alone(kept, gradients, compiled):
    """Nothing that this thread calls tells other ranks anything; other modules that it calls are
    kept, too. gradients: wanted, too. compiled: the model is, then modules are called as ever, for
    a compiler reads how."""
    thread = threading.get_ident()
    wrapper = torch.nn.parallel.DistributedDataParallel
    replaced = [(wrapper, "forward", _handing_on(kept, thread))]
    if not compiled:
        replaced.append((torch.nn.Module, "__call__", _keeping(kept, thread)))
    for name in _SENDING:
        if name in vars(distributed.ProcessGroup):
            text = f"compute_loss calls other ranks ({name}): leave that out where " \
                   "guard.replaying is true"  # fmt: skip
            replaced.append((distributed.ProcessGroup, name, _refusing(text, thread)))
    if gradients:  # those of parameters in it would be none
        text = "checkpointing with use_reentrant=True has gradients in backward() alone"
        replaced.append((CheckpointFunction, "forward", _refusing(text, thread)))
    with contextlib.ExitStack() as stack:
        for each in replaced:
            stack.enter_context(_replaced(*each))
        yield


@contextlib.contextmanager
def _replaced(owner, name, make):
    original = vars(owner)[name]
    setattr(owner, name, make(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


def _keeping(kept, thread):
    def make(original):
        def call(self, *args, **kwargs):
            if threading.get_ident() == thread:
                kept.keep(self)
            return original(self, *args, **kwargs)

        return call

    return make


def _handing_on(kept, thread):
    def make(original):
        def forward(self, *args, **kwargs):
            if threading.get_ident() != thread:
                return original(self, *args, **kwargs)
            kept.keep(self.module)
            if self.device_ids:
                from torch.distributed.utils import _to_kwargs

                device = torch.device(self.device_type, self.device_ids[0])
                moved, moved_kwargs = _to_kwargs(args, kwargs, device, False)
                args, kwargs = moved[0], moved_kwargs[0]
            return self.module(*args, **kwargs)

        return forward

    return make


def _refusing(text, thread):
    def make(original):
        called = original.__func__ if isinstance(original, staticmethod) else original

        def method(*args, **kwargs):
            if threading.get_ident() == thread:
                raise replay_work.Refused(text)
            return called(*args, **kwargs)

        return staticmethod(method) if called is not original else method

    return make
