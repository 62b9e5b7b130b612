"""What others compare replicas by, for the same faults: digests of each tensor, and who is named.

  xor     64-bit words, exclusive or; strict majority
  pair    sum and index-weighted sum of the words, mod 2^64, of the background; strict majority
  norm    sum of magnitudes in double; strict majority
  rank 0  SHA-1 of the values as float32; everybody who differs from rank 0 is named
"""

import collections
import hashlib
import struct

import torch

METHODS = ("xor", "pair", "norm", "rank 0")
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _pair(tensor):
    words = tensor.view(_WORDS[tensor.element_size()]).to(torch.int64)
    places = torch.arange(1, words.numel() + 1)
    return struct.pack("=qq", int(words.sum()), int((words * places).sum()))


def _xor(tensor):
    data = tensor.view(torch.uint8)
    data = torch.nn.functional.pad(data, (0, -data.numel() % 8)).view(torch.int64)
    while data.numel() > 1:
        if data.numel() % 2:
            data = torch.nn.functional.pad(data, (0, 1))
        data = data[::2] ^ data[1::2]
    return struct.pack("=q", int(data)) if data.numel() else b""


def digests(tensors):
    """{method: a digest of each tensor}."""
    flat = [each.detach().reshape(-1).contiguous() for each in tensors]
    return {
        "xor": [_xor(each) for each in flat],
        "pair": [_pair(each) for each in flat],
        "norm": [struct.pack("=d", float(each.double().abs().sum())) for each in flat],
        "rank 0": [hashlib.sha1(each.float().numpy().tobytes()).digest() for each in flat],
    }


def _voted(rows):
    """Does any tensor differ, and who is in a strict minority? Nobody, if one has no majority."""
    differs, named = False, set()
    for column in zip(*rows, strict=True):
        (most, count), *others = collections.Counter(column).most_common()
        if not others:
            continue
        differs = True
        if 2 * count <= len(rows):
            return True, []
        named.update(rank for rank, digest in enumerate(column) if digest != most)
    return differs, sorted(named)


def _compared(rows):
    named = [rank for rank, row in enumerate(rows) if row != rows[0]]
    return bool(named), named


def judge(ranks):
    """ranks[rank][step]: digests(). {method: (the first step seen, who is named)}, or None."""
    found = {}
    for method in METHODS:
        found[method] = None
        for step, rows in enumerate(zip(*ranks, strict=True), 1):
            judged = _compared if method == "rank 0" else _voted
            differs, named = judged([row[method] for row in rows])
            if differs:
                found[method] = (step, named)
                break
    return found
