"""Emitters of plan operators for one aten operator: arithmetic with numbers and constants folded
into scale and add_scalar, reductions in one form."""

from __future__ import annotations

import math

import torch

from . import lookup
from .capture import Tape, Value


class Lowering:
    """One aten operator on its way into the tape: operands, and emitters of plan operators."""

    def __init__(self, tape: Tape, shape, dtype):
        self.tape = tape
        self.shape = tuple(shape)
        self.dtype = dtype

    def value(self, x, dtype=None) -> Value:
        """An operand; a number becomes a constant without axes."""
        if isinstance(x, Value):
            return x
        if isinstance(x, torch.Tensor):
            return self.tape.read(x)
        return self.tape.full((), dtype or self.dtype, x)

    def number(self, x) -> float | None:
        """The operand as a number, when it is one."""
        if isinstance(x, torch.Tensor):
            x = self.tape.read(x)
        if isinstance(x, Value):
            return x.constant if x.shape == () else None
        return x if isinstance(x, (int, float, bool)) else None

    def emit(self, name, inputs, shape=None, dtype=None, attributes=None, signature=None) -> Value:
        tensor = next((x for x in inputs if not isinstance(x, (int, float))), None)
        values = [self.value(x, tensor.dtype if tensor is not None else None) for x in inputs]
        if shape is None:
            shape = torch.broadcast_shapes(*(v.shape for v in values))
        dtype = dtype or (values[0].dtype if values else self.dtype)
        return self.tape.emit(name, values, [tuple(shape)], dtype, attributes,
                              signature=signature)[0]

    def uniform(self, x, other) -> float | None:
        """The number that every element of `x` is, when the result has the shape of `other`."""
        number = self.number(x)
        if number is not None or not isinstance(x, (torch.Tensor, Value)):
            return number
        x, other = self.value(x), self.value(other)
        if x.constant is None or torch.broadcast_shapes(x.shape, other.shape) != other.shape:
            return None
        return x.constant

    def add(self, a, b, alpha=1) -> Value:
        if alpha == 1 and self.uniform(b, a) is None and self.uniform(a, b) is not None:
            a, b = b, a
        number = self.uniform(b, a)
        if number is not None:
            a = self.value(a)
            if a.constant is not None:
                return self.tape.full(a.shape, self.dtype, a.constant + alpha * number)
            result = self.emit("add_scalar", [a], attributes={"value": float(alpha * number)})
            lookup.shifted(a, alpha * number, result)
            return result
        return self.emit("add", [a, b], attributes={"alpha": float(alpha)} if alpha != 1 else {})

    def subtract(self, a, b, alpha=1) -> Value:
        if self.uniform(b, a) is not None:
            return self.add(a, b, -alpha)
        if self.uniform(a, b) is not None:
            return self.add(self.scale(b, -alpha), a)
        if alpha != 1:
            return self.add(a, b, -alpha)
        return self.emit("sub", [a, b])

    def scale(self, a, factor: float) -> Value:
        a = self.value(a)
        if factor == 1:
            return a
        if a.constant is not None:
            return self.tape.full(a.shape, a.dtype, a.constant * factor)
        if factor == -1:
            return self.emit("neg", [a])
        return self.emit("scale", [a], attributes={"factor": float(factor)})

    def multiply(self, a, b) -> Value:
        if self.uniform(b, a) is not None:
            return self.scale(a, self.uniform(b, a))
        if self.uniform(a, b) is not None:
            return self.scale(b, self.uniform(a, b))
        return self.emit("mul", [a, b])

    def divide(self, a, b) -> Value:
        number = self.uniform(b, a)
        if number:
            return self.scale(a, 1 / number)
        number = self.uniform(a, b)
        if number is not None:
            return self.scale(self.emit("reciprocal", [b]), number)
        return self.emit("div", [a, b])

    def power(self, a, exponent) -> Value:
        number = self.number(exponent)
        if number is None:
            return self.emit("aten.pow", [a, exponent])
        a = self.value(a)
        if number == 1:
            return a
        if number == 0.5:
            return self.root(a)
        root = lookup.fact(a, "root")
        if number == 2 and root is not None:
            return self.tape.view(root[0], a.shape)
        return self.emit("pow", [a], attributes={"exponent": float(number)})

    def root(self, a) -> Value:
        a = self.value(a)
        result = self.emit("sqrt", [a])
        result.fact = ("root", a)  # a norm of norms squares it again
        return result

    def reduce(self, name, a, dims=None, keepdim=False, dtype=None) -> Value:
        a = self.value(a)
        ndim = len(a.shape)
        if dims is None or (isinstance(dims, (list, tuple)) and not dims):
            dims = range(ndim)
        elif isinstance(dims, int):
            dims = [dims]
        dims = sorted(d % ndim for d in dims) if ndim else []
        if not dims:
            return a
        shape = [1 if d in dims else n for d, n in enumerate(a.shape) if keepdim or d not in dims]
        if a.constant is not None and name in ("sum", "mean"):
            count = math.prod(a.shape[d] for d in dims) if name == "sum" else 1
            return self.tape.full(shape, dtype or a.dtype, a.constant * count)
        # Kept dimensions are a view of the reduced value: one form for both.
        reduced = [n for d, n in enumerate(a.shape) if d not in dims]
        result = self.emit(name, [a], reduced, dtype or a.dtype, {"dims": dims, "keepdim": 0})
        return self.tape.view(result, shape)

    def exp(self, a) -> Value:
        return self.emit("exp", [a])

    def cast(self, a, dtype) -> Value:
        a = self.value(a)
        if a.dtype == dtype:
            return a
        if a.constant is not None:
            return self.tape.full(a.shape, dtype, a.constant)
        result = self.emit("cast", [a], a.shape, dtype)
        lookup.as_number(a, result)
        return result
