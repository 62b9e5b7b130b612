"""An independent reference of the digest and statistics, and the maker of their golden file.

Python integers for the algebra, torch for the values (so fp8 decoding is PyTorch's own), logical
order for everything. Nothing is shared with lib/tensor.

    python tests/ref/digest_reference.py > tests/golden/digest_vectors.txt

One test a line, fields separated by blanks, lists by commas ("-" when empty):
    dtype shape strides whole offset first hex sum exclusive polynomial nan inf zero absmax squares
`first` is the position, in elements, of the first element in the bytes `hex`; absmax and squares
are C hexadecimal floats; squares is correct to a relative 1e-12 (the order of additions differs).
"""

import itertools
import math
import random

import torch

PRIME = (1 << 61) - 1
BASE = 37
DTYPES = (
    "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 "
    "complex32 complex64 complex128 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz "
    "float8_e8m0fnu"
).split()
COMPLEX_PARTS = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
SPECIAL = {
    "float16": [0, 0x8000, 0x7C00, 0xFC00, 0x7C01, 0xFE00, 0x7BFF, 1, 0x83FF],
    "bfloat16": [0, 0x8000, 0x7F80, 0xFF80, 0x7F81, 0xFFC0, 0x7F7F, 1, 0x807F],
    "float32": [0, 1 << 31, 0x7F800000, 0xFF800000, 0x7F800001, 0x7F7FFFFF, 1, 0x807FFFFF],
    "float64": [0, 1 << 63, 0x7FF << 52, 0xFFF << 52, (0x7FF << 52) + 1, 1, (1 << 52) - 1],
    "int8": [0, 0x80, 0x7F, 0xFF],
    "int16": [0, 0x8000, 0x7FFF, 0xFFFF],
    "int32": [0, 1 << 31, (1 << 31) - 1, (1 << 32) - 1],
    "int64": [0, 1 << 63, (1 << 63) - 1, (1 << 64) - 1, (1 << 53) + 1],
    "uint64": [0, 1 << 63, (1 << 64) - 1, (1 << 53) + 1, (1 << 63) + 1025],
}


def values_of(raw, name):
    """The components of an element's bytes as exact Python numbers."""
    part = COMPLEX_PARTS.get(name, name)
    size = torch.empty(0, dtype=getattr(torch, part)).element_size()
    found = []
    for start in range(0, len(raw), size):
        piece = raw[start : start + size]
        if part.startswith("int") or part.startswith("uint"):
            found.append(int.from_bytes(piece, "little", signed=part.startswith("int")))
        elif part == "bool":
            found.append(int(piece[0] != 0))
        else:
            one = torch.frombuffer(bytearray(piece), dtype=torch.uint8)
            value = one.view(getattr(torch, part)).to(torch.float64).item()
            found.append(value)
    return found


def digest(data, name, shape, strides, whole, offset, first):
    size = torch.empty(0, dtype=getattr(torch, name)).element_size()
    words = max(1, size // 4)
    total, exclusive, polynomial = 0, 0, 0
    nan = inf = zero = 0
    absmax, squares = 0.0, []
    for index in itertools.product(*(range(n) for n in shape)):
        element = first + sum(i * s for i, s in zip(index, strides))
        raw = bytes(data[element * size : (element + 1) * size])
        position = 0
        for i, o, n in zip(index, offset, whole):
            position = position * n + i + o
        for w in range(words):
            word = int.from_bytes(raw[w * 4 : w * 4 + 4], "little")
            total = (total + word) % (1 << 64)
            exclusive ^= word
            polynomial = (polynomial + word * pow(BASE, position * words + w, PRIME)) % PRIME
        for value in values_of(raw, name):
            if value != value:
                nan += 1
            elif value in (math.inf, -math.inf):
                inf += 1
            else:
                zero += value == 0
                rounded = float(value)
                absmax = max(absmax, abs(rounded))
                squares.append(rounded * rounded)
    try:
        square_sum = math.fsum(squares)
    except OverflowError:
        square_sum = math.inf
    return total, exclusive, polynomial, nan, inf, zero, absmax, square_sum


def geometry(generator):
    """A random view: shape, strides (axes permuted, gaps, zero, negative), whole, offset, first."""
    ndim = generator.randrange(5)
    shape = [generator.choice([1, 2, 3, 5, 7]) for _ in range(ndim)]
    strides = [0] * ndim
    step, lowest, highest = 1, 0, 0
    for axis in generator.sample(range(ndim), ndim):
        kind = generator.randrange(8)
        strides[axis] = {0: 0, 1: -step, 2: step + 1}.get(kind, step)
        reach = strides[axis] * (shape[axis] - 1)
        lowest, highest = lowest + min(reach, 0), highest + max(reach, 0)
        step = max(step, abs(strides[axis]) * shape[axis])
    offset = [generator.randrange(3) for _ in shape]
    whole = [n + o + generator.randrange(3) for n, o in zip(shape, offset)]
    return shape, strides, whole, offset, -lowest, highest - lowest + 1


def random_bytes(generator, name, count):
    part = COMPLEX_PARTS.get(name, name)
    size = torch.empty(0, dtype=getattr(torch, part)).element_size()
    total = count * torch.empty(0, dtype=getattr(torch, name)).element_size()
    data = bytearray(generator.randbytes(total))
    for start in range(0, total, size):
        if part in SPECIAL and generator.random() < 0.2:
            data[start : start + size] = generator.choice(SPECIAL[part]).to_bytes(size, "little")
    if name == "bool":
        data = bytearray(b & 1 for b in data)
    return data


def main():
    generator = random.Random(20251129)

    def show(numbers):
        return ",".join(map(str, numbers)) or "-"

    def line(name, data, shape, strides, whole, offset, first):
        result = digest(data, name, shape, strides, whole, offset, first)
        print(
            name, show(shape), show(strides), show(whole), show(offset), first, data.hex() or "-",
            *result[:6], result[6].hex(), result[7].hex()
        )  # fmt: skip

    for name in DTYPES:
        size = torch.empty(0, dtype=getattr(torch, name)).element_size()
        if size == 1 and name != "bool":  # every bit pattern, alone: the decode tables
            for value in range(256):
                line(name, bytearray([value]), [], [], [], [], 0)
        for _ in range(12):
            shape, strides, whole, offset, first, extent = geometry(generator)
            data = random_bytes(generator, name, extent)
            line(name, data, shape, strides, whole, offset, first)
        data = random_bytes(generator, name, 1000)
        line(name, data, [1000], [1], [1000], [0], 0)
        line(name, bytearray(), [0, 3], [3, 1], [0, 3], [0, 0], 0)


if __name__ == "__main__":
    main()
