"""Check 1: the gradients of each rank before they are averaged, and of all before the update.

Where local gradients are seen:
    bucket     in DistributedDataParallel's communication hook, a bucket at once; the hook then does
               what the reducer does without one: multiply by 1 / ranks, add up
    parameter  as each is accumulated, where the hook would be in the way
    step       at the step: one rank, or gradients that are reduced before anyone sees them
"""

import functools
import math
import struct
import sys
import weakref

from tocsin import _core, buckets
from tocsin.guard import digests
from tocsin.guard.unseen import Unseen

ROW = struct.Struct("=QQQqqqddQ")  # tocsin_guard_gradient_row
_NORM, _NORM_REPLICATED = 1, 2


def find_ddp(model):
    """The DistributedDataParallel that is the model, or in it; None."""
    distributed = sys.modules.get("torch.nn.parallel.distributed")
    if distributed is None:
        return None
    wrapper = distributed.DistributedDataParallel
    return next((module for module in model.modules() if isinstance(module, wrapper)), None)


def averaged_parameters(ddp):
    """The ids of the parameters that all ranks of a DistributedDataParallel keep alike."""
    if ddp is None:
        return set()
    named = ddp.module.named_parameters(remove_duplicate=False)
    return {id(each) for name, each in named if name not in ddp.parameters_to_ignore}


def plain_name(name):
    """A parameter's name without what torch.compile and DistributedDataParallel put into it."""
    name = name.replace("_orig_mod.", "")
    while name.startswith("module."):
        name = name[len("module.") :]
    return name


class _Seen:
    """What is bad in this rank's gradients, by the bucket or parameter that it was seen in. One
    that is seen anew is judged anew: gradients add up, or were dropped."""

    def __init__(self):
        self.bad = {}  # key -> (bucket, [(parameter, nan, inf, large, first element)])

    def put(self, key, found, bucket=-1):
        if found:
            self.bad[key] = (bucket, found)
        else:
            self.bad.pop(key, None)

    def only_buckets(self, count):
        """There are no more: they were cut anew."""
        for bucket in [key for key in self.bad if key >= count]:
            del self.bad[bucket]

    def counts(self):
        """(nan, inf, large)"""
        found = [each for _, bad in self.bad.values() for each in bad]
        return tuple(sum(each[i] for each in found) for i in (1, 2, 3))

    def first(self):
        """(bucket, parameter, element) of the first NaN or Inf, or (-1, -1, -1)."""
        for key in sorted(self.bad):
            bucket, found = self.bad[key]
            for parameter, _, _, _, element in found:
                if element >= 0:
                    return bucket, parameter, element
        return -1, -1, -1


