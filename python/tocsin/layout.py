"""Probes for tensor_layout.c: tensors with distinctive metadata, and the truth about each.

The extension finds the place of every fact in these probes and then has to read a second battery
right. No random number is drawn and no backward pass runs (which would start autograd's threads and
break later forks).
"""

import itertools

# Without complex32: making one warns, and the user would miss the warning later.
DTYPES = (
    "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 "
    "complex64 complex128 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz "
    "float8_e8m0fnu"
).split()


def _fact(tensor, number, fresh=False):
    """The tuple that tensor_layout.c's parse_probe() expects."""
    grad = tensor.grad if tensor.is_leaf else None
    strided = str(tensor.layout) == "torch.strided"
    storage = tensor.untyped_storage() if strided else None
    return (
        tensor,
        tensor._cdata,
        storage._cdata if strided else 0,
        storage.data_ptr() if strided else 0,
        storage.nbytes() if strided else 0,
        tensor.storage_offset() if strided else 0,
        tuple(tensor.shape),
        tensor.stride() if strided else (),
        number,
        tensor.requires_grad,
        tensor.grad_fn is not None,
        grad._cdata if grad is not None else 0,
        tensor.device.type == "cpu",
        tensor.is_conj(),
        tensor.is_neg(),
        fresh,
        tensor._version,
    )


def _numbers(torch, dtype_number):
    """The dtypes that this torch has, with Tocsin's numbers."""
    found = {}
    for name in DTYPES:
        dtype = getattr(torch, name, None)
        if dtype is not None:
            found[dtype] = dtype_number(name)
    return found


def _plain(torch, numbers):
    """Slices of larger storages: offset, size and stride are all different numbers."""
    shapes = [(3, 5), (7, 11, 13), (17,), (2, 19, 23, 29), (31, 37), (2, 3, 43, 5, 7)]
    for dtype, shape in itertools.product((torch.float32, torch.float64, torch.int64), shapes):
        count = 1
        for size in shape:
            count *= size
        view = torch.empty(count + 101, dtype=dtype)[97 : 97 + count].view(shape)
        yield _fact(view, numbers[dtype])
    for dtype in numbers:
        for shape in ((2,), (3, 4), (5, 6, 7)):
            yield _fact(torch.empty(shape, dtype=dtype), numbers[dtype], fresh=True)
    transposed = torch.empty(41, 47, 53).permute(2, 0, 1)
    yield _fact(transposed, numbers[torch.float32])
    # Memory that torch did not allocate: its context is not its address.
    foreign = torch.frombuffer(bytearray(4 * 59), dtype=torch.float32)
    yield _fact(foreign, numbers[torch.float32])
    yield _fact(torch.empty(3, 61, device="meta"), numbers[torch.float32])
    yield _fact(torch.empty(5, device="meta", dtype=torch.int64), numbers[torch.int64])


def _written(torch, numbers):
    """Tensors that were written several times, and views of them."""
    for times in (5, 1, 4, 2, 7, 3):
        tensor = torch.empty(2, 10 + times)
        for _ in range(times):
            tensor.zero_()
        yield _fact(tensor, numbers[torch.float32])
        yield _fact(tensor[1:], numbers[torch.float32])


def _lazy(torch, numbers):
    for shape in ((3,), (4, 5)):
        number = numbers[torch.complex64]
        tensor = torch.zeros(shape, dtype=torch.complex64)
        yield _fact(tensor, number)
        yield _fact(tensor.conj(), number)
        yield _fact(tensor.real, numbers[torch.float32])
        yield _fact(tensor.conj().imag, numbers[torch.float32])
        yield _fact(torch._neg_view(torch.zeros(shape)), numbers[torch.float32])


def _autograd(torch, numbers):
    number = numbers[torch.float32]
    for index in range(6):
        leaf = torch.zeros(3 + index, 3, requires_grad=index % 3 != 2)
        leaf.grad = torch.zeros(3 + index, 3) if index % 2 == 0 else None
        parameter = torch.nn.Parameter(torch.zeros(2, 9 + index), requires_grad=index % 2 == 0)
        yield _fact(leaf, number)
        yield _fact(parameter, number)
        yield _fact(leaf.detach(), number)
        yield _fact(leaf[1:], number)
        if leaf.requires_grad:
            yield _fact(leaf * 2, number)
            yield _fact(leaf.t(), number)
            yield _fact((leaf * 2)[1:], number)
            yield _fact((leaf + 1).view(-1), number)


def _battery(torch, numbers):
    """Other shapes, zero sizes, many axes, expanded and empty tensors, sparse ones."""
    number = numbers[torch.float32]
    shapes = ((), (0,), (1,), (4, 0, 3), (2, 3, 1, 5, 1, 7), (2, 1, 3, 1, 2, 1, 2), (8, 3, 3, 3))
    for shape in shapes:
        for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
            tensor = torch.zeros(shape, dtype=dtype)
            yield _fact(tensor, numbers[dtype])
            if tensor.dim() > 1:
                yield _fact(tensor.transpose(0, -1), numbers[dtype])
                yield _fact(tensor[1:], numbers[dtype])
            if tensor.is_floating_point():
                leaf = tensor.clone().requires_grad_()
                yield _fact(leaf, numbers[dtype])
                yield _fact(leaf * 1, numbers[dtype])
    yield _fact(torch.zeros(3, 1).expand(3, 4), number)
    yield _fact(torch.zeros(4, 3, 5, 5).to(memory_format=torch.channels_last), number)
    yield _fact(torch.eye(3).to_sparse(), number)
    yield from _lazy(torch, numbers)
    yield from _autograd(torch, numbers)


def calibrate(torch, core):
    """Find and verify the layout; returns the offsets. Raises ValueError: the slow path stays."""
    numbers = _numbers(torch, core.dtype_number)
    with torch.no_grad():
        plain = [*_written(torch, numbers), *_plain(torch, numbers), *_lazy(torch, numbers)]
    with torch.enable_grad():
        probes = plain + list(_autograd(torch, numbers))
        battery = list(_battery(torch, numbers))
    return core.tensor_layout_calibrate(torch.Tensor, torch.nn.Parameter, probes, battery)
