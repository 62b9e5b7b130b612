"""Aten and collective operators, said in the operators of a plan.

Both sides of a comparison go through this file, so it decides which differences the prover never
gets to see: an in-place operator is its functional form, a foreach operator many single ones, a
view is one of view/permute/slice/select/expand, arithmetic with a number is scale/add_scalar. What
has no counterpart is broken up by torch's own decompositions; what is left then is written under
its own name, for which the prover has no rule: it is never dropped.
"""

from __future__ import annotations

import math

import torch
from torch._decomp import core_aten_decompositions
from torch.utils._pytree import tree_leaves

from . import collectives, lookup
from .capture import ExportError, Tape, Value
from .lowering import Lowering

_ELEMENTWISE = {1: "[...] -> [...]", 2: "[...] [...] -> [...]", 3: "[...] [...] [...] -> [...]"}


# ---- views: what a result is of its base, as a link of capture.py -------------------------------


def _permutation(ndim, a, b):
    dims = list(range(ndim))
    dims[a], dims[b] = dims[b], dims[a]
    return ("permute", dims)


def _t(args, out, index):
    ndim = args[0].dim()
    return _permutation(ndim, 0, 1) if ndim == 2 else ("view", tuple(out.shape))


def _transpose(args, out, index):
    ndim = args[0].dim()
    return _permutation(ndim, args[1] % ndim, args[2] % ndim)


def _slice(args, out, index):
    dim, start, end, step = args[1:]
    dim %= args[0].dim()
    size = args[0].shape[dim]
    start = 0 if start is None else max(0, start + size if start < 0 else start)
    end = size if end is None else min(size, end + size if end < 0 else end)
    return ("slice", dim, min(start, size), max(start, end), step)


def _split(args, out, index):
    dim = args[2] % args[0].dim()
    sizes = args[1]
    size = args[0].shape[dim]
    start = sum(sizes[:index]) if isinstance(sizes, (list, tuple)) else index * sizes
    count = sizes[index] if isinstance(sizes, (list, tuple)) else min(sizes, size - start)
    return ("slice", dim, start, start + count, 1)


def _view(args, out, index):
    return ("view", tuple(out.shape))


VIEWS = {
    "view": _view, "_unsafe_view": _view, "reshape": _view, "_reshape_alias": _view,
    "unsqueeze": _view, "squeeze": _view, "flatten": _view, "unflatten": _view,
    "detach": _view, "alias": _view, "lift_fresh": _view, "view_as": _view, "expand_as":
    lambda args, out, index: ("expand", tuple(out.shape)),
    "t": _t, "transpose": _transpose, "slice": _slice, "split": _split, "split_with_sizes": _split,
    "permute": lambda args, out, index: ("permute", [d % out.dim() for d in args[1]]),
    "expand": lambda args, out, index: ("expand", tuple(out.shape)),
    "select": lambda args, out, index: ("select", args[1] % args[0].dim(),
                                        args[2] % args[0].shape[args[1]]),
    "unbind": lambda args, out, index: (
        "select", args[1] % args[0].dim(), index),
}

# ---- operators with a result of their own -------------------------------------------------------

LOWER = {}


def _lower(*names):
    def register(function):
        for name in names:
            LOWER[name] = function
        return function
    return register


def _element_wise(name, *aten, inputs=1, signature=None):
    def function(low, args, kwargs):
        values = list(args[:inputs])
        return low.emit(name, values, low.shape, low.dtype, signature=signature)
    for each in aten or (name,):
        LOWER[each] = function


for _name in ("rsqrt", "exp", "log", "sin", "cos", "tanh", "sigmoid", "silu", "relu", "abs",
              "reciprocal"):
    _element_wise(_name)
for _name in ("maximum", "minimum"):
    _element_wise(_name, inputs=2)
_element_wise("and", "logical_and", "bitwise_and", "__and__", inputs=2)
_element_wise("not", "logical_not", "bitwise_not")
for _name in ("silu_backward", "sigmoid_backward", "tanh_backward"):
    _element_wise(_name, inputs=2, signature=_ELEMENTWISE[2] + " linear=0")


