"""One call of a collective, as its record for lib/guard: what goes in, what comes out.

Each method of ProcessGroup has a function here that is given the same arguments before the call. It
digests what goes in and says what to read when the call is complete.
"""

import hashlib
import struct
import sys

from tocsin import _core
from tocsin.guard import digests
from tocsin.guard.exchange import DESCRIPTION

_RECORD = struct.Struct("=QQ10I4Q")  # of tocsin_guard_call, less its two digests
_NOTHING = bytes(digests.BYTES)
_WORDS_MAX = 1 << 60
_ORDERED_MIN = 64  # elements that together show an order

BROADCAST, ALL_GATHER, ALL_TO_ALL, GATHER, SCATTER = range(5)
SEND, RECEIVE, RECEIVE_ANY, ALL_REDUCE, REDUCE_SCATTER, REDUCE = range(5, 11)
OPEN, PASSED, WANTED, FAILED, REORDERED, UNCOVERED, WHOLE = range(7)
_NOT_WHOLE, _HELD, _VERIFIED = range(3)
_OPERATIONS = ("SUM", "AVG", "MIN", "MAX")  # as lib/guard numbers them


class Group:
    """A process group of the job, as its members number its calls."""

    def __init__(self, group, distributed):
        self.name = group.group_name
        self.ranks = distributed.get_process_group_ranks(group)
        self.members = len(self.ranks)
        self.member = group.rank()
        self.key = number_of(group.group_name, self.ranks)
        self.watched = not group.group_desc.startswith(DESCRIPTION) and self.members > 1
        self.calls = 0
        self.step = self.before = 0  # the step under way, calls before it
        self.reduced_in = 0  # the last step in which sums passed, and
        self.reduced = None  # of the longest: elements, dtype, device
        self.messages = {}  # (tag, source, target) -> so many
        # are sums added up in the order of gloo's ring? 0: no, 1: it may be, 2: it was
        self.ring = 2 if self.members == 2 else 1  # two have one order
        self.gloo = {}  # kind of device -> does gloo serve it?

    @property
    def order(self):
        """In which all ranks come to their groups; small ones first, which are often disjoint."""
        return self.members, self.key

    def number_call(self, step):
        """Of a call that is about to be made in this step."""
        if step != self.step:
            self.step, self.before = step, self.calls
        self.calls += 1
        return self.calls

    def passed(self, call, step):
        if call.shows_order():
            self.ring = self.ring and 2
        if call.adds_floats:
            longest = self.reduced if self.reduced_in == step else None
            self.reduced_in = step
            self.reduced = max(longest or call.like, call.like, key=lambda like: like[0])

    def ring_on(self, group, device):
        known = self.gloo.get(device.type)
        if known is None:
            known = type(group._get_backend(device)).__name__ == "ProcessGroupGloo"
            self.gloo[device.type] = known
        return self.ring if known else 0


