"""Weights at the forward pass are those that the update left (docs/guard.md, Beyond).

Between an update and the next forward pass nothing but the program changes weights and optimizer
state. What it changes torch counts in the tensor's version, unless it goes through .data; what is
changed and not counted is a fault of the memory, or such a write.
"""

import sys

from tocsin.guard import digests
from tocsin.guard.comparison import Comparison


class _Held:
    """A tensor as the update left it."""

    __slots__ = ("name", "tensor", "version", "address", "digest")

    def __init__(self, name, tensor, digest):
        self.name, self.tensor, self.digest = name, tensor, digest
        self.version, self.address = tensor._version, tensor.data_ptr()

    def is_same(self):
        """Nothing has been written to it that torch counts, and it lies where it lay."""
        return self.tensor._version == self.version and self.tensor.data_ptr() == self.address


def _is_held(tensor):
    strided = sys.modules["torch"].strided
    return tensor.layout == strided and tensor.numel() > 0 and not tensor.is_inference()


class MemoryCheck:
    def __init__(self, guard):
        self.guard = guard
        self.comparison = Comparison(guard, "memory")
        self._held = []
        self._due = False
        self._hook = self._watch(guard.model)
        self._hold()

    def _watch(self, watched):
        """By a function, which copies of the model share: not for them."""

        def before(model, arguments):
            if model is watched:
                self._before_forward()

        return watched.register_forward_pre_hook(before)

    def _hold(self):
        """Digest everything; what the votes have digested in this step is taken from there."""
        guard = self.guard
        known = {}
        if guard.passed.get("weights") == guard.step_number:
            known = {id(tensor): digest for _, tensor, digest in guard.weight_check.voted}
        tensors = [(name, digests.local_part(tensor))
                   for name, tensor, _ in guard.weight_check.named_tensors()]  # fmt: skip
        tensors = [(name, tensor) for name, tensor in tensors if _is_held(tensor)]
        missing = [tensor for _, tensor in tensors if id(tensor) not in known]
        table = digests.digest(missing)
        for i, tensor in enumerate(missing):
            known[id(tensor)] = table[i * digests.BYTES : (i + 1) * digests.BYTES]
        self._held = [_Held(name, tensor, known[id(tensor)]) for name, tensor in tensors]
        self._due = True

    def _before_forward(self):
        torch = sys.modules["torch"]
        if self._due and not (torch.compiler.is_compiling() or self.guard.replaying):
            self._compare()

    def _compare(self):
        """Once a step, before the first forward pass."""
        self._due = False
        held = [each for each in self._held if each.is_same()]
        table = digests.digest([each.tensor for each in held])
        for i, each in enumerate(held):
            seen = table[i * digests.BYTES : (i + 1) * digests.BYTES]
            self.comparison.add(each.digest, seen, lambda each=each: each.name, each.tensor)

    def forget(self):
        """The program has changed weights through .data."""
        self._held = []

    def suspicious(self):
        return self.comparison.differ > 0

    def before_update(self):
        return self.comparison.findings()

    def after_update(self):
        self.comparison.end_step()
        self._hold()
        return []

    def close(self):
        self._hook.remove()
        self._held = []
