"""The tape: one rank's training step as a straight list of operators in SSA form.

A dispatch mode sees every aten and collective operator below autograd and below DTensor, forward,
backward and optimizer alike, and hands it to aten.py, which says it in plan operators. What is
left to do here is to undo aliasing:

    storage   has one *base value*, the contents of all of it, and a version
    place     (storage, offset, sizes, strides): what a tensor looks at. All tensors that look at
              one place are the same value, whatever Python object or autograd copy they are
    link      how a place is got from another place of the same storage: view, permute, slice,
              select, expand. Places form a tree whose root is the base

Reading a place whose version is old replays its link on its parent. Writing through a place
rewrites its parent (a slice by pad-free joining: before, new, after) up to the base, and the
version goes up, so that every other place is read anew. Every tensor seen is kept alive, so a
storage's address is never used twice.
"""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import dataclass, field

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_TORCH = os.path.dirname(torch.__file__) + os.sep
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_TRACE = _HERE + "trace.py"  # whoever it calls is the script


@dataclass(eq=False, slots=True)
class Value:
    number: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    constant: float | None = None  # every element is this number


@dataclass(slots=True)
class Op:
    name: str
    inputs: list[Value]
    outputs: list[Value]
    attributes: dict
    group: tuple[int, ...] | None
    signature: str | None
    phase: str
    fqn: str
    source: str
    label: str


@dataclass(slots=True)
class Input:
    value: Value
    name: str
    starts: tuple[int, ...]


@dataclass(slots=True)
class _Place:
    storage: "_Storage"
    parent: "_Place | None"
    link: tuple | None
    shape: tuple[int, ...]
    dtype: torch.dtype
    site: tuple  # who made it: phase, fqn, source
    version: int = -1
    value: Value | None = None


@dataclass(slots=True)
class _Storage:
    version: int = 0
    places: dict = field(default_factory=dict)


class ExportError(Exception):
    """The script cannot be exported, in one line."""


def inner(tensor: torch.Tensor) -> torch.Tensor:
    """The plain tensor below a DTensor or an asynchronous collective's wrapper."""
    from torch.distributed.tensor import DTensor

    while True:
        if isinstance(tensor, DTensor):
            tensor = tensor._local_tensor
        elif isinstance(tensor, AsyncCollectiveTensor):
            tensor = tensor.trigger_wait()
        else:
            return tensor


