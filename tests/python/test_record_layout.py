"""Metadata read from a tensor's memory is what its attributes say; and so on the slow path."""

import random

import pytest
import torch

from tocsin import _core, layout


@pytest.fixture(scope="module", autouse=True)
def calibrated():
    offsets = layout.calibrate(torch, _core)
    assert offsets["sizes"] > 0
    yield
    _core.tensor_layout_disable()


def expected(tensor):
    dense = tensor.layout == torch.strided and tensor.device.type == "cpu"
    readable = dense and not tensor.is_conj() and not tensor.is_neg()
    data = tensor.data_ptr() if readable and tensor.numel() else None
    grad = tensor.is_leaf and tensor.grad is not None
    name = str(tensor.dtype).removeprefix("torch.")
    strides = tensor.stride() if tensor.layout == torch.strided else None
    flags = (tensor.requires_grad, tensor.grad_fn is not None)
    on_cpu = tensor.device.type == "cpu"
    return data, tuple(tensor.shape), strides, name, *flags, on_cpu, readable, grad


def check(tensor):
    data, shape, strides, *rest = _core.tensor_layout_read(tensor)
    wanted = expected(tensor)
    assert (shape, *rest) == (wanted[1], *wanted[3:])
    assert wanted[0] is None or data == wanted[0]
    assert wanted[2] is None or strides == wanted[2]


def random_tensor(chooser):
    shape = [chooser.randint(0, 4) for _ in range(chooser.randint(0, 8))]
    dtype = chooser.choice(
        [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.complex64]
    )
    tensor = torch.zeros(shape, dtype=dtype, device=chooser.choice(["cpu"] * 9 + ["meta"]))
    if shape and chooser.random() < 0.5:
        tensor = tensor.transpose(0, len(shape) - 1)
    if tensor.is_floating_point() and chooser.random() < 0.5:
        tensor = tensor.clone().requires_grad_()
        if chooser.random() < 0.5:
            tensor.grad = torch.ones_like(tensor)
        elif chooser.random() < 0.5:
            tensor = tensor * 1
    if shape and shape[0] > 1 and chooser.random() < 0.3:
        tensor = tensor[1:]
    if tensor.is_complex() and chooser.random() < 0.5:
        tensor = tensor.conj()
    return tensor


def test_random_tensors():
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    chooser = random.Random(seed)
    for _ in range(2000):
        check(random_tensor(chooser))


def test_parameters_sparse_and_shrunk_tensors():
    check(torch.nn.Parameter(torch.zeros(2, 3)))
    check(torch.eye(3).to_sparse())
    shrunk = torch.zeros(10)
    shrunk.untyped_storage().resize_(8)
    assert _core.tensor_layout_read(shrunk)[7] is False  # not readable


def test_only_exact_tensors_are_read():
    class Mine(torch.Tensor):
        pass

    assert _core.tensor_layout_read(torch.zeros(2).as_subclass(Mine)) is None
    assert _core.tensor_layout_read(torch.nn.Buffer(torch.zeros(2))) is not None
    with pytest.raises(TypeError):
        _core.tensor_layout_calibrate()


def test_the_slow_path_says_the_same():
    _core.tensor_layout_disable()
    try:
        for number in range(300):
            check(random_tensor(random.Random(number)))
    finally:
        layout.calibrate(torch, _core)


def test_a_wrong_battery_is_refused():
    probes = list(layout._plain(torch, layout._numbers(torch, _core.dtype_number)))
    with pytest.raises(ValueError, match="tensor layout"):
        _core.tensor_layout_calibrate(torch.Tensor, torch.nn.Parameter, probes, [])
    layout.calibrate(torch, _core)