@_lower("eq", "ne", "lt", "le", "gt", "ge")
def _compare(low, args, kwargs, name):
    number = low.number(args[1])
    known = None if number is None else lookup.outcome(name, low.value(args[0]), number)
    if known is not None:
        return low.tape.full(low.shape, torch.bool, known)
    result = low.emit(name, args[:2], low.shape, torch.bool)
    if number is not None:
        lookup.compared(name, low.value(args[0]), number, result)
    return result


@_lower("logical_or", "bitwise_or", "__or__")
def _or(low, args, kwargs):
    result = low.emit("or", args[:2], low.shape, low.dtype)
    lookup.either(low.value(args[0]), low.value(args[1]), result)
    return result


@_lower("where")
def _where(low, args, kwargs):
    if len(args) < 3:
        return NotImplemented
    mask = low.value(args[0])
    if mask.constant is not None:
        chosen = args[1] if mask.constant else args[2]
        return low.tape.expand(low.cast(chosen, low.dtype), low.shape)
    return low.emit("where", args[:3], low.shape, low.dtype)


@_lower("neg")
def _neg(low, args, kwargs):
    return low.scale(args[0], -1)


@_lower("add")
def _add(low, args, kwargs):
    return low.add(args[0], args[1], kwargs.get("alpha", 1))


@_lower("sub")
def _sub(low, args, kwargs):
    return low.subtract(args[0], args[1], kwargs.get("alpha", 1))


@_lower("rsub")
def _rsub(low, args, kwargs):
    if kwargs.get("alpha", 1) != 1:
        return low.subtract(args[1], low.scale(args[0], kwargs["alpha"]))
    return low.subtract(args[1], args[0])


@_lower("mul")
def _mul(low, args, kwargs):
    return low.multiply(args[0], args[1])


@_lower("div")
def _div(low, args, kwargs):
    if kwargs.get("rounding_mode"):
        return low.emit("aten.div", args[:2], low.shape, low.dtype,
                        {"rounding_mode": kwargs["rounding_mode"]})
    return low.divide(args[0], args[1])


@_lower("pow")
def _pow(low, args, kwargs):
    return low.power(args[0], args[1])


@_lower("square")
def _square(low, args, kwargs):
    return low.power(args[0], 2)


@_lower("gelu")
def _gelu(low, args, kwargs):
    return low.emit("gelu", args[:1], attributes={"form": kwargs.get("approximate", "none")})


@_lower("gelu_backward")
def _gelu_backward(low, args, kwargs):
    return low.emit("gelu_backward", args[:2],
                    attributes={"form": kwargs.get("approximate", "none")},
                    signature=_ELEMENTWISE[2] + " linear=0")


@_lower("threshold_backward")
def _threshold_backward(low, args, kwargs):
    return low.emit("threshold_backward", args[:2], attributes={"threshold": float(args[2])},
                    signature=_ELEMENTWISE[2] + " linear=0")


@_lower("clamp", "clamp_min", "clamp_max")
def _clamp(low, args, kwargs):
    attributes = {}
    names = ("min", "max")
    for name, x in list(zip(names, args[1:])) + list(kwargs.items()):
        if x is not None:
            attributes[name] = float(x)
    return low.emit("clamp", args[:1], attributes=attributes)


@_lower("masked_fill")
def _masked_fill(low, args, kwargs):
    number = low.number(args[2])
    if number is None:
        return low.emit("where", [args[1], args[2], args[0]], low.shape, low.dtype)
    return _fill_masked(low, low.value(args[0]), low.value(args[1]), number)


def _fill_masked(low, value, mask, number):
    known = lookup.cleared(value, mask, low) if number == 0 else None
    if known is not None:
        return known
    result = low.emit("masked_fill", [value, mask], low.shape, low.dtype, {"value": float(number)})
    if number == 0:
        lookup.filled(value, mask, result)
    return result


@_lower("tril", "triu")
def _triangle(low, args, kwargs, name):
    return low.emit("triangle", args[:1],
                    attributes={"upper": int(name == "triu"), "diagonal": args[1]})


