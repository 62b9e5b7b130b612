"""What collectives of the job deliver (docs/guard.md, Beyond).

Python functions of torch.distributed end in methods of ProcessGroup, so these are replaced while a
guard looks: they digest what goes in before the call. What comes out is digested when the work is
waited for. Before each update the ranks put together what they have of each call, and
lib/guard judges. No message goes out in between, so the order in which ranks wait does not matter.
"""

import hashlib
import struct
import sys
import threading
import weakref

from tocsin import _core
from tocsin.guard import digests
from tocsin.guard.exchange import DESCRIPTION

_RECORD = struct.Struct("=QQ10I4Q")  # of tocsin_guard_call, less its two digests
_NOTHING = bytes(digests.BYTES)
_WORDS_MAX = 1 << 60
_SLICE = 64  # a part of so many of a reduction is recomputed
_SLICE_MIN = 1024  # elements; of less, all
_PATIENCE = 100  # steps that a call waits for the other members' word

BROADCAST, ALL_GATHER, ALL_TO_ALL, GATHER, SCATTER = range(5)
SEND, RECEIVE, RECEIVE_ANY, ALL_REDUCE, REDUCE_SCATTER = range(5, 10)
OPEN, PASSED, WANTED, FAILED, REORDERED, UNCOVERED = range(6)
_OPERATIONS = ("SUM", "AVG", "MIN", "MAX")  # as lib/guard numbers them


class _Group:
    """A process group of the job, as its members number its calls."""

    def __init__(self, group, distributed):
        self.ranks = distributed.get_process_group_ranks(group)
        self.members = len(self.ranks)
        self.member = group.rank()
        self.key = _number(group.group_name, self.ranks)
        self.watched = not group.group_desc.startswith(DESCRIPTION) and self.members > 1
        self.calls = 0
        self.messages = {}  # (tag, source, target) -> so many
        self.ring = True  # no reduction has shown another order than that of gloo's ring
        self.gloo = {}  # kind of device -> does gloo serve it?

    def is_ring(self, group, device):
        known = self.gloo.get(device.type)
        if known is None:
            known = type(group._get_backend(device)).__name__ == "ProcessGroupGloo"
            self.gloo[device.type] = known
        return known and self.ring


