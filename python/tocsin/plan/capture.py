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
changes its parent (a slice becomes a patch on it) up to the base, and the version goes up, so that
every other place is read anew. Contents are lazy: an operator is written when something reads its
result, so a buffer that is filled piece by piece is one join, and what is overwritten unread leaves
no trace. Every tensor seen is kept alive, so a storage's address is never used twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

_TORCH = os.path.dirname(torch.__file__) + os.sep
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_TRACE = _HERE + "trace.py"  # whoever it calls is the script
_MESH = os.path.join(_TORCH, "distributed", "device_mesh.py")
# What the tape itself makes in following memory: it goes when nothing reads it.
_STRUCTURE = {"view", "permute", "expand", "slice", "select", "full", "arange"}
# Parallel code has more of these than the logical model, so they are not counted.
_UNLABELLED = {"view", "permute", "expand", "slice", "select", "cat", "stack", "pad", "full",
               "arange", "cast", "wait", "send", "recv", "barrier"}
_CONSTANT_MAX = 1 << 22  # elements of a constant whose contents are looked at


@dataclass(eq=False, slots=True)
class Value:
    number: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    constant: float | None = None  # every element is this number
    viewed: "Value | None" = None  # what this is a view of, itself no view
    counts: bool = False  # 0, 1, 2, ...
    fact: tuple | None = None  # lookup.py


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
    optional: bool  # need not be there unless something reads it


@dataclass(slots=True)
class Input:
    value: Value
    name: str
    starts: tuple[int, ...]


class _Contents:
    """A value, or how to make it when it is read."""

    def __init__(self, value: Value | None, make: Callable[[], Value] | None = None):
        self._value, self._make = value, make

    def get(self) -> Value:
        if self._value is None:
            self._value = self._make()
        return self._value


class _Patched(_Contents):
    """`below`, with pieces along one dimension written over."""

    def __init__(self, tape: "Tape", shape, dim: int, below: _Contents, pieces):
        super().__init__(None, lambda: tape.join(self))
        self.shape, self.dim, self.below = shape, dim, below
        self.pieces: list[tuple[int, int, _Contents]] = pieces  # sorted, apart

    def piece(self, dim: int, start: int, end: int):
        """The piece that has all of a range, or None."""
        if self._value is None and dim == self.dim:
            for piece in self.pieces:
                if piece[0] <= start and end <= piece[1]:
                    return piece
        return None

    def with_piece(self, tape: "Tape", dim: int, start: int, end: int, new: _Contents):
        """This, patched once more; None when the new piece cuts an old one."""
        if self._value is not None or dim != self.dim:
            return None
        rest = [p for p in self.pieces if not (start <= p[0] and p[1] <= end)]
        if any(p[0] < end and start < p[1] for p in rest):
            return None
        pieces = sorted([*rest, (start, end, new)], key=lambda p: p[0])
        return _Patched(tape, self.shape, dim, self.below, pieces)


@dataclass(slots=True)
class _Place:
    storage: "_Storage"
    parent: "_Place | None"
    link: tuple | None
    shape: tuple[int, ...]
    dtype: torch.dtype
    site: tuple  # who made it: phase, fqn, source
    version: int = -1
    contents: _Contents | None = None


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


def _dense_strides(shape) -> tuple[int, ...]:
    """Of a contiguous tensor, with 0 where the size is 1."""
    strides, stride = [], 1
    for n in reversed(shape):
        strides.append(stride if n > 1 else 0)
        stride *= n
    return tuple(reversed(strides))


def _whole_memory(tensor: torch.Tensor) -> torch.Tensor | None:
    """All the memory of a tensor as a flat one, or None when the tensor is that itself."""
    elements = tensor.untyped_storage().nbytes() // tensor.element_size()
    if elements == tensor.numel() and tensor.is_contiguous():
        return None
    with _disable_current_modes():
        return tensor.detach().as_strided((elements,), (1,), 0)