@_lower("sum")
def _sum(low, args, kwargs):
    return low.reduce("sum", args[0], *args[1:3], dtype=low.dtype)


@_lower("mean")
def _mean(low, args, kwargs):
    return low.reduce("mean", args[0], *args[1:3], dtype=low.dtype)


@_lower("linalg_vector_norm", "norm")
def _norm(low, args, kwargs):
    if args[1] != 2:
        return NotImplemented
    dims, keepdim = (args[2], args[3]) if len(args) > 3 else (None, False)
    total = low.reduce("sum", low.power(args[0], 2), dims, keepdim)
    return low.root(total)


@_lower("sqrt")
def _sqrt(low, args, kwargs):
    return low.root(args[0])


@_lower("amax")
def _amax(low, args, kwargs):
    return low.reduce("amax", args[0], *args[1:3])


@_lower("mm", "bmm")
def _mm(low, args, kwargs, name):
    return low.emit(name, args[:2], low.shape)


@_lower("mv", "dot")
def _mv(low, args, kwargs):
    a, b = low.value(args[0]), low.value(args[1])
    a = low.tape.view(a, (1,) * (2 - len(a.shape)) + a.shape)
    product = low.emit("mm", [a, low.tape.view(b, b.shape + (1,))], (a.shape[0], 1))
    return low.tape.view(product, low.shape)


@_lower("addmm", "baddbmm")
def _addmm(low, args, kwargs, name):
    product = low.emit("bmm" if name == "baddbmm" else "mm", args[1:3], low.shape)
    bias = low.scale(args[0], kwargs.get("beta", 1))
    return low.add(bias, low.scale(product, kwargs.get("alpha", 1)))


@_lower("addcmul")
def _addcmul(low, args, kwargs):
    return low.add(args[0], low.multiply(args[1], args[2]), _factor(low, args, kwargs))


@_lower("addcdiv")
def _addcdiv(low, args, kwargs):
    return low.add(args[0], low.divide(args[1], args[2]), _factor(low, args, kwargs))


def _factor(low, args, kwargs):
    return low.number(args[3]) if len(args) > 3 else kwargs.get("value", 1)


@_lower("lerp")
def _lerp(low, args, kwargs):
    weight = low.number(args[2])
    if weight is None:
        difference = low.subtract(args[1], args[0])
        return low.add(args[0], low.multiply(args[2], difference))
    return low.add(low.scale(args[0], 1 - weight), args[1], weight)


@_lower("_softmax", "softmax", "_safe_softmax")
def _softmax(low, args, kwargs):
    return low.emit("softmax", args[:1], attributes={"dim": args[1] % len(low.shape)})


@_lower("_softmax_backward_data")
def _softmax_backward(low, args, kwargs):
    weighted = low.multiply(args[0], args[1])
    total = low.reduce("sum", weighted, args[2], True)
    return low.subtract(weighted, low.multiply(args[1], total))


@_lower("_log_softmax")
def _log_softmax(low, args, kwargs):
    shifted = low.subtract(args[0], low.reduce("amax", args[0], args[1], True))
    total = low.reduce("sum", low.exp(shifted), args[1], True)
    return low.subtract(shifted, low.emit("log", [total]))


@_lower("_log_softmax_backward_data")
def _log_softmax_backward(low, args, kwargs):
    gradient = low.value(args[0])
    dim = args[2] % len(low.shape)
    rows = lookup.fact(gradient, "rows")
    if rows is not None and rows[0] == dim:
        total = rows[1]
    else:
        total = low.reduce("sum", gradient, dim, True)
    return low.subtract(gradient, low.multiply(low.exp(args[1]), total))


@_lower("embedding")
def _embedding(low, args, kwargs):
    return low.emit("embedding", args[:2], low.shape)


@_lower("embedding_dense_backward")
def _embedding_backward(low, args, kwargs):
    return low.emit("embedding_backward", args[:2], low.shape, attributes={"rows": args[2]})


