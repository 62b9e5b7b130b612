"""What one rank saw when it compared digests of the same tensors, told to all ranks."""

import struct

from tocsin import _core
from tocsin.guard import digests

_ROW = struct.Struct("=QQqq")
_NOTHING = bytes(digests.BYTES)


class Comparison:
    """Of one check, in one step: how much was compared, and the first difference."""

    def __init__(self, guard, check):
        self.guard, self.check = guard, check
        self.failed = False  # in this step, on some rank
        self.total = 0  # compared in all steps
        self.clear()

    def clear(self):
        self.compared = self.differ = 0
        self.name, self.word = "", -1
        self.expected = self.seen = _NOTHING

    def add(self, expected, seen, name, tensor):
        """Digests of `tensor` as it was and as it is. name() is called when they differ."""
        self.compared += 1
        if expected == seen:
            return
        self.differ += 1
        if self.differ == 1:
            words = tensor.numel() * max(1, tensor.element_size() // 4)
            self.name, self.expected, self.seen = name(), expected, seen
            found = _core.digest_locate(expected, seen, words)
            self.word = -1 if found is None else found[0]

    def findings(self, deterministic=False):
        """All ranks tell what they saw, and are judged."""
        guard = self.guard
        row = _ROW.pack(self.compared, self.differ, guard.rank if self.differ else -1, self.word)
        row += self.expected + self.seen
        said = guard.exchange.gather_objects([row.hex(), self.name])
        self.total += self.compared
        self.clear()
        finding = _core.guard_comparison(
            self.check, b"".join(bytes.fromhex(each[0]) for each in said), step=guard.step_number,
            passed=guard.passed_step(self.check), names=[each[1] for each in said],
            named=guard.named_before(self.check), deterministic=deterministic,
        )  # fmt: skip
        self.failed = finding is not None
        return [finding] if finding else []

    def end_step(self):
        """No finding was made: the step passed."""
        if not self.failed:
            self.guard.passed[self.check] = self.guard.step_number
        self.failed = False
        self.total += self.compared
        self.clear()
