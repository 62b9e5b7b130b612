"""Check 3: replicas hold the same weights and optimizer state after each update.

Who has a copy of a tensor follows from how the model is distributed: all ranks of a
DistributedDataParallel's group, the replicated dimensions of a distributed tensor's mesh, or the
mesh that the guard was given. Buffers are left out: those of BatchNorm differ between healthy ranks
until the next forward pass.

A step costs one read of the tensors and one message of a few bytes: a hash of all digests a set of
replicas. The digests themselves travel when these differ.
"""

import hashlib
import math
import struct
import sys

from tocsin import _core
from tocsin.guard import digests
from tocsin.guard.gradient_check import averaged_parameters, find_ddp, unravel

_SETS_MAX = 8  # sets of replicas that a rank is in
_HASH = 16
_ROW = 8 + 2 * _HASH  # of a set: its ranks, names, digests


class _Copies:
    """Tensors of which the same ranks have copies."""

    def __init__(self, ranks):
        self.ranks = ranks
        self.names, self.tensors = [], []
        self.table = b""

    def key(self):
        return _hash(",".join(map(str, self.ranks)).encode())[:8]

    def row(self):
        return self.key() + _hash("\n".join(self.names).encode()) + _hash(self.table)


def _hash(data):
    return hashlib.blake2b(data, digest_size=_HASH).digest()


class WeightCheck:
    def __init__(self, guard):
        self.guard = guard
        self.voted = []  # (name, local tensor, digest) of the last pass
        self.replicas = 1  # the fewest that any tensor was voted among
        self.uncovered = []  # names of tensors that no other rank has, as far as is known
        self.bytes = 0  # hashed at a time
        self._unshared = set()  # names that not all replicas have
        self._ddp = find_ddp(guard.model)
        self._averaged = averaged_parameters(self._ddp)

    # ---- which tensors, whose copies ------------------------------------------------------------

    def _replicas_of(self, tensor):
        """The ranks that have a copy of what this rank holds, itself too; None: unknown."""
        distributed = sys.modules["torch"].distributed
        if hasattr(tensor, "_local_tensor"):
            return _replicas_in_mesh(tensor.device_mesh, tensor.placements, self.guard.rank)
        if id(tensor) in self._averaged:
            return tuple(distributed.get_process_group_ranks(self._ddp.process_group))
        if self.guard.mesh is not None:
            return tuple(sorted(self.guard.mesh.mesh.flatten().tolist()))
        return None

    def named_tensors(self):
        """(name, tensor, parameter) of all parameters and their optimizers' states."""
        for name, parameter in self.guard.named_parameters():
            yield name, parameter, parameter
            for optimizer in self.guard.optimizers:
                state = dict.get(optimizer.state, parameter) or {}
                for key in sorted(state, key=str):
                    if hasattr(state[key], "element_size"):
                        yield f"{name}#{key}", state[key], parameter

    def collect(self):
        """Tensors by their replicas; hashes nothing."""
        sets, self.uncovered = {}, []
        for name, tensor, parameter in self.named_tensors():
            if name in self._unshared:
                self.uncovered.append(name)
                continue
            owner = tensor if hasattr(tensor, "_local_tensor") else parameter
            ranks = self._replicas_of(owner)
            if ranks is None or len(ranks) < 2 or len(sets) >= _SETS_MAX and ranks not in sets:
                self.uncovered.append(name)
                continue
            copies = sets.setdefault(ranks, _Copies(ranks))
            copies.names.append(name)
            copies.tensors.append(digests.local_part(tensor))
        return [sets[ranks] for ranks in sorted(sets)]

    # ---- the check ------------------------------------------------------------------------------

    def after_update(self):
        return self.run(self.guard.step_number)

    def run(self, step=None):
        """Compare with all replicas, now: after `step`, by default the last that is finished.
        Findings: the same on every rank."""
        if step is None:
            step = self.guard.step_count
            self.guard.look_again()
        sets = self.collect()
        names = [name for copies in sets for name in copies.names]
        tensors = [tensor for copies in sets for tensor in copies.tensors]
        self.bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        table = digests.digest(tensors)
        begin = 0
        for copies in sets:
            end = begin + len(copies.names) * digests.BYTES
            copies.table = table[begin:end]
            begin = end
        self.replicas = min((len(copies.ranks) for copies in sets), default=1)
        findings = self._compare(sets, step)
        if not findings:
            width = digests.BYTES
            self.voted = [
                (name, tensor, table[i * width : (i + 1) * width])
                for i, (name, tensor) in enumerate(zip(names, tensors))
            ]
            self.guard.passed["weights"] = step
        return findings

    def _compare(self, sets, step):
        exchange = self.guard.exchange
        if exchange.world == 1:
            return []
        row = b"".join(copies.row() for copies in sets)
        rows = exchange.gather(row.ljust(_SETS_MAX * _ROW, b"\0"))
        if _agree(rows):
            return []
        mine = {
            ",".join(map(str, copies.ranks)):
                [copies.names, copies.table.hex(),
                 [[list(each.shape), each.element_size()] for each in copies.tensors]]
            for copies in sets
        }  # fmt: skip
        return self._vote(exchange.gather_objects(mine), step)

    def _vote(self, tables, step):
        """tables[rank]: {ranks: [names, digests, shapes]}."""
        findings = []
        for key in sorted({key for table in tables for key in table}):
            ranks = [int(rank) for rank in key.split(",")]
            if not all(key in tables[rank] for rank in ranks):
                continue
            names, rows = self._shared([tables[rank][key] for rank in ranks])
            finding = _core.guard_vote(
                rows, step=step, passed=self.guard.passed_step("weights"),
                names=names, ranks=ranks, named=self.guard.named_before("weights"), check="weights",
            )  # fmt: skip
            if finding is not None:
                layouts = dict(zip(tables[ranks[0]][key][0], tables[ranks[0]][key][2]))
                findings.append(_located(finding, layouts))
        return findings

    def _shared(self, tables):
        """The names that all replicas have, and the digests of each."""
        width = digests.BYTES
        everywhere = set.intersection(*(set(names) for names, *_ in tables))
        self._unshared.update(set().union(*(names for names, *_ in tables)) - everywhere)
        kept = [name for name in tables[0][0] if name in everywhere]
        rows = []
        for names, text, _ in tables:
            table = bytes.fromhex(text)
            place = {name: i * width for i, name in enumerate(names)}
            rows.append(b"".join(table[place[name] : place[name] + width] for name in kept))
        return kept, rows

    def close(self):
        self.voted = []