@_lower("gather")
def _gather(low, args, kwargs):
    source, index = low.value(args[0]), low.value(args[2])
    dim = args[1] % len(source.shape)
    if index.shape[dim] != 1 or index.shape != source.shape[:dim] + (1,) + source.shape[dim + 1:]:
        return NotImplemented
    return lookup.gather(low, source, index, dim)


@_lower("scatter", "scatter_add")
def _scatter(low, args, kwargs):
    target, index, source = low.value(args[0]), low.value(args[2]), args[3]
    dim = args[1] % len(target.shape)
    if (target.constant != 0 or index.shape[dim] != 1 or kwargs.get("reduce") or
            index.shape != target.shape[:dim] + (1,) + target.shape[dim + 1:]):
        return NotImplemented
    return low.multiply(lookup.one_hot(low, index, dim, target.shape[dim], 0, target.dtype), source)


def _one_hot_targets(low, scores, target):
    target = low.tape.view(target, (*target.shape, 1))
    return lookup.one_hot(low, target, 1, scores.shape[1], 0, scores.dtype)


@_lower("nll_loss_forward")
def _nll_loss(low, args, kwargs):
    scores, target, weight, reduction, ignored = args
    scores, target = low.value(scores), low.value(target)
    if weight is not None or len(scores.shape) != 2:
        return NotImplemented
    low.tape.notes.add(f"no target of a cross entropy is the ignored class {ignored}")
    mask = _one_hot_targets(low, scores, target)
    loss = low.scale(low.reduce("sum", low.multiply(scores, mask), 1), -1)
    if reduction != 0:
        loss = low.reduce("mean" if reduction == 1 else "sum", loss, None)
    return loss, low.tape.full((), scores.dtype, target.shape[0])


@_lower("nll_loss_backward")
def _nll_loss_backward(low, args, kwargs):
    gradient, scores, target, weight, reduction, ignored, _ = args
    scores, target = low.value(scores), low.value(target)
    if weight is not None or len(scores.shape) != 2:
        return NotImplemented
    mask = _one_hot_targets(low, scores, target)
    gradient = low.scale(gradient, -1 / target.shape[0] if reduction == 1 else -1)
    if reduction == 0:
        gradient = low.tape.view(gradient, (*target.shape, 1))
    result = low.multiply(mask, gradient)
    result.fact = ("rows", 1, gradient)  # each row has one target
    return result


@_lower("slice_backward")
def _slice_backward(low, args, kwargs):
    gradient, sizes, dim, start, end, step = args
    if step != 1:
        return NotImplemented
    dim %= len(sizes)
    start = start + sizes[dim] if start < 0 else start
    return _pad(low, gradient, dim, start, sizes[dim])


@_lower("select_backward")
def _select_backward(low, args, kwargs):
    gradient, sizes, dim, index = args
    dim %= len(sizes)
    gradient = low.value(gradient)
    gradient = low.tape.view(gradient, (*gradient.shape[:dim], 1, *gradient.shape[dim:]))
    return _pad(low, gradient, dim, index % sizes[dim], sizes[dim])


def _pad(low, gradient, dim, start, size):
    gradient = low.value(gradient)
    after = size - start - gradient.shape[dim]
    if start == 0 and after == 0:
        return gradient
    return low.emit("pad", [gradient], low.shape, gradient.dtype,
                    {"dim": dim, "before": start, "after": after})


@_lower("constant_pad_nd")
def _constant_pad(low, args, kwargs):
    value = low.value(args[0])
    if (len(args) > 2 and args[2] != 0) or min(args[1]) < 0:
        return NotImplemented
    for k in range(0, len(args[1]), 2):
        dim = len(value.shape) - 1 - k // 2
        before, after = args[1][k:k + 2]
        if before or after:
            shape = list(value.shape)
            shape[dim] += before + after
            value = low.emit("pad", [value], shape, attributes={"dim": dim, "before": before,
                                                                 "after": after})
    return value


@_lower("cat")
def _cat(low, args, kwargs):
    dim = args[1] % len(low.shape)
    values = [low.value(x) for x in args[0]]
    values = [v for v in values if len(v.shape) == len(low.shape) and v.shape[dim] > 0]
    if len(values) == 1:
        return values[0]
    return low.emit("cat", values, low.shape, attributes={"dim": dim})


