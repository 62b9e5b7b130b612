"""Digests of tensors as the guard compares them: of what this rank holds, in one call."""

import sys

from tocsin import _core, layout
from tocsin.guard import device_digests

BYTES = device_digests.BYTES  # of a digest
_calibrated = False


def is_capturing():
    """Is a CUDA graph being captured? Then nothing can be read."""
    cuda = sys.modules["torch"].cuda
    return cuda.is_initialized() and cuda.is_current_stream_capturing()


def local_part(tensor):
    """What this rank holds of a distributed tensor, else the tensor."""
    return getattr(tensor, "_local_tensor", tensor)


def _calibrate():
    """Learn how tensors lie in memory, unless a recorder has."""
    global _calibrated
    torch = sys.modules["torch"]
    with torch.device("cpu"):  # whatever the script's default is
        if _core.tensor_layout_read(torch.empty(0)) is None:
            try:
                layout.calibrate(torch, _core)
            except ValueError:
                pass  # attributes are read instead
    _calibrated = True


def _plain(tensor):
    """The same words as a dense tensor in host memory."""
    torch = sys.modules["torch"]
    tensor = local_part(tensor).detach()
    if tensor.layout == torch.sparse_coo:
        tensor = tensor.coalesce().values()
    return tensor.resolve_conj().resolve_neg().cpu().as_subclass(torch.Tensor)


def read(tensors, call):
    """call(tensors) on tensors that can be read in place; where one cannot, on copies."""
    if not _calibrated:
        _calibrate()
    tensors = [local_part(tensor) for tensor in tensors]
    try:
        return call(tensors)
    except (TypeError, ValueError):
        return call([_plain(tensor) for tensor in tensors])


def digest(tensors):
    """24 bytes each: native uint64 sum, exclusive, polynomial. A distributed tensor's local part is
    digested as a whole of its own."""
    return device_digests.digest(
        [local_part(tensor) for tensor in tensors],
        lambda others: read(others, _core.digest_tensors),
    )
