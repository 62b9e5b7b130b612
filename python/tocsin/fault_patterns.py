"""What a fault does to the bits of a tensor (docs/inject.md).

A pattern changes a plain tensor in place, under no_grad, and draws all that it chooses from the
random.Random it is given: neither torch's nor Python's generators move. What was changed is found
by comparing the bits before and after, so that the ground truth is what happened, not what was
meant.
"""

import torch

SHOWN_MAX = 16
STRIDE = 32  # of a warp's threads
COUNT = 8  # elements that a warp's fault touches
TILE = (4, 8)

_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def words(tensor):
    """The tensor's bits as integers: the same memory."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.view(_WORDS[tensor.element_size()])


def _mask(bit, dtype):
    width = torch.iinfo(dtype).bits
    bit %= width
    return -(1 << bit) if bit == width - 1 and dtype != torch.uint8 else 1 << bit


def _chosen_bit(fault, draw, dtype):
    return draw.randrange(torch.iinfo(dtype).bits) if fault.bit is None else fault.bit


def _chosen_element(fault, draw, tensor):
    if fault.element is None:
        return tuple(draw.randrange(size) for size in tensor.shape)
    if len(fault.element) != tensor.ndim:
        raise ValueError(f"element {fault.element} of a tensor of {tensor.ndim} axes")
    return tuple(fault.element)


def _flip(tensor, places, bit):
    bits = words(tensor)
    mask = _mask(bit, bits.dtype)
    for place in places:
        bits[place] ^= mask


def _unravel(flat, shape):
    index = []
    for size in reversed(shape):
        index.append(flat % size)
        flat //= size
    return tuple(reversed(index))


def _ravel(index, shape):
    flat = 0
    for place, size in zip(index, shape, strict=True):
        flat = flat * size + place
    return flat


def bit(tensor, fault, draw):
    bits = words(tensor)
    place = _chosen_element(fault, draw, bits)
    _flip(tensor, [place], _chosen_bit(fault, draw, bits.dtype))


def warp(tensor, fault, draw):
    bits = words(tensor)
    first = _ravel(_chosen_element(fault, draw, bits), bits.shape)
    places = {(first + STRIDE * k) % bits.numel() for k in range(COUNT)}
    flipped = _chosen_bit(fault, draw, bits.dtype)
    _flip(tensor, [_unravel(place, bits.shape) for place in sorted(places)], flipped)


def tile(tensor, fault, draw):
    bits = words(tensor)
    corner = _chosen_element(fault, draw, bits)
    rows, columns = TILE if bits.ndim > 1 else (1, TILE[1])
    places = []
    for row in range(rows):
        for column in range(columns):
            place = list(corner)
            if bits.ndim > 1:
                place[-2] = (corner[-2] + row) % bits.shape[-2]
            if bits.ndim > 0:
                place[-1] = (corner[-1] + column) % bits.shape[-1]
            places.append(tuple(place))
    _flip(tensor, sorted(set(places)), _chosen_bit(fault, draw, bits.dtype))


def rows(tensor, fault, draw):
    if tensor.ndim == 0:
        return
    bits = words(tensor)
    first = fault.element[0] if fault.element else draw.randrange(len(bits))
    others = [row for row in range(len(bits)) if not torch.equal(bits[row], bits[first])]
    if others:
        other = draw.choice(others)
        bits[[first, other]] = bits[[other, first]]


def sign(tensor, fault, draw):
    bits = words(tensor)
    _flip(tensor, [_chosen_element(fault, draw, bits)], torch.iinfo(bits.dtype).bits - 1)


def scale(tensor, fault, draw):
    tensor[_chosen_element(fault, draw, tensor)] *= 10000 if fault.value is None else fault.value


def stuck(tensor, fault, draw):
    place = _chosen_element(fault, draw, tensor)
    tensor[place] = 1 if fault.value is None else fault.value


def nan(tensor, fault, draw):
    tensor[_chosen_element(fault, draw, tensor)] = float("nan")


def reorder(tensor, fault, draw):
    """Each element as a sum would be to which one term came later: it is added and taken away."""
    generator = torch.Generator().manual_seed(draw.randrange(2**31))
    term = torch.randn(tensor.shape, generator=generator).to(tensor.dtype) * tensor.abs().max()
    tensor.copy_((tensor + term) - term)


def rounded(tensor, fault, draw):
    """As if it had been computed in bfloat16."""
    tensor.copy_(tensor.to(torch.bfloat16))


def rescale(tensor, fault, draw):
    tensor.mul_(1.01 if fault.value is None else fault.value)


def roll(tensor, fault, draw):
    """Along the last axis, by one."""
    tensor.copy_(torch.roll(tensor, 1, -1))


PATTERNS = {
    "bit": bit, "warp": warp, "tile": tile, "rows": rows, "sign": sign, "scale": scale,
    "stuck": stuck, "nan": nan, "reorder": reorder, "rounded": rounded, "rescale": rescale,
    "roll": roll,
}  # fmt: skip


def apply(tensor, fault, draw):
    """Put the fault into a plain tensor; what changed: `changed` elements, and of the first ones
    index and bits (of complex numbers the last index says real or imaginary part)."""
    with torch.no_grad():
        before = words(tensor).clone()
        PATTERNS[fault.pattern](tensor, fault, draw)
        difference = before ^ words(tensor)
        places = difference.nonzero(as_tuple=False)
        elements = []
        for place in places[:SHOWN_MAX].tolist():
            number = int(difference[tuple(place)]) % (1 << 8 * difference.element_size())
            bits = [at for at in range(64) if number >> at & 1]
            elements.append({"index": place, "bits": bits})
    return {"changed": len(places), "elements": elements}
