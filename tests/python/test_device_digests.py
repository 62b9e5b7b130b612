"""Digests on a GPU, on a machine without one: tensors of the CPU take the usual way; against the
emulated driver (tests/cuda), whose device memory is memory, the results are those of the CPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tocsin import _core
from tocsin.guard import device_digests, digests

EMULATED = Path(os.environ["TOCSIN_BUILD"]) / "tests" / "emulated"
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.uint8,
          torch.bool, torch.complex64]  # fmt: skip

needs_kernel = pytest.mark.skipif(
    not _core.device_digest_kernel(), reason="built without nvcc: there is no kernel to open"
)


class EmulatedDigests(device_digests.DeviceDigests):
    """Tensors of the CPU as if they were on the emulated device, its default stream."""

    def _current(self):
        return torch.inference_mode(), 0  # any context


def tensors_of_all_kinds():
    torch.manual_seed(0)
    made = [torch.randint(0, 100, (7, 33 * i)).to(dtype) for i, dtype in enumerate(DTYPES)]
    return [*made, torch.tensor(2.5), torch.randn(70000), torch.full((9,), float("nan"))]


def emulated_steps():
    """Runs where the emulated driver is found."""
    there = EmulatedDigests(torch.device("cpu"))
    tensors = tensors_of_all_kinds()
    for _ in range(3):
        there.launch(tensors)
        opened = there._opened
        assert there.read(wait=False) is None  # still under way
        assert there.read() == _core.digest_tensors(tensors)
        tensors[-2].mul_(1.5)
    there.launch(tensors)
    assert there._opened is opened  # the tensors have not moved
    assert there.read() == _core.digest_tensors(tensors)
    tensors[-2] = tensors[-2].clone()
    there.launch(tensors)
    assert there._opened is not opened
    assert there.read() == _core.digest_tensors(tensors)
    with pytest.raises(NotImplementedError, match="lie side by side"):
        there.launch([torch.randn(30, 40).t()])
    there.launch(tensors)  # and on it goes
    assert there.read() == _core.digest_tensors(tensors)


@needs_kernel
def test_steps_on_the_emulated_driver():
    code = "import test_device_digests as t; t.digests.digest(t.tensors_of_all_kinds()); "
    environment = {**os.environ, "LD_LIBRARY_PATH": str(EMULATED)}
    environment["PYTHONPATH"] = f"{Path(__file__).parent}:{environment['PYTHONPATH']}"
    done = subprocess.run([sys.executable, "-c", code + "t.emulated_steps()"], env=environment,
                          capture_output=True, text=True, timeout=120)  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_tensors_of_the_cpu_take_the_usual_way():
    tensors = tensors_of_all_kinds()
    assert digests.digest(tensors) == _core.digest_tensors(tensors)
    assert digests.digest([]) == b""


def test_refused_without_a_device():
    there = EmulatedDigests(torch.device("cpu"))
    with pytest.raises((NotImplementedError, RuntimeError), match="CUDA|nvcc"):
        there.launch([torch.zeros(4)])


def test_mixed_places_keep_their_order(monkeypatch):
    tensors = tensors_of_all_kinds()
    chosen = {id(tensors[i]) for i in (1, 4, 8)}
    seen = []

    def digest_there(device, found):
        seen.append(len(found))
        return _core.digest_tensors(found)

    class Shown:
        """A tensor's stand-in whose place can be chosen."""

        def __init__(self, tensor):
            self.tensor = tensor
            self.is_cuda = id(tensor) in chosen
            self.device = "somewhere"

    monkeypatch.setattr(device_digests, "_is_covered", lambda shown: shown.is_cuda)
    monkeypatch.setattr(device_digests, "_digest_there",
                        lambda device, found: digest_there(device, [f.tensor for f in found]))
    found = device_digests.digest(
        [Shown(tensor) for tensor in tensors],
        lambda others: _core.digest_tensors([shown.tensor for shown in others]),
    )
    assert seen == [3]
    assert found == _core.digest_tensors(tensors)


def test_a_device_that_cannot_is_asked_once(monkeypatch, capsys):
    asked = []

    class Cannot:
        def __init__(self, device):
            pass

        def launch(self, tensors):
            asked.append(len(tensors))
            raise NotImplementedError("no kernel")

    monkeypatch.setattr(device_digests, "DeviceDigests", Cannot)
    monkeypatch.setattr(device_digests, "_devices", {})
    for _ in range(3):
        assert device_digests._digest_there("cuda:0", [1, 2]) is None
    assert asked == [2]
    assert capsys.readouterr().err.count("no kernel") == 1
