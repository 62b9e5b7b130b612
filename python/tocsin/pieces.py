"""Where in the whole tensor lies what this rank holds of a DTensor.

Reads what the DTensor says of itself: its local tensor, placements and mesh. No communication, no
operation of torch.
"""

import sys

from tocsin import _core, distributed

by_hand = False  # also what Megatron's marks say of plain parameters


def _chunk(runs, parts, index):
    """The index-th of `parts` chunks, as torch.chunk cuts them, of the places in `runs`, a list of
    (begin, length)."""
    size = sum(length for _, length in runs)
    step = -(-size // parts)
    begin, end = min(step * index, size), min(step * (index + 1), size)
    found, at = [], 0
    for first, length in runs:
        low, high = max(begin - at, 0), min(end - at, length)
        if low < high:
            found.append((first + low, high - low))
        at += length
    return found


def _cut(runs, placement, parts, index):
    """What a Shard or a _StridedShard leaves of the places on its axis."""
    factor = getattr(placement, "split_factor", 1)
    if factor == 1:
        return _chunk(runs, parts, index)
    pieces = [_chunk(_chunk(runs, factor, i), parts, index) for i in range(factor)]
    return [run for piece in pieces for run in piece]


def _box(runs, size):
    """(begin, length) of places that follow each other; None: they do not."""
    if not runs:
        return size, 0
    length = 0
    for begin, more in runs:
        if begin != runs[0][0] + length:
            return None
        length += more
    return runs[0][0], length


def place(shape, placements, sizes, coordinate):
    """(offset, local shape, pending reduction or "") of the rank at `coordinate` of a mesh of these
    sizes; None if its part is no box."""
    axes = [[(0, size)] if size else [] for size in shape]
    pending = ""
    for placement, parts, index in zip(placements, sizes, coordinate, strict=True):
        kind = type(placement).__name__
        if kind in ("Shard", "_StridedShard"):
            axes[placement.dim] = _cut(axes[placement.dim], placement, parts, index)
        elif kind == "Partial":
            pending = str(placement.reduce_op)
        elif kind != "Replicate":
            return None
    boxes = [_box(runs, size) for runs, size in zip(axes, shape, strict=True)]
    if None in boxes:
        return None
    return tuple(b for b, _ in boxes), tuple(n for _, n in boxes), pending


def whole_shape(tensor):
    """The shape of the tensor of which a DTensor holds a part; None: it is no DTensor."""
    module = sys.modules.get("torch.distributed.tensor._api")
    if module is None or type(tensor) is not module.DTensor:
        return None
    return tuple(tensor._spec.tensor_meta.shape)


def _where(tensor):
    """(whole, offset, pending reduction) of a DTensor's local tensor, or None."""
    spec = tensor._spec
    coordinate = spec.mesh.get_coordinate()
    if coordinate is None:
        return None
    whole = tuple(spec.tensor_meta.shape)
    placed = place(whole, spec.placements, tuple(spec.mesh.shape), coordinate)
    if placed is None or placed[1] != tuple(tensor._local_tensor.shape):
        return None
    return whole, placed[0], placed[2]


def _local(tensor):
    """Its local tensor; of one that a collective fills what is filled, once that was waited for."""
    local = tensor._local_tensor
    waited = type(local).__name__ == "AsyncCollectiveTensor" and local.completed
    return local.elem if waited else local


def mark_reader():
    """place(parameter) -> (whole, offset) of a plain parameter that Megatron's marks call a part of
    a larger one, None: it is none, or its place is not known."""
    group = distributed.tensor_parallel_place() if by_hand else None

    def place(parameter):
        marked = getattr(parameter, "tensor_model_parallel", False) is True
        axis = getattr(parameter, "partition_dim", None)
        layout = _core.tensor_layout_read(parameter) if marked and group is not None else None
        if layout is None or getattr(parameter, "partition_stride", None) != 1:
            return None
        rank, size = group
        shape = list(layout[1])
        if type(axis) is not int or not 0 <= axis < len(shape):
            return None
        offset = [0] * len(shape)
        offset[axis] = rank * shape[axis]
        shape[axis] *= size
        return tuple(shape), tuple(offset)

    return place


def read(tensor, with_gradient):
    """(local tensor, (whole, offset, pending reduction) or None, requires_grad, is_leaf, gradient
    or None) of a DTensor."""
    with sys.modules["torch"]._C.DisableTorchFunction():  # no mode of the user's sees this
        leaf = tensor.is_leaf
        gradient = tensor.grad if with_gradient and leaf else None
        return _local(tensor), _where(tensor), tensor.requires_grad, leaf, gradient