class Tape(TorchDispatchMode):
    """Records while it is entered. `phase_hint` is "opt" while the optimizer steps, else ""."""

    def __init__(self, root: str):
        super().__init__()
        self.ops: list[Op] = []
        self.inputs: list[Input] = []
        self.notes: set[str] = set()
        self.phase_hint = ""
        self.modules: list[str] = []  # names of the modules whose forward runs
        self._root = root
        self._count = 0
        self._storages: dict[int, _Storage] = {}
        self._alive: list[torch.Tensor] = []
        self._ordinals: dict[tuple[str, str, str], int] = {}
        self._forward: dict[int, tuple[str, str]] = {}  # autograd sequence number: fqn, source
        self._site = ("fw", "", "")

    # ---- what aten.py calls ---------------------------------------------------------------------

    def new_value(self, shape, dtype, constant=None) -> Value:
        self._count += 1
        return Value(self._count, tuple(int(n) for n in shape), dtype, constant)

    def emit(self, name, inputs, shapes, dtype, attributes=None, *, group=None, signature=None):
        """Append an operator; its outputs, one for each of `shapes`."""
        phase, fqn, source = self._site
        short = name.split(".")[0].removeprefix("aten::")
        key = (fqn, short, phase)
        ordinal = self._ordinals[key] = self._ordinals.get(key, -1) + 1
        dtypes = dtype if isinstance(dtype, list) else [dtype] * len(shapes)
        outputs = [self.new_value(s, d) for s, d in zip(shapes, dtypes, strict=True)]
        label = f"{fqn or 'step'}:{short}.{ordinal}:{phase}"
        attributes = attributes or {}
        self.ops.append(Op(name, list(inputs), outputs, attributes, group, signature, phase, fqn,
                           source, label))
        return outputs

    def read(self, tensor: torch.Tensor) -> Value:
        return self._read(self._place_of(tensor))

    def bind(self, tensor: torch.Tensor, value: Value) -> None:
        """`tensor` is the result of an operator: new memory, or memory written again."""
        storage = self._storages.get(self._address(tensor))
        if storage is None:
            self.root(tensor, value)
        else:
            self.write(tensor, value)

    def root(self, tensor: torch.Tensor, value: Value | None) -> None:
        """`value` is all that the memory of `tensor` holds; None: nothing was written yet."""
        self._alive.append(tensor)
        storage = self._storages[self._address(tensor)] = _Storage()
        place = _Place(storage, None, None, tuple(tensor.shape), tensor.dtype, self._site, 0, value)
        storage.places[self._geometry(tensor)] = place

    def write(self, tensor: torch.Tensor, value: Value) -> None:
        place = self._place_of(tensor)
        if place.shape != value.shape:
            raise ExportError(f"a value of shape {value.shape} is written to {place.shape}")
        self._write(place, value)

    def known(self, tensor: torch.Tensor) -> bool:
        return self._address(tensor) in self._storages

    def same_memory(self, a: torch.Tensor, b: torch.Tensor) -> bool:
        return self._address(a) == self._address(b)

    def link(self, tensor: torch.Tensor, base: torch.Tensor, link: tuple) -> None:
        """`tensor` is the view `link` of `base`."""
        parent = self._place_of(base)
        key = self._geometry(tensor)
        if key in parent.storage.places:
            return
        self._alive.append(tensor)
        place = _Place(parent.storage, parent, link, tuple(tensor.shape), tensor.dtype, self._site)
        parent.storage.places[key] = place

    def declare(self, tensor: torch.Tensor, name: str, starts) -> Value:
        """`tensor` is a slice of the logical input `name`; nothing of the step made it."""
        value = self.new_value(tensor.shape, tensor.dtype)
        self.inputs.append(Input(value, name, tuple(starts)))
        self.root(tensor, value)
        return value

    # ---- places ---------------------------------------------------------------------------------

    @staticmethod
    def _address(tensor: torch.Tensor) -> int:
        return tensor.untyped_storage()._cdata

    @staticmethod
    def _geometry(tensor: torch.Tensor) -> tuple:
        strides = tuple(s if n > 1 else 0 for n, s in zip(tensor.shape, tensor.stride()))
        return tensor.storage_offset(), tuple(tensor.shape), strides, tensor.dtype

    def _place_of(self, tensor: torch.Tensor) -> _Place:
        storage = self._storages.get(self._address(tensor))
        if storage is None:
            self._constant(tensor)
            storage = self._storages[self._address(tensor)]
        place = storage.places.get(self._geometry(tensor))
        return place if place is not None else self._flat_place(storage, tensor)

    def _flat_place(self, storage: _Storage, tensor: torch.Tensor) -> _Place:
        """A view that no operator made (`.data`, autograd's own): a range of flat memory."""
        root_key, root = next(iter(storage.places.items()))
        offset = tensor.storage_offset() - root_key[0]
        count = tensor.numel()
        size = 1
        for n in root.shape:
            size *= n
        strides = torch.empty(root.shape, device="meta").stride()
        whole = tuple(s if n > 1 else 0 for n, s in zip(root.shape, strides)) == root_key[2]
        if not whole or not tensor.is_contiguous() or offset < 0 or offset + count > size:
            raise ExportError(f"a view of shape {tuple(tensor.shape)} was made in a way that the "
                              "exporter does not follow")
        place = root
        if count != size:
            place = _Place(storage, place, ("view", (size,)), (size,), tensor.dtype, self._site)
            place = _Place(storage, place, ("slice", 0, offset, offset + count, 1), (count,),
                           tensor.dtype, self._site)
        place = _Place(storage, place, ("view", tuple(tensor.shape)), tuple(tensor.shape),
                       tensor.dtype, self._site)
        storage.places[self._geometry(tensor)] = place
        self._alive.append(tensor)
        return place

    def _constant(self, tensor: torch.Tensor) -> None:
        """A tensor from outside the step: a number, a range, or a table known by its contents."""
        with torch.utils._python_dispatch._disable_current_modes():
            data = tensor.detach().contiguous().reshape(-1)
            items = data.tolist() if data.numel() <= 1 << 22 else []
        if items and (all(x == items[0] for x in items) or items[0] != items[0]):
            value = self.full(tensor.shape, tensor.dtype, items[0])
            return self.root(tensor, value)
        step = items[1] - items[0] if len(items) > 1 else 0
        if (tensor.dim() == 1 and not tensor.dtype.is_complex and items and
                all(x == items[0] + k * step for k, x in enumerate(items))):
            value = self.arange(len(items), tensor.dtype, items[0], step)
            return self.root(tensor, value)
        digest = hashlib.sha256(repr((tuple(tensor.shape), tensor.dtype, items)).encode())
        name = f"constant.{digest.hexdigest()[:12]}"
        self.notes.add(f"{name} is a tensor that the script made outside the step; it is equal "
                       "wherever its contents are")
        self.declare(tensor, name, (0,) * tensor.dim())

    def full(self, shape, dtype, number) -> Value:
        value, = self.emit("full", [], [tuple(shape)], dtype,
                           {"shape": list(shape), "value": float(number)})
        value.constant = float(number)
        return value

    def arange(self, count, dtype, start, step) -> Value:
        attributes = {"start": start, "end": start + count * step, "step": step}
        return self.emit("arange", [], [(count,)], dtype, attributes)[0]

    def _read(self, place: _Place) -> Value:
        if place.version == place.storage.version and place.value is not None:
            return place.value
        if place.parent is None:  # uninitialised: whatever needs it must not be provable
            place.value = self.full(place.shape, place.dtype, float("nan"))
            return place.value
        parent = self._read(place.parent)
        keep, self._site = self._site, place.site
        place.value = self._forwards(parent, place)
        self._site = keep
        place.version = place.storage.version
        return place.value

    def _forwards(self, value: Value, place: _Place) -> Value:
        kind, *rest = place.link
        if kind == "view":
            return self.view(value, rest[0])
        if kind == "permute":
            return self.permute(value, rest[0])
        if kind == "expand":
            return self.expand(value, rest[0])
        if kind == "select":
            dim, index = rest
            return self.emit("select", [value], [place.shape], value.dtype,
                             {"dim": dim, "index": index})[0]
        if kind == "slice":
            return self.slice(value, *rest)
        raise AssertionError(kind)

    def _write(self, place: _Place, value: Value) -> None:
        storage = place.storage
        chain = [(place, value)]
        while place.parent is not None:
            value = self._backwards(place, value)
            place = place.parent
            chain.append((place, value))
        storage.version += 1
        for at, new in chain:
            at.version, at.value = storage.version, new

    def _backwards(self, place: _Place, value: Value) -> Value:
        """The parent's value when `place` becomes `value`."""
        kind, *rest = place.link
        parent = place.parent
        if kind == "view":
            return self.view(value, parent.shape)
        if kind == "permute":
            inverse = [rest[0].index(d) for d in range(len(rest[0]))]
            return self.permute(value, inverse)
        if kind == "select":
            dim, start = rest
            end = start + 1
            value = self.view(value, parent.shape[:dim] + (1,) + parent.shape[dim + 1:])
        elif kind == "slice" and rest[3] == 1:
            dim, start, end, _ = rest
        else:
            raise ExportError(f"a write through a view of kind {kind} is not followed")
        return self.overwrite(parent, value, dim, start, end)

    def overwrite(self, parent: _Place, value: Value, dim: int, start: int, end: int) -> Value:
        size = parent.shape[dim]
        if start == 0 and end == size:
            return value
        old = self._read(parent)
        pieces = []
        if start > 0:
            pieces.append(self.slice(old, dim, 0, start, 1))
        pieces.append(value)
        if end < size:
            pieces.append(self.slice(old, dim, end, size, 1))
        return self.emit("cat", pieces, [parent.shape], value.dtype, {"dim": dim})[0]

    # ---- structure ------------------------------------------------------------------------------

    def view(self, value: Value, shape) -> Value:
        shape = tuple(shape)
        if shape == value.shape:
            return value
        result, = self.emit("view", [value], [shape], value.dtype, {"shape": list(shape)})
        result.constant = value.constant
        return result

    def permute(self, value: Value, dims) -> Value:
        dims = list(dims)
        if dims == list(range(len(dims))):
            return value
        return self.emit("permute", [value], [tuple(value.shape[d] for d in dims)], value.dtype,
                         {"dims": dims})[0]

    def expand(self, value: Value, shape) -> Value:
        shape = tuple(shape)
        if shape == value.shape:
            return value
        result, = self.emit("expand", [value], [shape], value.dtype, {"shape": list(shape)})
        result.constant = value.constant
        return result

    def slice(self, value: Value, dim: int, start: int, end: int, step: int) -> Value:
        size = value.shape[dim]
        if start == 0 and end == size and step == 1:
            return value
        count = max(0, -(-(end - start) // step))
        shape = value.shape[:dim] + (count,) + value.shape[dim + 1:]
        attributes = {"dim": dim, "start": start, "end": end}
        if step != 1:
            attributes["step"] = step
        return self.emit("slice", [value], [shape], value.dtype, attributes)[0]

    # ---- dispatch -------------------------------------------------------------------------------

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        plain = (torch.Tensor, torch.nn.Parameter, FakeTensor)
        if any(t not in plain for t in types):
            return NotImplemented  # the subclass unwraps itself and comes back
        from . import aten

        if FakeTensor in types:  # DTensor's shadow computation of shapes
            return func(*args, **kwargs)
        decomposed = aten.decompose(self, func, args, kwargs)
        if decomposed is not NotImplemented:
            return decomposed
        self._site = self._where()
        self._meet(tree_leaves((args, kwargs)))
        result = func(*args, **kwargs)
        if any(isinstance(x, FakeTensor) for x in tree_leaves(result)):
            return result
        aten.record(self, func, args, kwargs, result)
        return result

    def _meet(self, leaves) -> None:
        """Constants are taken down before an operator can write to them."""
        for x in leaves:
            if isinstance(x, torch.Tensor) and not self.known(x):
                self._constant(x)

    def _where(self) -> tuple[str, str, str]:
        """Phase, module and source line of the operator that runs now."""
        node = torch._C._current_autograd_node()
        if node is None:
            fqn = self.modules[-1] if self.modules else ""
            source = self._source(False)
            if not self.phase_hint:
                self._remember(fqn, source)
            return self.phase_hint or "fw", fqn, source
        number = node._sequence_nr()
        source = self._source(True)
        if torch.is_grad_enabled():  # a checkpoint runs its forward again
            fqn = self.modules[-1] if self.modules else ""
            self._remember(fqn, source)
            return "re", fqn, source
        fqn, forward_source = self._forward.get(number, ("", ""))
        return "bw", fqn, source or forward_source

    def _remember(self, fqn: str, source: str) -> None:
        self._forward.setdefault(torch.autograd._get_sequence_nr() - 1, (fqn, source))

    def _source(self, in_backward: bool) -> str:
        """The innermost frame outside torch; in backward only those of user code that autograd
        calls, not the one that called backward()."""
        frame = sys._getframe(2)
        while frame is not None:
            name = frame.f_code.co_filename
            if in_backward and frame.f_code.co_name == "_engine_run_backward":
                return ""
            if name == _TRACE:
                return ""
            outside = not name.startswith((_TORCH, _HERE, "<"))
            if outside and "importlib" not in name and "contextlib" not in name:
                path = os.path.relpath(name, self._root)
                path = os.path.basename(name) if path.startswith("..") else path
                return f"{path}:{frame.f_lineno}"
            frame = frame.f_back
        return ""
