"""Reductions verified as a whole: in audited steps, and before a save that needs an audit.

Each member keeps, in host memory, what it gives, and its part of what comes out. Of R members each
computes one R-th again: it is sent that part of what the others gave, in pieces, through the
guard's own group. What it found goes into its record, so that all ranks judge alike.
"""

import sys

from tocsin import _core
from tocsin.guard.collective_calls import REDUCE, REDUCE_SCATTER

HELD_MAX = 1 << 32  # bytes of inputs that a rank keeps; of what is beyond a slice is verified
_PIECE = 1 << 24  # bytes in memory, of all members together
_PROBE_MAX = 1 << 24  # elements


class Whole:
    """What a member gave to a call, as bytes of a part for each member, and what it got of its own
    part; the root of a reduce has the results of all parts."""

    def __init__(self, call, inputs):
        kept = [_bytes(each) for each in inputs]
        self.parts = kept if len(kept) > 1 else _parts(call, kept[0])
        self.results = {}

    def keep_result(self, call, result):
        member = call.group.member
        if call.kind == REDUCE_SCATTER:
            self.results = {member: _bytes(result)}
        elif call.kind == REDUCE:
            self.results = dict(enumerate(_parts(call, _bytes(result))))
        else:
            part = _parts(call, result.detach().view(-1), 1)[member]
            self.results = {member: _bytes(part)}


def _bytes(tensor):
    torch = sys.modules["torch"]
    return tensor.detach().view(-1).to("cpu", copy=True).view(torch.uint8)


def _parts(call, tensor, width=None):
    """One for each member; no element is cut."""
    width = call.width if width is None else width
    elements, members = tensor.numel() // width, call.group.members
    sizes = [elements // members + (m < elements % members) for m in range(members)]
    return list(tensor.split([size * width for size in sizes]))


def bytes_of(call):
    """Of its inputs."""
    return call.count * call.width


def verify(call, exchange):
    """Compute this member's part again; all members call, with the same calls in the same order."""
    group, whole = call.group, call.whole
    me, head = group.member, call.head()
    first = sum(part.numel() for part in whole.parts[:me]) // call.width
    step = max(1, _PIECE // group.members // call.width) * call.width
    call.found = b""
    for at in range(0, max(part.numel() for part in whole.parts), step):
        pieces = {m: part[at : at + step] for m, part in enumerate(whole.parts)}
        results = {m: part[at : at + step] for m, part in whole.results.items()}
        inputs, result = _traded(call, exchange, pieces, results)
        call.found = _core.guard_part_check(
            head, first + at // call.width, tuple(each.numpy() for each in inputs), result.numpy(),
            call.found,
        )  # fmt: skip


def _traded(call, exchange, pieces, results):
    """(what each member gave to this member's piece, what came out)"""
    torch = sys.modules["torch"]
    group, me = call.group, call.group.member
    others = [m for m in range(group.members) if m != me]
    sends = [(group.ranks[m], pieces[m]) for m in others]
    sends += [(group.ranks[m], results[m]) for m in others if m in results]
    inputs = [pieces[m] if m == me else torch.empty_like(pieces[me]) for m in range(group.members)]
    receives = [(group.ranks[m], inputs[m]) for m in others]
    result = results.get(me)
    if result is None:  # the root has it
        result = torch.empty_like(pieces[me])
        receives.append((group.ranks[call.source], result))
    exchange.trade(sends, receives)
    return inputs, result


# ---- before a save -------------------------------------------------------------------------------


def probe(group, distributed, step):
    """A reduction of known numbers, like one that the job made in this group: what a rank or its
    link does to each is done to this. False: the group is gone."""
    torch = sys.modules["torch"]
    try:
        process_group = distributed.distributed_c10d._resolve_process_group(group.name)
    except (RuntimeError, LookupError, ValueError):
        return False
    count, dtype, device = group.reduced
    generator = torch.Generator().manual_seed((group.key + step) % (1 << 62) + group.member)
    numbers = torch.randn(min(count, _PROBE_MAX), generator=generator)
    distributed.all_reduce(numbers.to(device, dtype), group=process_group)
    return True
