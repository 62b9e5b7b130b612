"""What collectives of the job deliver (docs/guard.md, Beyond).

Python functions of torch.distributed end in methods of ProcessGroup, so these are replaced while a
guard looks: they digest what goes in before the call. What comes out is digested when the work is
waited for. Before each update the ranks put together what they have of each call, and
lib/guard judges. No message goes out in between, so the order in which ranks wait does not matter.
Of a reduction a slice is verified, in audited steps the whole (whole_reductions.py).
"""

import sys
import threading
import weakref

from tocsin import _core
from tocsin.guard import collective_calls as calls_of
from tocsin.guard import digests, whole_reductions
from tocsin.guard.collective_calls import ANY, COLLECTIVES, MESSAGES, REDUCTIONS, Call, Group
from tocsin.guard.exchange import PeerLost
from tocsin.messages import say

_PATIENCE = 100  # steps that a call waits for the other members' word


# ---- torch's methods -----------------------------------------------------------------------------

_checks = []  # that look
_replaced = {}  # (class, name) -> what stood there
_open = {}  # id of a work -> (weak reference to it, calls to complete)
_lock = threading.Lock()


def _install(distributed):
    for name in [*COLLECTIVES, *REDUCTIONS, *MESSAGES, ANY]:
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
        self.verified = self.whole = self.uncovered = 0
        self._held = 0  # bytes of reductions that are kept
        self._passed_whole = -1  # the last step in which all sums were verified whole
        self._probing = False
        self._groups = {}  # name -> Group
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
            return None  # or nothing of the job's
        if digests.is_capturing():
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
            state = self._groups[group.group_name] = Group(group, self._distributed)
        return state

    def _describe(self, group, state, name, arguments, keywords):
        torch = sys.modules["torch"]
        if name == ANY:
            return self._any(state, *arguments, **keywords)
        with torch.no_grad():
            if name in MESSAGES:
                return MESSAGES[name](state, *arguments, **keywords)
            number = state.number_call(self.guard.step_number)
            if name in COLLECTIVES:
                return COLLECTIVES[name](state, number, *arguments, **keywords)
            first = arguments[0]
            device = (first[0] if isinstance(first, (list, tuple)) else first).device
            ring = state.ring_on(group, device)
            call = REDUCTIONS[name](state, number, *arguments, ring=ring, **keywords)
            self._keep_whole(call)
            return call

    def _keep_whole(self, call):
        """In an audited step, unless a slice is all of it or it is too much."""
        inputs, call.inputs = call.inputs, None
        if not inputs or call.length == call.like[0]:
            return
        if not (self.guard.is_audited or self._probing):
            return
        size = whole_reductions.bytes_of(call)
        if self._held + size > whole_reductions.HELD_MAX:
            self._say_once("guard: a step adds up more than "
                           f"{whole_reductions.HELD_MAX >> 30} GiB a rank: of what is beyond, only "
                           "slices are verified in audited steps, too")  # fmt: skip
            return
        self._held += size
        call.whole = whole_reductions.Whole(call, inputs)

    def _any(self, state, tensors, tag=0):
        """Whose message comes is known too late to number it: no message to this rank with this
        tag is compared any more."""
        call = Call(state, calls_of.RECEIVE_ANY, 0, 1)
        call.key = calls_of.number_of(state.key, tag)
        call.source = call.target = state.member
        self.any[call.key] = call.record(False)
        raise calls_of.Uncovered("its sender is not known beforehand")

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
        self._say_once(f"guard: {name} is not verified: {reason}")

    def _say_once(self, text):
        if text not in self._told and len(self._told) < 16:
            self._told.add(text)
            say(text)

    # ---- in a step ----

    def before_update(self):
        findings, right = self._judge_all(self.guard.step_number)
        if right and self.guard.is_audited:
            self._passed_whole = self.guard.step_number
        return findings

    def audit_now(self):
        """Findings of a reduction of known numbers, verified whole, in each group in which the last
        step added up floats; None: there is none. All ranks call it."""
        step = self.guard.step_count
        groups = sorted((each for each in self._groups.values() if each.reduced_in == step > 0),
                        key=lambda group: group.order)  # fmt: skip
        self._probing = True
        try:
            probed = [whole_reductions.probe(each, self._distributed, step)
                      for each in groups]  # fmt: skip
        except RuntimeError as error:
            raise PeerLost(f"a reduction before the save failed: {error}") from error
        finally:
            self._probing = False
        findings, _ = self._judge_all(step)
        return findings if self.guard.exchange.maximum(sum(probed)) else None

    def _judge_all(self, step):
        """Findings about all calls that all members have completed; is each element of each sum
        known to be right?"""
        calls, self.done = self.done, []
        findings = []
        states, wanted, partial = self._judge(calls, step, False, findings)
        if wanted:
            again = [n for n, state in enumerate(states)
                     if state in (calls_of.WANTED, calls_of.WHOLE)]  # fmt: skip
            whole = [calls[n] for n in again if states[n] == calls_of.WHOLE]
            for call in sorted(whole, key=lambda call: (call.group.order, call.number)):
                whole_reductions.verify(call, self.guard.exchange)
            details, _, _ = self._judge([calls[n] for n in again], step, True, findings)
            for n, state in zip(again, details):
                states[n] = state
        for call, state in zip(calls, states):
            self._settle(call, state, step)
        self._held = sum(whole_reductions.bytes_of(call) for call in self.done
                         if call.whole is not None)  # fmt: skip
        if not findings:
            self.guard.passed["collective"] = step
        return findings, not partial and not findings

    def _settle(self, call, state, step):
        """What follows from the verdict on a call."""
        if state == calls_of.PASSED:
            self.verified += 1
            self.whole += call.found is not None
            call.group.passed(call, step)
        self.uncovered += state == calls_of.UNCOVERED
        if state == calls_of.REORDERED:
            self._reordered(call.group)
        if state == calls_of.OPEN:
            self._keep(call)

    def _judge(self, calls, step, details, findings):
        """(states, how many calls are wanted with details, how many sums are known in a slice
        only); appends to findings."""
        guard = self.guard
        records = [call.record(details) for call in calls] + list(self.any.values())
        messages = guard.exchange.gather_bytes(b"".join(records))
        states, wanted, partial, finding = _core.guard_calls(
            messages, own=guard.rank, count=len(records), step=step,
            passed=guard.passed_step("collective"), passed_whole=self._passed_whole,
            named=guard.named_before("collective"),
        )  # fmt: skip
        if finding is not None:
            findings.append(finding)
        return list(states), wanted, partial

    def _keep(self, call):
        call.age += 1
        if call.age <= _PATIENCE:
            self.done.append(call)
        else:
            self._not_covered("a call", "not all members have waited for it")

    def _reordered(self, group):
        if group.ring:
            group.ring = 0
            say("guard: reductions are not added up in the order of gloo's ring; from here on "
                "they are compared within a bound of rounding")  # fmt: skip

    def close(self):
        if self in _checks:
            _checks.remove(self)
            if not _checks:
                _restore()
                _open.clear()
