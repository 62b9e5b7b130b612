"""Which slice of the logical tensor a rank's tensor is."""

from __future__ import annotations

import torch
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.utils._python_dispatch import _disable_current_modes

_SLICE = "_tocsin_slice"
_WRAPPERS = ("module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


def shard_batch(mesh, name, shape, *, shard=None, dtype=torch.float32, high=None):
    """This rank's slice of the global batch tensor `name`, filled with random contents.

    `mesh` is what build() was called with (None: the logical model, which gets all of it); `shard`
    says which mesh axis cuts which dimension, {"dp": 0}; integers are from 0 to below `high`.
    """
    sizes, starts = list(shape), [0] * len(shape)
    for axis, dim in (shard or {}).items():
        if mesh is None or axis not in (mesh.mesh_dim_names or ()):
            continue
        parts, index = mesh[axis].size(), mesh[axis].get_local_rank()
        if sizes[dim] % parts:
            raise ValueError(f"{name}: {sizes[dim]} is not divisible by {axis}={parts}")
        sizes[dim] //= parts
        starts[dim] += index * sizes[dim]
    generator = torch.Generator().manual_seed(0)
    if dtype.is_floating_point:
        tensor = torch.randn(sizes, dtype=dtype, generator=generator)
    else:
        high = high or 2
        tensor = torch.randint(0, high, sizes, dtype=dtype, generator=generator)
    setattr(tensor, _SLICE, (name, tuple(starts), None if dtype.is_floating_point else high))
    return tensor


def batch_slice(tensor) -> tuple[str, tuple[int, ...], int | None] | None:
    return getattr(tensor, _SLICE, None)


def clean_name(name: str) -> str:
    """A parameter's name in the model, without the modules that wrappers put in between."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def tensor_starts(tensor, name, declared, mesh) -> tuple[int, ...]:
    """Where the local part of a parameter, buffer or gradient starts in the logical tensor.

    A DTensor says so itself (Shard, _StridedShard, Replicate; torch's rule for uneven parts).
    `declared` is what build() said of plain tensors: {name: {axis: dim}}.
    """
    if isinstance(tensor, DTensor):
        placements = [p if not p.is_partial() else torch.distributed.tensor.Replicate()
                      for p in tensor.placements]
        with _disable_current_modes():  # it computes with tensors
            _, offsets = compute_local_shape_and_global_offset(
                tensor.shape, tensor.device_mesh, placements)
        return tuple(int(n) for n in offsets)
    starts = [0] * tensor.dim()
    for axis, dim in declared.get(name, {}).items():
        if mesh is not None:
            starts[dim] += mesh[axis].get_local_rank() * tensor.shape[dim]
    return tuple(starts)