def _number(*what):
    """64 bits that are the same on all ranks."""
    digest = hashlib.blake2b(repr(what).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


class _Call:
    """One call, as this rank knows it."""

    age = 0
    source = target = dtype = operation = ring = count = first = length = 0
    sent = received = _NOTHING
    outgoing = incoming = None  # digests of each transfer
    slices = ()  # of a reduction: this member's, and that of the result
    result = None  # what to read when it is complete: () -> None
    result_slice = None

    def __init__(self, group, kind, number, width):
        self.group, self.kind, self.number, self.width = group, kind, number, width
        self.key = group.key

    def record(self, details):
        payload = b""
        if self.kind <= SCATTER and details:
            payload = self.outgoing + self.incoming
        elif self.kind >= ALL_REDUCE:
            payload = b"".join(map(_bytes, self.slices))
        fields = _RECORD.pack(
            self.key, self.number, self.kind, self.group.members, self.group.member, self.source,
            self.target, self.width, self.dtype, self.operation, self.ring, 0, self.count,
            self.first, self.length, len(payload),
        )  # fmt: skip
        return fields + self.sent + self.received + payload.ljust(-(-len(payload) // 8) * 8, b"\0")


def _bytes(tensor):
    torch = sys.modules["torch"]
    return tensor.cpu().view(torch.uint8).numpy().tobytes()


def _flat(tensor):
    """All elements as a vector in the same memory; RuntimeError where that cannot be."""
    return tensor.detach().view(-1)


class _Uncovered(Exception):
    """Why a call is not verified."""


def _one(tensors):
    (tensor,) = tensors if isinstance(tensors, (list, tuple)) else (tensors,)
    return tensor


# ---- what each method moves ----------------------------------------------------------------------
# (check, group, state, arguments) -> the call, before it is made; its number is counted already.


def _moved(state, kind, number, sends, receives, width):
    """sends, receives: {member: tensor}. A member's copy of its own is not read again."""
    call = _Call(state, kind, number, width)
    most = max((each.numel() for each in [*sends.values(), *receives.values()]), default=0)
    words = max(1, width // 4)
    if most * words > _WORDS_MAX // state.members**2:
        raise _Uncovered("transfers too large for groups of this size")
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
    call = _Call(state, kind, number, tensor.element_size())
    call.key = _number(state.key, tag)
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
    """inputs: of an all-reduce one tensor, of a reduce-scatter a part for each member."""
    call = _Call(state, kind, number, result.element_size())
    call.count = sum(each.numel() for each in inputs)
    operation = next((n for n, name in enumerate(_OPERATIONS)
                      if options.reduceOp == getattr(_reduce_op(), name)), len(_OPERATIONS))
    name = str(result.dtype).removeprefix("torch.")
    call.dtype = _core.guard_reduction_known(name, operation)
    if call.dtype:
        call.operation, call.ring = operation, int(ring)
        _choose_slice(call, state, inputs, result)

    def read():
        if kind == ALL_REDUCE:
            call.received = digests.digest([result.detach()])
        if call.result_slice is not None:
            call.slices += (call.result_slice.clone(),)

    call.result = read
    return call


def _reduce_op():
    return sys.modules["torch"].distributed.ReduceOp


def _choose_slice(call, state, inputs, result):
    """A slice of each input, the same on all ranks, where no fault expects it."""
    chance = _number(state.key, call.number)
    span = result.numel()
    call.source = chance % state.members
    call.length = max(min(span, _SLICE_MIN), -(-span // _SLICE))
    call.first = (chance >> 16) % (span - call.length + 1)

    def cut(tensor):
        return _flat(tensor)[call.first : call.first + call.length]

    call.slices = tuple(cut(each).clone() for each in inputs)
    if call.kind == REDUCE_SCATTER or state.member == call.source:
        call.result_slice = cut(result)


def _all_reduce(state, number, tensors, options, ring):
    tensor = _one(tensors)
    return _reduced(state, ALL_REDUCE, number, [tensor], tensor, options, ring)


def _reduce_scatter(state, number, outputs, inputs, options, ring):
    """A list of inputs is not added up in the order of the ring."""
    inputs, output = list(_one(inputs)), _one(outputs)
    if len({each.numel() for each in [*inputs, output]}) > 1:
        raise _Uncovered("a reduce-scatter of unequal parts")
    return _reduced(state, REDUCE_SCATTER, number, inputs, output, options, False)


def _reduce_scatter_single(state, number, output, tensor, options, ring):
    inputs = list(_flat(tensor).split(output.numel())) if output.numel() else [tensor]
    return _reduced(state, REDUCE_SCATTER, number, inputs, output, options, ring)


_COLLECTIVES = {
    "broadcast": _broadcast, "allgather": _all_gather, "all_gather_single": _all_gather_single,
    "_allgather_base": _all_gather_single, "alltoall": _all_to_all,
    "all_to_all_single": _all_to_all_single, "alltoall_base": _all_to_all_single,
    "gather": _gather, "scatter": _scatter,
}  # fmt: skip
_REDUCTIONS = {
    "allreduce": _all_reduce, "reduce_scatter": _reduce_scatter,
    "reduce_scatter_single": _reduce_scatter_single,
    "_reduce_scatter_base": _reduce_scatter_single,
}  # fmt: skip
_MESSAGES = {"send": _send, "recv": _receive}
_ANY = "recv_anysource"


# ---- torch's methods -----------------------------------------------------------------------------

_checks = []  # that look
_replaced = {}  # (class, name) -> what stood there
_open = {}  # id of a work -> (weak reference to it, calls to complete)
_lock = threading.Lock()


def _install(distributed):
    for name in [*_COLLECTIVES, *_REDUCTIONS, *_MESSAGES, _ANY]:
        original = vars(distributed.ProcessGroup).get(name)
        if original is not None:
            _replace(distributed.ProcessGroup, name, _watching(name, original))
    work = distributed.Work
    _replace(work, "wait", _waiting(work.wait))
    _replace(work, "get_future", _promising(work.get_future))


def _replace(owner, name, function):
    _replaced[owner, name] = vars(owner)[name], function
    setattr(owner, name, function)


def _restore():
    """Unless somebody else has replaced them since: then ours only pass on."""
    for (owner, name), (original, ours) in list(_replaced.items()):
        if vars(owner).get(name) is ours:
            setattr(owner, name, original)
            del _replaced[owner, name]


def _watching(name, original):
    def method(group, *arguments, **keywords):
        begun = [check.begin(group, name, arguments, keywords) for check in _checks]
        calls = [each for each in begun if each is not None]
        work = original(group, *arguments, **keywords)
        if calls:
            _follow(work, calls)
        return work

    method.__name__ = name
    return method


def _follow(work, calls):
    if work is None or calls[0][1].result is None:  # complete, or nothing comes in
        for check, call in calls:
            check.complete(call)
        return
    key = id(work)

    def forget(_):
        _open.pop(key, None)

    _open[key] = weakref.ref(work, forget), calls


def _complete(work):
    with _lock:
        entry = _open.pop(id(work), None)
    if entry is not None and entry[0]() is work:
        for check, call in entry[1]:
            check.complete(call)


def _waiting(original):
    def wait(work, *arguments, **keywords):
        result = original(work, *arguments, **keywords)
        _complete(work)
        return result

    return wait


def _promising(original):
    def get_future(work):
        future = original(work)
        if id(work) not in _open:
            return future

        def done(future):
            value = future.value()  # raises if the work failed
            _complete(work)
            return value

        return future.then(done)

    return get_future


# ---- the check -----------------------------------------------------------------------------------


class CollectiveCheck:
    def __init__(self, guard):
        self.guard = guard
        self.done = []  # calls that this rank has completed, and not all judged
        self.any = {}  # group's key and tag -> a record that says so
        self.verified = self.uncovered = 0
        self._groups = {}  # name -> _Group
        self._told = set()
        self._distributed = sys.modules["torch"].distributed
        self._digesting = threading.local()
        if guard.world_size > 1:
            if not _checks:
                _install(self._distributed)
            _checks.append(self)

    # ---- while the job runs ----

    def begin(self, group, name, arguments, keywords):
        """(self, call) for a call that is about to be made, or None."""
        if self.guard.replaying or getattr(self._digesting, "now", False):
            return None
        self._digesting.now = True
        try:
            state = self._state(group)
            if not state.watched:
                return None
            call = self._describe(group, state, name, arguments, keywords)
        except Exception as error:  # the job goes on, whatever a backend does
            self._not_covered(name, error)
            return None
        finally:
            self._digesting.now = False
        return None if call is None else (self, call)

    def _state(self, group):
        state = self._groups.get(group.group_name)
        if state is None:
            state = self._groups[group.group_name] = _Group(group, self._distributed)
        return state

    def _describe(self, group, state, name, arguments, keywords):
        torch = sys.modules["torch"]
        if name == _ANY:
            return self._any(state, *arguments, **keywords)
        with torch.no_grad():
            if name in _MESSAGES:
                return _MESSAGES[name](state, *arguments, **keywords)
            state.calls += 1
            if name in _COLLECTIVES:
                return _COLLECTIVES[name](state, state.calls, *arguments, **keywords)
            first = arguments[0]
            device = (first[0] if isinstance(first, (list, tuple)) else first).device
            ring = state.is_ring(group, device)
            return _REDUCTIONS[name](state, state.calls, *arguments, ring=ring, **keywords)

    def _any(self, state, tensors, tag=0):
        """Whose message comes is known too late to number it: no message to this rank with this
        tag is compared any more."""
        call = _Call(state, RECEIVE_ANY, 0, 1)
        call.key = _number(state.key, tag)
        call.source = call.target = state.member
        self.any[call.key] = call.record(False)
        raise _Uncovered("its sender is not known beforehand")

    def complete(self, call):
        """The work was waited for, or is complete by itself."""
        if call.result is not None:
            self._digesting.now = True
            try:
                with sys.modules["torch"].no_grad():
                    call.result()
            except Exception as error:
                self._not_covered("result", error)
                return
            finally:
                self._digesting.now = False
                call.result = call.result_slice = None
        self.done.append(call)

    def _not_covered(self, name, error):
        self.uncovered += 1
        reason = str(error).strip().split("\n")[0]
        if (name, reason) not in self._told and len(self._told) < 16:
            self._told.add((name, reason))
            print(f"tocsin: guard: {name} is not verified: {reason}", file=sys.stderr, flush=True)

    # ---- in a step ----

    def before_update(self):
        calls, self.done = self.done, []
        findings, states = [], []
        wanted = self._judge(calls, False, findings, states)
        again = [call for call, state in zip(calls, states) if state == WANTED]
        if wanted:
            self._judge(again, True, findings, [])
        for call, state in zip(calls, states):
            self.verified += state == PASSED
            self.uncovered += state == UNCOVERED
            if state == REORDERED:
                self._reordered(call.group)
            if state == OPEN:
                self._keep(call)
        if not findings:
            self.guard.passed["collective"] = self.guard.step_number
        return findings

    def _judge(self, calls, details, findings, states):
        """Appends to findings and states; returns how many calls are wanted with details."""
        guard = self.guard
        records = [call.record(details) for call in calls] + list(self.any.values())
        messages = guard.exchange.gather_bytes(b"".join(records))
        state, wanted, finding = _core.guard_calls(
            messages, own=guard.rank, count=len(records), step=guard.step_number,
            passed=guard.passed_step("collective"), named=guard.named_before("collective"),
        )  # fmt: skip
        states.extend(state)
        if finding is not None:
            findings.append(finding)
        return wanted

    def _keep(self, call):
        call.age += 1
        if call.age <= _PATIENCE:
            self.done.append(call)
        else:
            self._not_covered("a call", "not all members have waited for it")

    def _reordered(self, group):
        if group.ring:
            group.ring = False
            print("tocsin: guard: reductions are not added up in the order of gloo's ring; from "
                  "here on they are compared within a bound of rounding",
                  file=sys.stderr, flush=True)  # fmt: skip

    def close(self):
        if self in _checks:
            _checks.remove(self)
            if not _checks:
                _restore()
                _open.clear()