@_lower("stack")
def _stack(low, args, kwargs):
    dim = args[1] % len(low.shape)
    values = [low.value(x) for x in args[0]]
    result = low.emit("stack", values, low.shape, attributes={"dim": dim})
    roots = [lookup.fact(v, "root") for v in values]
    if all(root is not None and root[0].shape == v.shape for root, v in zip(roots, values)):
        with low.tape.optional():
            whole = low.emit("stack", [root[0] for root in roots], low.shape,
                             attributes={"dim": dim})
        result.fact = ("root", whole)
    return result


@_lower("index_select")
def _index_select(low, args, kwargs):
    if args[1] != 0:
        return NotImplemented
    return low.emit("embedding", [args[0], args[2]], low.shape)


@_lower("index")
def _index(low, args, kwargs):
    if len(args[1]) != 1 or args[1][0].dtype == torch.bool:
        return NotImplemented
    return low.emit("embedding", [args[0], args[1][0]], low.shape)


@_lower("index_put")
def _index_put(low, args, kwargs):
    target, indices, source = args[:3]
    accumulate = args[3]
    target = low.value(target)
    if len(indices) == 2 and len(target.shape) == 2 and target.constant == 0:
        rows, columns = low.value(indices[0]), low.value(indices[1])
        if accumulate or not rows.counts or not rows.shape == columns.shape == low.shape[:1]:
            return NotImplemented
        return lookup.put_in_rows(low, columns, low.value(source))
    if len(indices) != 1 or indices[0] is None:
        return NotImplemented
    if indices[0].dtype == torch.bool:
        mask, source = low.value(indices[0]), low.value(source)
        if accumulate or source.shape != ():
            return NotImplemented
        mask = low.tape.view(mask, mask.shape + (1,) * (len(target.shape) - len(mask.shape)))
        if source.constant is not None:
            return _fill_masked(low, target, mask, source.constant)
        return low.emit("where", [mask, source, target], low.shape, low.dtype)
    if not accumulate:
        return NotImplemented
    gradient = low.emit("embedding_backward", [source, indices[0]], low.shape,
                        attributes={"rows": low.shape[0]})
    return gradient if target.constant == 0 else low.add(target, gradient)


@_lower("_to_copy", "convert_element_type")
def _to_copy(low, args, kwargs):
    return low.cast(args[0], low.dtype)


@_lower("clone", "contiguous", "lift_fresh_copy", "view_of", "detach_copy")
def _clone(low, args, kwargs):
    return low.value(args[0])


@_lower("copy")
def _copy(low, args, kwargs):
    source = low.cast(args[1], low.dtype)
    return low.tape.expand(source, low.shape)


@_lower("full", "new_full", "full_like", "fill", "scalar_tensor")
def _full(low, args, kwargs, name):
    position = {"full": 1, "new_full": 2, "full_like": 1, "fill": 1, "scalar_tensor": 0}[name]
    number = low.number(args[position])
    if number is None:
        return low.tape.expand(low.value(args[position]), low.shape)
    return low.tape.full(low.shape, low.dtype, number)


@_lower("zeros", "new_zeros", "zeros_like", "zero")
def _zeros(low, args, kwargs):
    return low.tape.full(low.shape, low.dtype, 0)


@_lower("ones", "new_ones")
def _ones(low, args, kwargs):
    return low.tape.full(low.shape, low.dtype, 1)


@_lower("ones_like")
def _ones_like(low, args, kwargs):
    """Backward starts from it. What is done to it is kept, not computed here: a loss that is
    divided twice shall be found where that is done."""
    value = low.tape.full(low.shape, low.dtype, 1)
    value.constant = None
    return value


@_lower("arange")
def _arange(low, args, kwargs):
    numbers = [x for x in args if isinstance(x, (int, float))]
    start = numbers[0] if len(numbers) > 1 else 0
    step = numbers[2] if len(numbers) > 2 else 1
    if start != int(start) or step != int(step):
        return NotImplemented
    return low.tape.arange(low.shape[0], low.dtype, int(start), int(step))


