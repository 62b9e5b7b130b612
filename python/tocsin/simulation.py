"""One process that computes as tensor-parallel ranks would (docs/align.md).

A row-parallel layer sums slices that ranks have multiplied, and so does the gradient of a
column-parallel layer's input. Floating point sums depend on their order, so that a tensor-parallel
run and one of a single process differ by right. Here a single process makes the same products and
adds them in the order of gloo's ring.
"""

import fnmatch
import sys
import types

_SEGMENT_BYTES = 1 << 20  # the largest piece that gloo's ring passes on


def add_up(parts):
    """The sum of one tensor a rank, as gloo's all-reduce makes it: the ranks' chunks of the tensor
    travel around the ring, and the one that ends at rank k begins at the rank before it."""
    torch = sys.modules["torch"]
    ranks, count, size = len(parts), parts[0].numel(), parts[0].element_size()
    segments = max(-(-count * size // _SEGMENT_BYTES), 2 * ranks)
    segments = -(-segments // ranks) * ranks
    segment_bytes = -(-(-(-count * size // segments)) // size) * size
    length = max(1, segment_bytes // size * (segments // ranks))
    flat = [part.reshape(-1) for part in parts]
    chunks = []
    for k in range(ranks):
        chunk = slice(k * length, (k + 1) * length)
        total = flat[(k - 1) % ranks][chunk]
        for back in range(2, ranks + 1):
            total = total + flat[(k - back) % ranks][chunk]
        chunks.append(total)
    return torch.cat(chunks).view(parts[0].shape)


def _slices(tensor, ranks, dim):
    return [part.contiguous() for part in tensor.chunk(ranks, dim)]


def _flat(tensor):
    return tensor.reshape(-1, tensor.shape[-1])


def _column(x, weight, bias, ranks):
    """Each rank has some rows of the weight."""
    torch = sys.modules["torch"]
    biases = [None] * ranks if bias is None else _slices(bias, ranks, 0)
    parts = zip(_slices(weight, ranks, 0), biases, strict=True)
    return torch.cat([torch.nn.functional.linear(x, w, b) for w, b in parts], -1)


def _column_backward(x, weight, gradient, ranks):
    torch = sys.modules["torch"]
    gradients = _slices(gradient, ranks, -1)
    weights = _slices(weight, ranks, 0)
    of_x = add_up([g @ w for g, w in zip(gradients, weights, strict=True)])
    of_weight = torch.cat([_flat(g).t() @ _flat(x) for g in gradients], 0)
    return of_x, of_weight, torch.cat([_flat(g).sum(0) for g in gradients], 0)


def _row(x, weight, bias, ranks):
    """Each rank has some columns of the weight and, as a DTensor, its share of the bias."""
    torch = sys.modules["torch"]
    share = None if bias is None else bias / ranks
    parts = zip(_slices(x, ranks, -1), _slices(weight, ranks, 1), strict=True)
    return add_up([torch.nn.functional.linear(p, w, share) for p, w in parts])


def _row_backward(x, weight, gradient, ranks):
    torch = sys.modules["torch"]
    of_x = torch.cat([gradient @ w for w in _slices(weight, ranks, 1)], -1)
    of_weight = torch.cat([_flat(gradient).t() @ _flat(p) for p in _slices(x, ranks, -1)], 1)
    return of_x, of_weight, _flat(gradient).sum(0)


_WAYS = {"column": (_column, _column_backward, 0), "row": (_row, _row_backward, 1)}


def _function(torch):
    class SlicedLinear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, bias, way, ranks):
            ctx.save_for_backward(x, weight)
            ctx.way, ctx.ranks, ctx.has_bias = way, ranks, bias is not None
            return _WAYS[way][0](x, weight, bias, ranks)

        @staticmethod
        def backward(ctx, gradient):
            x, weight = ctx.saved_tensors
            of_x, of_weight, of_bias = _WAYS[ctx.way][1](x, weight, gradient, ctx.ranks)
            return of_x, of_weight, of_bias if ctx.has_bias else None, None, None

    return SlicedLinear


def simulate_tensor_parallel(model, plan, degree):
    """Let linear layers of `model` compute as torch's parallelize_module() over `degree` gloo ranks
    would, to the last bit. plan: {name or pattern: "column" or "row"}, as ColwiseParallel and
    RowwiseParallel. Parameters stay whole, and so do gradients.

    Raises ValueError for a layer that is not there, is not torch.nn.Linear or cannot be cut in
    equal parts."""
    torch = sys.modules["torch"]
    function = _function(torch)

    def forward(way, module, x):
        if torch.is_autocast_enabled(x.device.type):
            raise RuntimeError("simulate_tensor_parallel() does not work under autocast")
        return function.apply(x, module.weight, module.bias, way, degree)

    def forward_column(module, x):
        return forward("column", module, x)

    def forward_row(module, x):
        return forward("row", module, x)

    forwards = {"column": forward_column, "row": forward_row}
    found = []
    for pattern, way in plan.items():
        modules = [m for name, m in model.named_modules() if fnmatch.fnmatchcase(name, pattern)]
        if way not in _WAYS or not modules:
            raise ValueError(f"{pattern}: {way!r}: no such layer, or neither column nor row")
        for module in modules:
            if type(module) is not torch.nn.Linear or module.weight.shape[_WAYS[way][2]] % degree:
                raise ValueError(f"{pattern}: not a torch.nn.Linear in {degree} equal parts")
        found += [(module, forwards[way]) for module in modules]
    for module, sliced in found:
        module.forward = types.MethodType(sliced, module)
