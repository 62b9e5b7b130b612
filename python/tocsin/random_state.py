"""Random generators: a STATE "value" with the digest of each one's state (docs/recording.md).

Read after each optimizer step, in a loader's worker after each batch that it made, and before and
after a checkpointed region that is told not to restore them. Reading a generator draws nothing from
it. Where a mode sees every operation (fake tensors), torch's is left alone.
"""

import ctypes
import random
import sys

from tocsin import _core

RNG = 4  # tocsin/event.h: tocsin_variable_kind
_MT19937_BYTES = 625 * 4  # 624 words and the position in them


def install(torch):
    """Watch what makes batches, in workers."""
    fetch = torch.utils.data._utils.fetch
    for cls in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        index = _core.hook(cls.fetch, "torch.utils.data.DataLoader._fetch", "", _core.METHOD)
        _core.watch_hook(index, fetched)


def watch_checkpointing(torch):
    checkpoint = torch.utils.checkpoint.checkpoint
    index = _core.hook(checkpoint, "torch.utils.checkpoint.checkpoint", "", _core.ARGUMENTS)
    _core.watch_call(index, checkpointed)


def checkpointed(_, args, kwargs, *result):
    """Torch's generators, before and after a region. A context_fn may restore them by itself."""
    if kwargs.get("preserve_rng_state") is not False or "context_fn" in kwargs:
        return
    torch = sys.modules["torch"]
    for name, state in (("torch", _torch_state(torch)), ("cuda", _cuda_state(torch))):
        if state is not None:
            _core.record_state(name, RNG, "generator", "value", 2, state, False, None)


def _cuda_state(torch):
    """Seed and offset, which lie on the host."""
    if not torch.cuda.is_initialized() or torch.cuda.is_current_stream_capturing():
        return None
    if torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack():
        return None
    return torch.cuda.default_generators[torch.cuda.current_device()].get_state()


def _torch_state(torch):
    if torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack():
        return None
    return torch.default_generator.get_state()


def _numpy_state(numpy):
    generator = numpy.random.get_bit_generator()
    if type(generator).__name__ != "MT19937":
        return None
    return ctypes.string_at(generator.ctypes.state_address, _MT19937_BYTES)


def _python_state():
    """A hash of it: it is the same in every process of one Python, for it is one of numbers."""
    return hash(random.getstate()[:2]).to_bytes(8, "little", signed=True)


def record(values=None):
    """The state of each generator of this process."""
    numpy = sys.modules.get("numpy")
    states = [("torch", _torch_state(sys.modules["torch"])), ("python", _python_state())]
    if numpy is not None and hasattr(getattr(numpy, "random", None), "get_bit_generator"):
        states.append(("numpy", _numpy_state(numpy)))
    for name, state in states:
        if state is not None:
            _core.record_state(name, RNG, "generator", "value", 2, state, False, values)


def fetched(_, args, kwargs, result):
    worker = sys.modules["torch.utils.data._utils.worker"]._worker_info
    if worker is not None:
        record((("worker", worker.id),))