@_lower("repeat")
def _repeat(low, args, kwargs):
    value = low.value(args[0])
    repeats = args[1]
    value = low.tape.view(value, (1,) * (len(repeats) - len(value.shape)) + value.shape)
    wide = [n for r, s in zip(repeats, value.shape) for n in (r, s)]
    split = [n for s in value.shape for n in (1, s)]
    return low.tape.view(low.tape.expand(low.tape.view(value, split), wide), low.shape)


@_lower("max", "min")
def _max(low, args, kwargs, name):
    if len(args) < 2 or isinstance(args[1], torch.Tensor) or name == "min":
        return NotImplemented
    value = low.reduce("amax", *args[:3])
    index = low.emit("aten.argmax", args[:1], value.shape, torch.int64,
                     {"dim": args[1] % args[0].dim()})
    return value, index


# ---- entry points -------------------------------------------------------------------------------

_SILENT = {"is_same_size", "_local_scalar_dense", "_version", "record_stream", "set_", "resize_",
           "_assert_async", "_assert_tensor_metadata", "sym_size", "is_pinned", "stride"}
_EMPTY = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided"}
_DECOMPOSITIONS = core_aten_decompositions()


def _all_gather_copy_in(inputs, output, sizes, count, rank):
    own = output.narrow(0, count * rank, count)
    for target, source in zip(own.split(sizes), inputs, strict=True):
        target.copy_(source)
    return own, output


def _split_with_sizes_copy(whole, sizes, dim=0, *, out):
    for target, source in zip(out, whole.split_with_sizes(sizes, dim), strict=True):
        target.copy_(source.reshape(target.shape))


def _chunk_cat(tensors, dim, chunks, *, out):
    """Each tensor in `chunks` equal parts (the last ones padded by zeros); the k-th parts of all
    are joined."""
    if dim != 0:
        raise ExportError("fully_shard on another dimension than 0 is not followed")
    flat = []
    for tensor in tensors:
        missing = -tensor.shape[0] % chunks
        if missing:
            tensor = torch.cat([tensor, tensor.new_zeros((missing, *tensor.shape[1:]))])
        flat.append(tensor.reshape(chunks, -1))
    out.copy_(torch.cat(flat, 1).reshape(out.shape))


# FSDP2's fused operators, in those of aten.
_FSDP = {"all_gather_copy_in": _all_gather_copy_in, "chunk_cat": _chunk_cat,
         "split_with_sizes_copy": _split_with_sizes_copy}


def _name(func) -> tuple[str, str]:
    namespace, _, name = func._schema.name.partition("::")
    return namespace, name


def _normal(func, args, kwargs):
    """Arguments by position where the schema has a position, defaults filled in."""
    args, kwargs = list(args), dict(kwargs)
    for k, argument in enumerate(func._schema.arguments):
        if argument.kwarg_only or k < len(args):
            continue
        args.append(kwargs.pop(argument.name, argument.default_value))
    return args, kwargs


def decompose(tape: Tape, func, args, kwargs):
    """Torch's own decomposition under the tape, of what the tables here do not have."""
    namespace, name = _name(func)
    bare = name.rstrip("_") if not name.startswith("__") else name
    if namespace == "fsdp" and name in _FSDP:
        with tape:
            return _FSDP[name](*args, **kwargs)
    if namespace not in ("aten", "prims") or name in _SILENT or bare in _EMPTY:
        return NotImplemented
    if bare in LOWER or name in VIEWS or bare.startswith("_foreach"):
        return NotImplemented
    if not any(isinstance(x, torch.Tensor) for x in tree_leaves((args, kwargs))):
        return NotImplemented
    decomposition = _DECOMPOSITIONS.get(func)
    with tape:
        if decomposition is not None:
            return decomposition(*args, **kwargs)
        return func.decompose(*args, **kwargs)