def number_of(*what):
    """64 bits that are the same on all ranks."""
    digest = hashlib.blake2b(repr(what).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


class Call:
    """One call, as this rank knows it."""

    age = 0
    source = target = dtype = operation = ring = count = first = length = 0
    sent = received = _NOTHING
    outgoing = incoming = None  # digests of each transfer
    slices = ()  # of a reduction: this member's, and that of the result
    result = None  # what to read when it is complete: () -> None
    result_slice = None
    adds_floats = False
    inputs = like = None  # of a reduction: tensors; elements, dtype and device of its result
    whole = found = None  # what is kept of it, what verifying a part of it found

    def __init__(self, group, kind, number, width):
        self.group, self.kind, self.number, self.width = group, kind, number, width
        self.key = group.key

    def shows_order(self):
        """Do its bits depend on the order in which it is added up?"""
        return self.ring and self.adds_floats and self.length >= _ORDERED_MIN

    def record(self, details):
        payload = b""
        if self.kind <= SCATTER and details:
            payload = self.outgoing + self.incoming
        elif self.found is not None:
            payload = self.found
        elif self.kind >= ALL_REDUCE:
            payload = b"".join(map(_bytes, self.slices))
        return self.head(len(payload)) + payload.ljust(-(-len(payload) // 8) * 8, b"\0")

    def head(self, payload=0):
        """The record, less its payload of so many bytes."""
        whole = _NOT_WHOLE if self.whole is None else _HELD if self.found is None else _VERIFIED
        return _RECORD.pack(
            self.key, self.number, self.kind, self.group.members, self.group.member, self.source,
            self.target, self.width, self.dtype, self.operation, self.ring, whole, self.count,
            self.first, self.length, payload,
        ) + self.sent + self.received  # fmt: skip


def _bytes(tensor):
    torch = sys.modules["torch"]
    return tensor.cpu().view(torch.uint8).numpy().tobytes()


def _flat(tensor):
    """All elements as a vector in the same memory; Uncovered where that cannot be."""
    try:
        return tensor.detach().view(-1)
    except RuntimeError:
        raise Uncovered("a tensor that is sparse, or strided") from None


class Uncovered(Exception):
    """Why a call is not verified."""


def _one(tensors):
    (tensor,) = tensors if isinstance(tensors, (list, tuple)) else (tensors,)
    return tensor


# ---- what each method moves ----------------------------------------------------------------------
# (group, number of the call, arguments of the method) -> the call, before it is made.


def _moved(state, kind, number, sends, receives, width):
    """sends, receives: {member: tensor}. A member's copy of its own is not read again."""
    call = Call(state, kind, number, width)
    most = max((each.numel() for each in [*sends.values(), *receives.values()]), default=0)
    words = max(1, width // 4)
    if most * words > _WORDS_MAX // state.members**2:
        raise Uncovered("transfers too large for groups of this size")
    call.count = most
    call.outgoing = _digests(state, sends)
    call.sent = _core.guard_transfer_sum(call.outgoing, state.member, True)

    def read():
        call.incoming = _digests(state, receives)
        if state.member in sends and state.member not in receives:
            begin = state.member * digests.BYTES
            own = call.outgoing[begin : begin + digests.BYTES]
            call.incoming = call.incoming[:begin] + own + call.incoming[begin + digests.BYTES :]
        call.received = _core.guard_transfer_sum(call.incoming, state.member, False)

    if receives:
        call.result = read
    else:
        read()
    return call


def _digests(state, tensors):
    """One digest a member; of a tensor that goes to several it is computed once."""
    unlike = list({id(each): each for each in tensors.values()}.values())
    table = digests.digest([each.detach() for each in unlike])
    place = {id(each): i * digests.BYTES for i, each in enumerate(unlike)}
    return b"".join(
        table[place[id(tensors[m])] :][: digests.BYTES] if m in tensors else _NOTHING
        for m in range(state.members)
    )


def _parts(tensor, members, sizes=()):
    """{member: its part} of a tensor that is cut along its first dimension."""
    if sizes:
        row = tensor.numel() // tensor.shape[0] if tensor.shape[0] else 0
        parts = _flat(tensor).split([size * row for size in sizes])
    else:
        parts = _flat(tensor).split(tensor.numel() // members) if tensor.numel() else []
    return dict(enumerate(parts))


def _broadcast(state, number, tensors, options):
    tensor, root = _one(tensors), options.rootRank
    everyone = dict.fromkeys(range(state.members), tensor)
    if state.member == root:
        return _moved(state, BROADCAST, number, everyone, {}, tensor.element_size())
    return _moved(state, BROADCAST, number, {}, {root: tensor}, tensor.element_size())


def _all_gather(state, number, outputs, inputs, options=None):
    tensor = _one(inputs)
    everyone = dict.fromkeys(range(state.members), tensor)
    return _moved(state, ALL_GATHER, number, everyone, dict(enumerate(_one(outputs))),
                  tensor.element_size())  # fmt: skip


def _all_gather_single(state, number, output, tensor, options=None):
    everyone = dict.fromkeys(range(state.members), tensor)
    return _moved(state, ALL_GATHER, number, everyone, _parts(output, state.members),
                  tensor.element_size())  # fmt: skip


def _all_to_all(state, number, outputs, inputs, options=None):
    return _moved(state, ALL_TO_ALL, number, dict(enumerate(inputs)), dict(enumerate(outputs)),
                  inputs[0].element_size())  # fmt: skip


def _all_to_all_single(state, number, output, tensor, output_sizes, sizes, options=None):
    return _moved(
        state, ALL_TO_ALL, number, _parts(tensor, state.members, sizes),
        _parts(output, state.members, output_sizes), tensor.element_size(),
    )  # fmt: skip


def _gather(state, number, outputs, inputs, options):
    tensor, root = _one(inputs), options.rootRank
    receives = dict(enumerate(_one(outputs))) if state.member == root else {}
    return _moved(state, GATHER, number, {root: tensor}, receives, tensor.element_size())


def _scatter(state, number, outputs, inputs, options):
    tensor, root = _one(outputs), options.rootRank
    sends = dict(enumerate(_one(inputs))) if state.member == root else {}
    return _moved(state, SCATTER, number, sends, {root: tensor}, tensor.element_size())


def _message(state, kind, tensors, source, target, tag):
    channel = (tag, source, target)
    number = state.messages[channel] = state.messages.get(channel, 0) + 1
    tensor = _one(tensors)
    call = Call(state, kind, number, tensor.element_size())
    call.key = number_of(state.key, tag)
    call.source, call.target, call.count = source, target, tensor.numel()
    if kind == SEND:
        call.sent = digests.digest([tensor.detach()])
        return call

    def read():
        call.received = digests.digest([tensor.detach()])

    call.result = read
    return call


def _send(state, tensors, target, tag=0):
    return _message(state, SEND, tensors, state.member, target, tag)


def _receive(state, tensors, source, tag=0):
    return _message(state, RECEIVE, tensors, source, state.member, tag)


def _reduced(state, kind, number, inputs, result, options, ring):
    """inputs: of a reduce-scatter a part for each member, else one tensor."""
    call = Call(state, kind, number, result.element_size())
    call.count = sum(each.numel() for each in inputs)
    operation = next((n for n, name in enumerate(_OPERATIONS)
                      if options.reduceOp == getattr(_reduce_op(), name)), len(_OPERATIONS))
    name = str(result.dtype).removeprefix("torch.")
    call.source = options.rootRank if kind == REDUCE else number % state.members
    call.dtype = _core.guard_reduction_known(name, operation)
    if call.dtype:
        call.operation, call.ring = operation, ring
        call.like = result.numel(), result.dtype, result.device
        call.adds_floats = operation < _OPERATIONS.index("MIN") and result.is_floating_point()
        call.inputs = inputs
        _choose_slice(call, state, inputs, result)

    def read():
        if kind == ALL_REDUCE:
            call.received = digests.digest([result.detach()])
        if call.result_slice is not None:
            call.slices += (call.result_slice.clone(),)
        if call.whole is not None:
            call.whole.keep_result(call, result)

    if kind != REDUCE or state.member == call.source:
        call.result = read
    return call


def _reduce_op():
    return sys.modules["torch"].distributed.ReduceOp


def _choose_slice(call, state, inputs, result):
    """A slice of each input, the same on all ranks, where no fault expects it."""
    position = state.calls - state.before
    call.first, call.length = _core.guard_reduction_slice(
        state.key, state.step, position, result.numel()
    )

    def cut(tensor):
        return _flat(tensor)[call.first : call.first + call.length]

    call.slices = tuple(cut(each).clone() for each in inputs)
    if call.kind == REDUCE_SCATTER or state.member == call.source:
        call.result_slice = cut(result)


def _all_reduce(state, number, tensors, options, ring):
    tensor = _one(tensors)
    return _reduced(state, ALL_REDUCE, number, [tensor], tensor, options, ring)


def _reduce(state, number, tensors, options, ring):
    tensor = _one(tensors)
    return _reduced(state, REDUCE, number, [tensor], tensor, options, ring)


def _reduce_scatter(state, number, outputs, inputs, options, ring):
    """A list of inputs is not added up in the order of the ring."""
    inputs, output = list(_one(inputs)), _one(outputs)
    if len({each.numel() for each in [*inputs, output]}) > 1:
        raise Uncovered("a reduce-scatter of unequal parts")
    return _reduced(state, REDUCE_SCATTER, number, inputs, output, options, 0)


def _reduce_scatter_single(state, number, output, tensor, options, ring):
    inputs = list(_flat(tensor).split(output.numel())) if output.numel() else [tensor]
    return _reduced(state, REDUCE_SCATTER, number, inputs, output, options, ring)


COLLECTIVES = {
    "broadcast": _broadcast, "allgather": _all_gather, "all_gather_single": _all_gather_single,
    "_allgather_base": _all_gather_single, "alltoall": _all_to_all,
    "all_to_all_single": _all_to_all_single, "alltoall_base": _all_to_all_single,
    "gather": _gather, "scatter": _scatter,
}  # fmt: skip
REDUCTIONS = {
    "allreduce": _all_reduce, "reduce": _reduce, "reduce_scatter": _reduce_scatter,
    "reduce_scatter_single": _reduce_scatter_single,
    "_reduce_scatter_base": _reduce_scatter_single,
}  # fmt: skip
MESSAGES = {"send": _send, "recv": _receive}
ANY = "recv_anysource"