class GradientCheck:
    def __init__(self, guard):
        self.guard = guard
        self.skips = 0  # steps in a row that the scaler skipped
        self._seen = _Seen()
        self._names, self._numbers = [], {}
        self._handles = []
        self._ddp = find_ddp(guard.model)
        self._averaged = averaged_parameters(self._ddp)
        self.place = self._choose()
        self._learn()
        if self.place == "bucket" and not _watch_buckets(self._ddp, self):
            self.place = "parameter"
        if self.place == "parameter":
            self._handles = [each.register_post_accumulate_grad_hook(self._accumulated)
                             for each in self.guard.model.parameters()
                             if each.requires_grad]  # fmt: skip

    def _choose(self):
        ranks = self.guard.world_size
        if ranks == 1:
            return "step"
        if self._ddp is None:
            sharded = any(hasattr(each, "_local_tensor") for each in self.guard.model.parameters())
            return "step" if sharded else "parameter"
        # In place in a bucket the reducer divides, where it copies it multiplies: the same bits
        # only for powers of two.
        alike = not self._ddp.gradient_as_bucket_view or ranks & (ranks - 1) == 0
        mixed = getattr(self._ddp, "mixed_precision", None) is not None
        python = getattr(self._ddp, "_use_python_reducer", False)  # of compiled autograd
        return "bucket" if alike and not mixed and not python else "parameter"

    def _learn(self):
        """Number the parameters, those that came later, too."""
        for name, parameter in self.guard.named_parameters():
            if id(parameter) not in self._numbers:
                self._numbers[id(parameter)] = len(self._names)
                self._names.append(name)

    def _number(self, parameter):
        return self._numbers.get(id(parameter), -1)

    # ---- local gradients ----------------------------------------------------------------------

    def scan_bucket(self, bucket):
        buffer = bucket.buffer()
        if bucket.is_last():
            self._seen.only_buckets(bucket.index() + 1)
        if not self._scan([buffer])[1]:
            self._seen.put(bucket.index(), [])
            return
        numbers = [self._number(each) for each in bucket.parameters()]
        bad = self._scan([buffer] if buffer.is_sparse else bucket.gradients())[1]
        self._seen.put(bucket.index(), _numbered(bad, numbers), bucket.index())

    def _accumulated(self, parameter):
        if self.guard.replaying or parameter.grad is None:
            return
        with Unseen():
            number = self._number(parameter)
            self._seen.put(number, _numbered(self._scan([parameter.grad])[1], [number]))

    def _scan(self, gradients):
        """(sum of squares, what is bad)."""
        ranks = self.guard.world_size
        return digests.read(gradients, lambda plain: _core.scan_gradients(plain, ranks))[1:]

    # ---- before the update --------------------------------------------------------------------

    def evidence(self):
        """(is something bad, the row of this rank, the name and shape of the first bad
        gradient)."""
        self._learn()
        norm = self.norm = self._norm()
        guard, seen = self.guard, self._seen
        nan, inf, large = seen.counts()
        bucket, parameter, element = seen.first()
        bad = nan + inf > 0 or not math.isfinite(norm)
        scaler = guard.scaler
        scale = float(scaler.get_scale()) if scaler is not None and scaler.is_enabled() else 0.0
        located = parameter >= 0
        row = ROW.pack(nan, inf, large, bucket, guard.rank if located else -1, element, norm, scale,
                       _NORM | (_NORM_REPLICATED if self._is_replicated() else 0))  # fmt: skip
        name = self._names[parameter] if located else ""
        return bad, row, name, self._shape(name)

    def _is_replicated(self):
        """Does the norm have the same bits on every healthy rank?"""
        if self._ddp is None or self._ddp.process_group.size() != self.guard.world_size:
            return False
        return all(each.grad is None or id(each) in self._averaged
                   for _, each in self.guard.named_parameters())  # fmt: skip

    def _shape(self, name):
        found = (each for other, each in self.guard.named_parameters() if other == name)
        parameter = next(found, None) if name else None
        return [] if parameter is None else list(digests.local_part(parameter).shape)

    def _norm(self):
        """Of the gradients that the update will use; clips them where that is asked for."""
        guard = self.guard
        found = [each for _, each in guard.named_parameters() if each.grad is not None]
        squares = bad = None
        if guard.max_norm is None or self.place == "step":
            squares, bad = self._scan([each.grad for each in found])
            if self.place == "step":
                self._seen.put(0, _numbered(bad, [self._number(each) for each in found]))
        if guard.max_norm is not None and found:
            return self._clip(found)
        if bad:
            return math.nan if any(nan for _, nan, _, _, _ in bad) else _norm_of(squares, bad)
        return math.sqrt(squares or 0.0)

    def _clip(self, parameters):
        guard = self.guard
        if guard.scaler is not None:
            for optimizer in guard.optimizers:
                guard.scaler.unscale_(optimizer)
        clip = sys.modules["torch"].nn.utils.clip_grad_norm_
        norm = clip(parameters, guard.max_norm)
        return float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)

    def judge(self, rows, names, shapes):
        """(verdict, finding or None) of all ranks' rows; the same on every rank."""
        guard = self.guard
        verdict, finding = _core.guard_gradients(
            b"".join(rows), step=guard.step_number, passed=guard.passed_step("gradient"),
            names=names, skips=self.skips,
        )  # fmt: skip
        if finding is not None and finding.get("tensor"):
            shape = next(s for name, s in zip(names, shapes) if name == finding["tensor"])
            if len(finding.get("index", [])) == 1:
                finding["index"] = unravel(finding["index"][0], shape)
        return verdict, finding

    def reset(self):
        """The step is over."""
        self._seen = _Seen()

    def close(self):
        """The hook of a bucket stays: it cannot be taken away, and only adds up from here on."""
        for handle in self._handles:
            handle.remove()
        self.guard = None


class _Buckets:
    """What the reducer of a DistributedDataParallel holds: its check, by a weak reference, for the
    garbage collector cannot see what the reducer holds; and the hook that the script has registered
    since, with its state."""

    def __init__(self, check, group):
        self.check, self.group, self.theirs = weakref.ref(check), group, None


_hooked = weakref.WeakKeyDictionary()  # DistributedDataParallel -> its _Buckets


def _watch_buckets(ddp, check):
    """Make the check's hook the communication hook; False: there is one."""
    held = _Buckets(check, ddp.process_group)
    if not buckets.set_hook(ddp, held, _hook):
        return False
    if not _hooked:
        _give_way(sys.modules["torch"].nn.parallel.DistributedDataParallel)
    _hooked[ddp] = held
    return True


def _give_way(wrapper):
    """A reducer takes one hook only: one that a script registers later is called by ours."""
    original = wrapper.register_comm_hook
    if hasattr(original, "_tocsin_guard"):
        return

    @functools.wraps(original)
    def register_comm_hook(self, state, hook):
        held = _hooked.get(self)
        if held is None or held.theirs is not None:
            return original(self, state, hook)
        self._check_comm_hook(hook)
        self.logger._set_comm_hook_name(hook.__qualname__)
        self._comm_hooks.append((hook, state))
        held.theirs = hook, state
        return None

    register_comm_hook._tocsin_guard = True
    wrapper.register_comm_hook = register_comm_hook


def _numbered(bad, numbers):
    """With the numbers of parameters for those of tensors."""
    return [(numbers[tensor], *rest) for tensor, *rest in bad]


def _norm_of(squares, bad):
    return math.inf if any(inf for _, _, inf, _, _ in bad) else math.sqrt(squares)


def unravel(flat, shape):
    """The index of an element by its number in row-major order."""
    index = []
    for size in reversed(shape):
        flat, last = divmod(flat, size)
        index.append(last)
    return index[::-1]


def _hook(held, bucket):
    check = held.check()
    with Unseen():
        if check is not None and check.guard is not None:
            check.scan_bucket(bucket)
        if held.theirs is None:
            return buckets.averaged(bucket.buffer(), held.group)
    hook, state = held.theirs
    return hook(state, bucket)