def record(tape: Tape, func, args, kwargs, result) -> None:
    """Write what `func` just did to the tape."""
    args, kwargs = _normal(func, args, kwargs)
    namespace, name = _name(func)
    if namespace in ("profiler", "inductor", "symm_mem") or name in _SILENT:
        return
    if namespace in ("_c10d_functional", "_c10d_functional_autograd"):
        if not collectives.functional(tape, name, args, kwargs, result):
            _unknown(tape, func, args, kwargs, result)
        return
    if namespace == "c10d":
        if not collectives.classic(tape, name, args, kwargs, result):
            _unknown(tape, func, args, kwargs, result)
        return
    if name in _EMPTY:
        tape.root(result, None)
        return
    if name == "as_strided" and tape.same_memory(result, args[0]):
        return  # the tape knows a place by its strides when it is read
    if name in VIEWS:
        _record_view(tape, name, args, kwargs, result)
        return
    if name.startswith("_foreach_"):
        _record_foreach(tape, func, name.removeprefix("_foreach_"), args, kwargs, result)
        return
    target = kwargs.get("out")
    if target is None and name.endswith("_") and not name.startswith("__"):
        target = args[0]
    kwargs = {k: v for k, v in kwargs.items() if k != "out"}
    bare = name if name.startswith("__") else name.rstrip("_")
    _record_single(tape, func, bare, args, kwargs, target if target is not None else result,
                   target is not None)


def _record_view(tape, name, args, kwargs, result) -> None:
    base = args[0]
    for index, out in enumerate([result] if isinstance(result, torch.Tensor) else result):
        link = VIEWS[name](args, out, index)
        if tape.same_memory(out, base):
            tape.link(out, base, link)
        else:  # the operator had to copy
            tape.bind(out, tape.view(tape.read(base), out.shape))


def _record_foreach(tape, func, name, args, kwargs, result) -> None:
    first = args[0]
    in_place = name.endswith("_")
    outs = first if in_place else result
    for k, out in enumerate(outs):
        each = [a[k] if isinstance(a, (list, tuple)) else a for a in args]
        each_kwargs = {key: a[k] if isinstance(a, (list, tuple)) else a
                       for key, a in kwargs.items()}
        _record_single(tape, func, name.rstrip("_"), each, each_kwargs, out, in_place)


def _record_single(tape, func, bare, args, kwargs, result, in_place) -> None:
    function = LOWER.get(bare)
    first = result if isinstance(result, torch.Tensor) else next(
        (x for x in tree_leaves(result) if isinstance(x, torch.Tensor)), None)
    if first is None:
        if any(a.alias_info is not None and a.alias_info.is_write for a in func._schema.arguments):
            raise ExportError(f"{func} writes memory in a way that the exporter does not follow")
        return
    values = NotImplemented
    if function is not None:
        low = Lowering(tape, first.shape, first.dtype)
        names = function.__code__.co_varnames[:function.__code__.co_argcount]
        values = (function(low, args, kwargs, bare) if "name" in names
                  else function(low, args, kwargs))
    if values is NotImplemented:
        return _unknown(tape, func, args, kwargs, result)
    outs = [result] if isinstance(result, torch.Tensor) else list(result)
    for out, value in zip(outs, [values] if isinstance(values, Value) else values):
        if in_place:
            value = tape.expand(value, out.shape)
            tape.write(out, value)
        elif tape.known(out):
            tape.write(out, value)
        else:
            tape.root(out, value)
    return None


def _unknown(tape, func, args, kwargs, result) -> None:
    """An operator without a counterpart: opaque, under its own name."""
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    written = []
    for argument, x in zip(func._schema.arguments, args):
        if argument.alias_info is not None and argument.alias_info.is_write:
            written += [t for t in tree_leaves(x) if isinstance(t, torch.Tensor)]
    outs = written or [x for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
    attributes = {}
    for argument, x in zip(func._schema.arguments, args):
        if isinstance(x, (int, float)) and not math.isnan(x):
            attributes[argument.name] = float(x) if isinstance(x, float) else int(x)
    values = tape.emit(func._schema.name.replace("::", "."), [tape.read(x) for x in tensors],
                       [tuple(x.shape) for x in outs], [x.dtype for x in outs], attributes)
    for out, value in zip(outs, values):
        if tape.known(out):
            tape.write(out, value)
        else:
            tape.root(out, value)
