"""Rows of bytes between the ranks of a job, through a process group of the guard's own.

The group has its own timeout, so a rank that died holds nobody longer than that, and its own
connections, so nothing of the job's is reordered. Messages lie in host memory wherever gloo is
there; else the job's backend carries them on its device.
"""

import datetime
import hashlib
import json
import sys
import time

DESCRIPTION = "tocsin-guard"  # fault injection spares groups of this name
_LENGTH = 8  # bytes of a text's length
_LOOK = 0.01  # seconds between looks at the store: to wait in it would hold up other threads


class PeerLost(RuntimeError):
    """A rank did not answer: it died, hangs, or took another path than the others."""


class Exchange:
    """All ranks make one, and call the same methods in the same order. Without a process group it
    is a job of one rank."""

    def __init__(self, timeout=60.0):
        self.rank, self.world, self.timeout = 0, 1, timeout
        self._group = None
        self._device = "cpu"
        distributed = sys.modules.get("torch.distributed")
        if distributed is None or not distributed.is_available():
            return
        if not distributed.is_initialized():
            return
        self._distributed = distributed
        self.rank, self.world = distributed.get_rank(), distributed.get_world_size()
        if self.world > 1:
            self._group = self._new_group()

    def _new_group(self):
        distributed = self._distributed
        backend = "gloo" if distributed.is_gloo_available() else None
        if backend is None:
            self._device = sys.modules["torch"].accelerator.current_accelerator()
        timeout = datetime.timedelta(seconds=self.timeout)
        return self._carry(lambda: distributed.new_group(
            timeout=timeout, backend=backend, group_desc=DESCRIPTION
        ))  # fmt: skip

    def _carry(self, send):
        try:
            return send()
        except RuntimeError as error:  # a closed connection, or the timeout
            reason = (str(error).strip().splitlines() or [repr(error)])[0]
            raise PeerLost(f"no answer within {self.timeout:g} s: {reason}") from error

    def maximum(self, number):
        """The largest of the ranks' integers: a message of one element."""
        if self.world == 1:
            return number
        element = sys.modules["torch"].tensor([number], device=self._device)

        def send():
            operation = self._distributed.ReduceOp.MAX
            self._distributed.all_reduce(element, op=operation, group=self._group)
            return int(element.item())

        return self._carry(send)

    def gather(self, row):
        """The rows of all ranks, in order. All are equally long."""
        torch = sys.modules["torch"]
        if not row or self.world == 1:
            return [bytes(row)] * self.world
        mine = torch.frombuffer(bytearray(row), dtype=torch.uint8).to(self._device)

        def send():
            rows = [torch.empty_like(mine) for _ in range(self.world)]
            self._distributed.all_gather(rows, mine, group=self._group)
            return [each.cpu().numpy().tobytes() for each in rows]

        return self._carry(send)

    def trade(self, sends, receives):
        """[(rank, tensor)] to send, and to fill: tensors of bytes in host memory. Only the ranks of
        either end call, with the same pairs in the same order."""
        distributed = self._distributed
        receives = [pair for pair in receives if pair[1].numel()]
        sends = [(rank, each.to(self._device)) for rank, each in sends if each.numel()]
        arrived = [(rank, each.to(self._device)) for rank, each in receives]

        def send():
            pairs = [(distributed.isend, *pair) for pair in sends]
            pairs += [(distributed.irecv, *pair) for pair in arrived]
            operations = [distributed.P2POp(operation, tensor, rank, self._group)
                          for operation, rank, tensor in pairs]  # fmt: skip
            for work in distributed.batch_isend_irecv(operations) if operations else ():
                work.wait()

        self._carry(send)
        if self._device != "cpu":
            for (_, tensor), (_, there) in zip(receives, arrived, strict=True):
                tensor.copy_(there)

    def gather_bytes(self, text):
        """The bytes of all ranks in order, of any lengths."""
        longest = self.maximum(len(text))
        rows = self.gather(len(text).to_bytes(_LENGTH, "little") + text.ljust(longest))
        return [row[_LENGTH : _LENGTH + int.from_bytes(row[:_LENGTH], "little")] for row in rows]

    def gather_objects(self, value):
        """What json can write, of all ranks in order."""
        return [json.loads(text) for text in self.gather_bytes(json.dumps(value).encode())]

    def close(self):
        """Forget the group; waits for nobody."""
        self._group = None


def all_come(what, patience):
    """Do all ranks of the job ask this about `what`, a text, within so many seconds of the first?
    All that ask are given the same answer, those that come too late, too. Nobody needs to answer:
    it is asked through the job's store."""
    distributed = sys.modules["torch"].distributed
    store = distributed.distributed_c10d._get_default_store()
    key = f"{DESCRIPTION}/{hashlib.blake2b(what.encode(), digest_size=16).hexdigest()}"
    if store.add(f"{key}/come", 1) == distributed.get_world_size():
        _answer(store, key, "yes")
    end = time.monotonic() + patience
    while not store.check([f"{key}/answer"]):
        if time.monotonic() > end:
            _answer(store, key, "no")
            break
        time.sleep(_LOOK)
    return store.get(f"{key}/answer") == b"yes"


def _answer(store, key, answer):
    """Of two who answer at once, one does."""
    if store.add(f"{key}/answers", 1) == 1:
        store.set(f"{key}/answer", answer)