def _in_mesh(frame) -> bool:
    """Is this an operator of DeviceMesh on its own table of ranks?"""
    for _ in range(12):
        if frame is None or not frame.f_code.co_filename.startswith((_TORCH, _HERE)):
            return False
        if frame.f_code.co_filename == _MESH:
            return True
        frame = frame.f_back
    return False


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
        self._ordinals: dict[str, dict[tuple[str, str], int]] = {}  # by phase
        self._graph_task = -1
        self._optional = False
        self._backward = False  # since the last forward pass began
        self._forward: dict[int, tuple[str, str]] = {}  # autograd sequence number: fqn, source
        self._site = ("fw", "", "")

    # ---- what aten.py calls ---------------------------------------------------------------------

    def new_value(self, shape, dtype, constant=None) -> Value:
        self._count += 1
        return Value(self._count, tuple(int(n) for n in shape), dtype, constant)

    def emit(self, name, inputs, shapes, dtype, attributes=None, *, group=None, signature=None):
        """Append an operator; its outputs, one for each of `shapes`."""
        phase, fqn, source = self._site
        dtypes = dtype if isinstance(dtype, list) else [dtype] * len(shapes)
        outputs = [self.new_value(s, d) for s, d in zip(shapes, dtypes, strict=True)]
        label = "" if name in _UNLABELLED or group is not None else self._label(name)
        attributes = attributes or {}
        self.ops.append(Op(name, list(inputs), outputs, attributes, group, signature, phase, fqn,
                           source, label, self._optional or name in _STRUCTURE))
        return outputs

    @contextlib.contextmanager
    def optional(self):
        """What is emitted here goes when nothing reads it."""
        keep, self._optional = self._optional, True
        yield
        self._optional = keep

    def _label(self, name: str) -> str:
        """Module, operator and how often it was there before in this pass: the same for the logical
        operator and its parallel counterpart."""
        phase, fqn, _ = self._site
        short = name.removeprefix("aten.")
        task = torch._C._current_graph_task_id()
        if phase == "bw" and task != self._graph_task:
            self._graph_task = task
            self.restart_labels("bw")
        ordinals = self._ordinals.setdefault(phase, {})
        ordinal = ordinals[fqn, short] = ordinals.get((fqn, short), -1) + 1
        return f"{fqn or 'step'}:{short}.{ordinal}:{phase}"

    def restart_labels(self, phase: str) -> None:
        """A new pass begins, such as that of another micro-batch."""
        self._ordinals.pop(phase, None)
        self._backward = self._backward and phase != "fw"

    def read(self, tensor: torch.Tensor) -> Value:
        return self._contents(self._place_of(tensor)).get()

    def bind(self, tensor: torch.Tensor, value: Value) -> None:
        """`tensor` is the result of an operator: new memory, or memory written again."""
        storage = self._storages.get(self._address(tensor))
        if storage is None:
            self.root(tensor, value)
        else:
            self.write(tensor, value)

    def root(self, tensor: torch.Tensor, value: Value | None, make=None) -> None:
        """`value` is all that the memory of `tensor` holds; None: what `make` makes when it is
        read, and without it nothing that was ever written."""
        self._alive.append(tensor)
        storage = self._storages[self._address(tensor)] = _Storage()
        shape, dtype = tuple(tensor.shape), tensor.dtype
        # Uninitialised memory is nan: whatever needs it must not be provable.
        make = self._later(make or (lambda: self.full(shape, dtype, float("nan"))))
        place = _Place(storage, None, None, shape, dtype, self._site, 0, _Contents(value, make))
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

    def declare(self, tensor: torch.Tensor, name: str, starts, high=None) -> Value:
        """`tensor` is a slice of the logical input `name`; nothing of the step made it. `high`: it
        has integers from 0 to below that."""
        value = self._input(tensor.shape, tensor.dtype, name, starts)
        if high is not None:
            value.fact = ("range", 0, high)
            self.notes.add(f"{name} holds integers from 0 to {high - 1}")
        whole = _whole_memory(tensor)
        if whole is None:
            self.root(tensor, value)
        else:  # a padded shard
            self._constant(whole, padding=True)
            self.write(tensor, value)
        return value

    def _input(self, shape, dtype, name, starts) -> Value:
        value = self.new_value(shape, dtype)
        self.inputs.append(Input(value, name, tuple(starts)))
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
        """A view that no operator made (`.data`, autograd's own, a bucket's): a range of flat
        memory, its dimensions in any order."""
        root_key, root = next(iter(storage.places.items()))
        order = sorted(range(tensor.dim()), key=lambda d: (-tensor.stride(d), d))
        sorted_shape = tuple(tensor.shape[d] for d in order)
        start = tensor.storage_offset() - root_key[0]
        size, count = math.prod(root.shape), tensor.numel()
        if (root_key[2] != _dense_strides(root.shape) or start < 0 or start + count > size or
                tuple(self._geometry(tensor)[2][d] for d in order) != _dense_strides(sorted_shape)
                or root.dtype != tensor.dtype):
            raise ExportError(f"a view of shape {tuple(tensor.shape)} was made in a way that the "
                              "exporter does not follow")
        place = root
        if len(root.shape) != 1:
            place = storage.places.setdefault("flat", _Place(
                storage, root, ("view", (size,)), (size,), tensor.dtype, root.site))
        for link, shape in ((("slice", 0, start, start + count, 1), (count,)),
                            (("view", sorted_shape), sorted_shape),
                            (("permute", [order.index(d) for d in range(len(order))]),
                             tuple(tensor.shape))):
            if shape != place.shape or link[0] == "permute" and order != sorted(order):
                place = _Place(storage, place, link, shape, tensor.dtype, self._site)
        storage.places[self._geometry(tensor)] = place
        self._alive.append(tensor)
        return place

    def _constant(self, tensor: torch.Tensor, padding=False) -> None:
        """A tensor from outside the step: a number, a range, or a table known by its contents. All
        of its memory is taken, since the step may use other parts of it too."""
        whole = _whole_memory(tensor)
        tensor = tensor if whole is None else whole
        with _disable_current_modes():
            items = tensor.detach().reshape(-1)[:_CONSTANT_MAX].tolist()
        shape, dtype = tuple(tensor.shape), tensor.dtype
        self.root(tensor, None, lambda: self.full(shape, dtype, 0) if padding
                  else self._table(shape, dtype, items))

    def _table(self, shape, dtype, items) -> Value:
        if items and (all(x == items[0] for x in items) or items[0] != items[0]):
            return self.full(shape, dtype, items[0])
        step = items[1] - items[0] if len(items) > 1 else 0
        if (len(shape) == 1 and items and not dtype.is_complex and items[0] == int(items[0]) and
                all(x == items[0] + k * step for k, x in enumerate(items)) and step == int(step)):
            return self.arange(len(items), dtype, int(items[0]), int(step))
        if math.prod(shape) > _CONSTANT_MAX:
            raise ExportError(f"a tensor of {math.prod(shape)} elements was made outside the step; "
                              "register it as a buffer")
        digest = hashlib.sha256(repr((shape, dtype, items)).encode()).hexdigest()
        name = f"constant.{digest[:12]}"
        self.notes.add(f"{name} is a tensor that the script made outside the step; it is equal "
                       "wherever its contents are")
        return self._input(shape, dtype, name, (0,) * len(shape))

    def full(self, shape, dtype, number) -> Value:
        value, = self.emit("full", [], [tuple(shape)], dtype,
                           {"shape": list(shape), "value": float(number)})
        value.constant = float(number)
        return value

    def arange(self, count, dtype, start, step) -> Value:
        attributes = {"start": start, "end": start + count * step, "step": step}
        value, = self.emit("arange", [], [(count,)], dtype, attributes)
        value.counts = start == 0 and step == 1
        return value

    def _later(self, make, site=None):
        """`make`, run as if at this point of the script."""
        site = site or self._site

        def run() -> Value:
            keep, self._site = self._site, site
            value = make()
            self._site = keep
            return value

        return run

    def _contents(self, place: _Place) -> _Contents:
        if place.parent is None or place.version == place.storage.version:
            return place.contents
        parent = self._contents(place.parent)
        make = self._later(lambda: self._forwards(parent, place), place.site)
        place.contents, place.version = _Contents(None, make), place.storage.version
        return place.contents

    def _forwards(self, parent: _Contents, place: _Place) -> Value:
        """The value of `place`, from that of its parent."""
        kind, *rest = place.link
        if kind == "view":
            return self.view(parent.get(), rest[0])
        if kind == "permute":
            return self.permute(parent.get(), rest[0])
        if kind == "expand":
            return self.expand(parent.get(), rest[0])
        if kind == "select":
            return self.emit("select", [parent.get()], [place.shape], place.dtype,
                             {"dim": rest[0], "index": rest[1]})[0]
        dim, start, end, step = rest
        found = parent.piece(dim, start, end) if isinstance(parent, _Patched) else None
        if found is None:
            return self.slice(parent.get(), dim, start, end, step)
        return self.slice(found[2].get(), dim, start - found[0], end - found[0], step)

    def _write(self, place: _Place, value: Value) -> None:
        storage = place.storage
        contents = _Contents(value)
        chain = [(place, contents)]
        while place.parent is not None:
            contents = self._backwards(place, contents)
            place = place.parent
            chain.append((place, contents))
        storage.version += 1
        for at, new in chain:
            at.version, at.contents = storage.version, new

    def _backwards(self, place: _Place, new: _Contents) -> _Contents:
        """What the parent of `place` holds when `place` holds `new`."""
        kind, *rest = place.link
        parent = place.parent
        if kind == "view":
            return _Contents(None, self._later(lambda: self.view(new.get(), parent.shape)))
        if kind == "permute":
            inverse = [rest[0].index(d) for d in range(len(rest[0]))]
            return _Contents(None, self._later(lambda: self.permute(new.get(), inverse)))
        if kind == "select":
            dim, start = rest
            end = start + 1
            shape = parent.shape[:dim] + (1,) + parent.shape[dim + 1:]
            piece = _Contents(None, self._later(lambda: self.view(new.get(), shape)))
        elif kind == "slice" and rest[3] == 1:
            dim, start, end, _ = rest
            piece = new
        else:
            raise ExportError(f"a write through a view of kind {kind} is not followed")
        if start == 0 and end == parent.shape[dim]:
            return piece
        old = self._contents(parent)
        patched = (old.with_piece(self, dim, start, end, piece) if isinstance(old, _Patched)
                   else None)
        return patched or _Patched(self, parent.shape, dim, old, [(start, end, piece)])

    def join(self, patched: _Patched) -> Value:
        """The pieces and what is left between them, joined."""
        dim, at, parts = patched.dim, 0, []
        for start, end, piece in patched.pieces:
            if at < start:
                parts.append(self.slice(patched.below.get(), dim, at, start, 1))
            parts.append(piece.get())
            at = end
        if at < patched.shape[dim]:
            parts.append(self.slice(patched.below.get(), dim, at, patched.shape[dim], 1))
        if len(parts) == 1:
            return parts[0]
        return self.emit("cat", parts, [patched.shape], parts[0].dtype, {"dim": dim})[0]

    # ---- structure ------------------------------------------------------------------------------

    def view(self, value: Value, shape) -> Value:
        shape = tuple(shape)
        value = value.viewed or value  # a view of a view is a view of the first
        if shape == value.shape:
            return value
        result, = self.emit("view", [value], [shape], value.dtype, {"shape": list(shape)})
        result.constant, result.viewed = value.constant, value
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

        if FakeTensor in types or _in_mesh(sys._getframe(1)):
            return func(*args, **kwargs)  # DTensor computing shapes, a mesh computing ranks
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
            after = "bw" if self._backward and not self.modules else "fw"
            return self.phase_hint or after, fqn, source
        self._backward = True
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
