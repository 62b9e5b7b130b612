"""Digests of tensors on NVIDIA GPUs, computed where they lie instead of on copies.

Nothing here has run on a GPU (docs/gpu.md). Where there is no kernel in the build, or the driver
cannot run it, tensors are copied to the CPU as before, and one line says so.
"""

import sys

from tocsin import _core
from tocsin.messages import say

BYTES = 24  # sum, exclusive, polynomial
_RESULT = 40  # and the numbers of NaN and Inf
_devices = {}  # torch.device: DeviceDigests, None: it cannot


class DeviceDigests:
    """Digests on one device. Its tables are kept while the tensors stay where they are, so that a
    step costs two kernels and a small copy. launch() waits for nothing; read() may come later."""

    def __init__(self, device):
        self._device = device
        self._key = self._opened = None

    def _current(self):
        """The context of the device, as a Python context, and the stream that torch uses there."""
        cuda = sys.modules["torch"].cuda
        return cuda.device(self._device), cuda.current_stream(self._device).cuda_stream

    def launch(self, tensors):
        """Digest them as they are when the device gets there; keep them until read() has returned
        bytes. NotImplementedError: not these tensors, or not on this machine."""
        key = tuple(
            (each.data_ptr(), str(each.dtype).removeprefix("torch."), tuple(each.shape),
             tuple(each.stride())) for each in tensors
        )  # fmt: skip
        context, stream = self._current()
        with context:
            if key != self._key:
                self._key = self._opened = None
                self._opened = _core.device_digest_open(key)
                self._key = key
            _core.device_digest_launch(self._opened, stream)

    def read(self, wait=True):
        """24 bytes a tensor; None: they have not arrived."""
        results = _core.device_digest_read(self._opened, wait)
        if results is None:
            return None
        return b"".join(results[i : i + BYTES] for i in range(0, len(results), _RESULT))


def _is_covered(tensor):
    """On a GPU, dense in the order of its elements, and what its bits say."""
    torch = sys.modules["torch"]
    return (
        tensor.is_cuda
        and type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout == torch.strided
        and tensor.is_contiguous()
        and not tensor.is_conj()
        and not tensor.is_neg()
    )


def _digest_there(device, tensors):
    """24 bytes a tensor; None: copy them."""
    digests = _devices.setdefault(device, DeviceDigests(device))
    if digests is None:
        return None
    try:
        digests.launch(tensors)
    except (NotImplementedError, MemoryError, RuntimeError) as reason:
        _devices[device] = None
        say(f"tensors on {device} are copied to the CPU to be digested: {reason}")
        return None
    return digests.read()


def digest(tensors, elsewhere):
    """24 bytes a tensor; of those that no GPU digests by elsewhere(tensors)."""
    there = {}
    for i, tensor in enumerate(tensors):
        if _is_covered(tensor):
            there.setdefault(tensor.device, []).append(i)
    found = {}
    for device, places in there.items():
        results = _digest_there(device, [tensors[i] for i in places])
        if results is not None:
            found.update((place, results[k * BYTES : (k + 1) * BYTES])
                         for k, place in enumerate(places))  # fmt: skip
    if not found:
        return elsewhere(tensors)
    rest = [i for i in range(len(tensors)) if i not in found]
    results = elsewhere([tensors[i] for i in rest])
    found.update((place, results[k * BYTES : (k + 1) * BYTES]) for k, place in enumerate(rest))
    return b"".join(found[i] for i in range(len(tensors)))