def _located(finding, layouts):
    """With the one element in which the first tensor differs, if it is one, and its bits."""
    first = finding["evidence"].get("first", [])
    if not first or first[0]["tensor"] not in layouts:
        return finding
    most, unlike = (bytes.fromhex(first[0][key]) for key in ("most", "unlike"))
    most, unlike = (struct.pack("=3Q", *struct.unpack(">3Q", each)) for each in (most, unlike))
    shape, size = layouts[first[0]["tensor"]]
    words = max(size // 4, 1)  # of an element
    found = _core.digest_locate(most, unlike, math.prod(shape) * words)
    if found is not None:
        word, delta, set_bits, cleared = found
        finding["index"] = unravel(word // words, shape)
        finding["text"] += f", element {finding['index']}"
        first[0]["word"] = {"in_element": word % words, "delta": delta, "set": set_bits,
                            "cleared": cleared}  # fmt: skip
    return finding


def _agree(rows):
    """Do all ranks say the same of each set that they are in?"""
    said = {}
    for row in rows:
        for begin in range(0, len(row), _ROW):
            entry = row[begin : begin + _ROW]
            if said.setdefault(entry[:8], entry) != entry:
                return False
    return True


def _replicas_in_mesh(mesh, placements, rank):
    """The ranks of a mesh that hold what this one holds."""
    if any(each.is_partial() for each in placements):
        return None
    ranks = mesh.mesh
    place = (ranks == rank).nonzero()
    if len(place) != 1:
        return None
    at = tuple(slice(None) if each.is_replicate() else int(i)
               for each, i in zip(placements, place[0]))  # fmt: skip
    return tuple(sorted(ranks[at].flatten().tolist()))
