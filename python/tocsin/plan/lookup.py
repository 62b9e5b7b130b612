"""Look-ups by an index that a rank holds a part of: what is known of integer values.

A vocabulary-parallel look-up masks the indices that are not in the rank's part [low, high), looks
up index - low, and clears what was masked:

    mask = (i < low) | (i >= high)       local = masked_fill(i - low, mask, 0)
    out  = masked_fill(gather(x, local), mask, 0)

In a plan that is the part [low, high) of a sum over classes: sum_c x[c] * (i == low + c), which is
0 by itself where masked. Facts about values lead there; each is checked where it is used, bounds
and all, so that a mask with other bounds is not taken for this one.

Facts (Value.fact), `i` an integer value: ("range", low, high): low <= it < high; ("shifted", i, n):
i + n; ("below", i, n): i < n; ("from", i, n): i >= n; ("outside", i, low, high): the mask above;
("masked", ...): it as numbers 0 and 1; ("kept", ...): that minus 1; ("local", ...): local above;
("picked", i, low, high, sum): gather(x, local), and the sum that it is where not masked; ("rows",
dim, total): it sums up to `total` along dim; ("root", x): the square root of x.
"""

from __future__ import annotations

import torch


def base(value):
    """The value that this is a view of."""
    return value.viewed or value


def fact(value, kind):
    """What follows the kind in the fact about a value, or None."""
    found = base(value).fact
    return found[1:] if found is not None and found[0] == kind else None


def outcome(name, value, number):
    """Of a comparison for equality with a number that the value cannot be, or None."""
    bounds = fact(value, "range")
    if name not in ("eq", "ne") or bounds is None or bounds[0] <= number < bounds[1]:
        return None
    return name == "ne"


def compared(name, value, number, result) -> None:
    kind = {"lt": "below", "ge": "from"}.get(name)
    if kind is not None and not value.dtype.is_floating_point:
        result.fact = (kind, base(value), int(number))


def shifted(value, number, result) -> None:
    if not value.dtype.is_floating_point and number == int(number):
        result.fact = ("shifted", base(value), int(number))
    elif number == -1 and fact(value, "masked") is not None:
        result.fact = ("kept", *fact(value, "masked"))


def either(a, b, result) -> None:
    below, least = fact(a, "below") or fact(b, "below"), fact(a, "from") or fact(b, "from")
    if below is not None and least is not None and below[0] is least[0]:
        result.fact = ("outside", below[0], below[1], least[1])


def as_number(mask, result) -> None:
    if fact(mask, "outside") is not None and result.dtype.is_floating_point:
        result.fact = ("masked", *fact(mask, "outside"))


def cleared(value, mask, low):
    """masked_fill(value, mask, 0) where it is known to be something else, or None."""
    outside, picked = fact(mask, "outside"), fact(value, "picked")
    if outside is None or picked is None or picked[:3] != outside:
        return None
    return low.tape.view(picked[3], value.shape)


def filled(value, mask, result) -> None:
    outside, moved = fact(mask, "outside"), fact(value, "shifted")
    if outside is None:
        return
    if moved == (outside[0], -outside[1]) or (outside[1] == 0 and base(value) is outside[0]):
        result.fact = ("local", *outside)


def one_hot(low, index, dim: int, size: int, start: int, dtype):
    """1 where start + the position along `dim` is the index, whose size there is 1."""
    shape = [1] * len(index.shape)
    shape[dim] = size
    positions = low.tape.view(low.tape.arange(size, index.dtype, start, 1), shape)
    return low.cast(low.emit("eq", [index, positions], dtype=torch.bool), dtype)


def gather(low, source, index, dim: int):
    """gather(source, dim, index) with one index per row."""
    size = source.shape[dim]
    local = fact(index, "local")
    if local is None or local[2] - local[1] != size:
        mask = one_hot(low, index, dim, size, 0, source.dtype)
        return low.reduce("sum", low.multiply(source, mask), dim, True)
    origin, start, end = local
    mask = one_hot(low, low.tape.view(origin, index.shape), dim, size, start, source.dtype)
    total = low.reduce("sum", low.multiply(source, mask), dim, True)
    # What gather gives where the index is masked, too; nobody should read it.
    with low.tape.optional():
        outside = low.emit("eq", [mask, 0.0], dtype=torch.bool)
        none = low.reduce("amin", outside, dim, True)
        result = low.emit("where", [none, low.tape.slice(source, dim, 0, 1, 1), total])
    result.fact = ("picked", origin, start, end, total)
    return result


def put_in_rows(low, columns, source):
    """zeros[arange, columns] = source: one element of each row, or None."""
    rows, size = low.shape
    local, kept = fact(columns, "local"), fact(source, "kept")
    column = (rows, 1)
    if local is not None and kept == local and local[2] - local[1] == size:
        origin, start, _ = local
        mask = one_hot(low, low.tape.view(origin, column), 1, size, start, low.dtype)
        return low.scale(mask, -1)
    mask = one_hot(low, low.tape.view(columns, column), 1, size, 0, low.dtype)
    return low.multiply(mask, low.tape.view(source, column) if source.shape else source)
