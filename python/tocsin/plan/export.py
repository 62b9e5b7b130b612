"""Traces of single ranks, put together: a plan with roles, groups and a replica axis.

A role is what the ranks of one coordinate do, for all replicas alike. Whether they do is looked at:
replicas 0, 1 and the last are traced, their operators must be the same word for word and the
starts of their slices must lie on a line. Otherwise every replica gets a role of its own.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from . import text, trace
from .capture import ExportError


@dataclass(frozen=True)
class Mesh:
    axes: dict[str, int]
    replica: str | None  # the axis of replicas

    @property
    def replicas(self) -> int:
        return self.axes[self.replica] if self.replica else 1

    @property
    def others(self) -> list[str]:
        return [name for name in self.axes if name != self.replica]

    def devices(self):
        return itertools.product(*(range(self.axes[name]) for name in self.others))

    def rank(self, device, replica: int) -> int:
        at = dict(zip(self.others, device))
        rank = 0
        for name, size in self.axes.items():
            rank = rank * size + (replica if name == self.replica else at[name])
        return rank

    def split(self, rank: int) -> tuple[tuple[int, ...], int]:
        """Device and replica of a rank."""
        at = {}
        for name, size in reversed(self.axes.items()):
            rank, at[name] = divmod(rank, size)
        return tuple(at[name] for name in self.others), at.get(self.replica, 0)

    def device_number(self, device) -> int:
        number = 0
        for name, index in zip(self.others, device):
            number = number * self.axes[name] + index
        return number


class Groups:
    """Process groups by their members; named by the axes along which the members differ."""

    def __init__(self, mesh: Mesh):
        self.mesh = mesh
        self.names: dict[tuple, str] = {}
        self._counts: dict[str, int] = {}

    def key(self, ranks: tuple[int, ...], replica: int) -> tuple:
        """The members as a plan says them, seen from a rank of `replica`."""
        members = [self.mesh.split(rank) for rank in ranks]
        if all(r == replica for _, r in members):
            return tuple((device, None) for device, _ in members)
        replicas = self.mesh.replicas
        devices = [device for device, _ in members[:len(members) // replicas]]
        if members == [(device, r) for r in range(replicas) for device in devices]:
            return tuple((device, "all") for device in devices)
        return tuple(members)

    def name(self, key: tuple) -> str:
        if key not in self.names:
            axes = [axis for k, axis in enumerate(self.mesh.others)
                    if len({device[k] for device, _ in key}) > 1]
            if len({replica for _, replica in key}) > 1 or key[0][1] == "all":
                axes.insert(0, self.mesh.replica)
            kind = "-".join(axes) or "self"
            number = self._counts[kind] = self._counts.get(kind, -1) + 1
            self.names[key] = f"{kind}.{number}"
        return self.names[key]

    def lines(self):
        for key, name in self.names.items():
            members = []
            for device, replica in key:
                words = [f"{axis}={k}" for axis, k in zip(self.mesh.others, device)]
                if replica is not None:
                    words.append(f"{self.mesh.replica}={replica}")
                members.append("(" + " ".join(words) + ")")
            yield f"group {name} = {' '.join(members)}"


def _peers(mesh: Mesh, one: trace.Trace, replica: int) -> None:
    """Global ranks of sends and receives become devices."""
    for op in one.ops:
        if "peer" in op.attributes:
            device, other = mesh.split(op.attributes["peer"])
            if other != replica:
                raise ExportError("a rank sends to another replica, which a plan cannot say")
            op.attributes["peer"] = mesh.device_number(device)


def _body(groups: Groups, one: trace.Trace, replica: int, name) -> list[str]:
    return [text.operator(op, name(groups.key(op.group, replica)) if op.group else None)
            for op in one.ops]


def _starts(one: trace.Trace) -> list[tuple[int, ...]]:
    return [x.starts for x in one.inputs] + [x.starts for x in one.outputs]


def _ends(one: trace.Trace) -> list[tuple]:
    return [(x.name, x.value.number, x.value.shape, x.value.dtype) for x in one.inputs] + [
        (x.kind, x.name, x.value.number, x.value.shape) for x in one.outputs]


def _affine(groups: Groups, traces: dict[int, trace.Trace]):
    """The starts as (base, weight) by replica, or None when the replicas are not alike."""
    first = traces[0]
    body = _body(groups, first, 0, repr)
    for replica, one in traces.items():
        if _ends(one) != _ends(first) or _body(groups, one, replica, repr) != body:
            return None
    result = []
    for starts in zip(*(_starts(one) for one in traces.values())):
        line = []
        for per_dim in zip(*starts):
            at = dict(zip(traces, per_dim))
            weight = at[1] - at[0] if 1 in at else 0
            if any(at[r] != at[0] + weight * r for r in at):
                return None
            line.append((at[0], weight))
        result.append(tuple(line))
    return result


def _start_text(base: int, weight: int, axis: str | None) -> str:
    if weight == 0:
        return str(base)
    return f"{axis}*{weight}" if base == 0 else f"{base}+{axis}*{weight}"


def _role(mesh, groups, device, one, replica, starts, alone):
    words = [f"{axis}={k}" for axis, k in zip(mesh.others, device)]
    if alone:
        words.append(f"{mesh.replica}={replica}")
    yield " ".join(["role", *words])
    at = [[_start_text(base, weight, mesh.replica) for base, weight in line] for line in starts]
    for entry, begin in zip(one.inputs, at):
        yield (f"in {text.typed(entry.value)} = {text.word(entry.name)}"
               f"[{text.slices(begin, entry.value.shape)}]")
    yield "segment step"
    yield from _body(groups, one, replica, groups.name)
    split_data = any(weight for line in starts[:len(one.inputs)] for _, weight in line)
    fold = one.loss_fold or ("mean" if split_data or alone else "equal")
    for entry, begin in zip(one.outputs, at[len(one.inputs):]):
        line = (f"out {entry.kind} {text.word(entry.name)}"
                f"[{text.slices(begin, entry.value.shape)}] = %{entry.value.number}")
        if entry.kind == "loss" and fold != "equal" and mesh.replicas > 1:
            line += f" fold={fold},equal"
        yield line
    yield "end"


def export(script: str, build: str, arguments: dict, axes: dict[str, int] | None,
           replica: str | None) -> str:
    """The plan of the script on a mesh of these axes (None: the logical model), as text."""
    mesh = Mesh(axes or {"one": 1}, replica if axes else None)
    groups = Groups(mesh)
    roles, notes = [], set()
    for device in mesh.devices():
        replicas = sorted({0, min(1, mesh.replicas - 1), mesh.replicas - 1})

        def run(r, device=device):
            one = trace.trace_in_process(script, build, arguments, axes, mesh.rank(device, r))
            _peers(mesh, one, r)
            notes.update(one.notes)
            return one

        traces = {r: run(r) for r in replicas}
        starts = _affine(groups, traces)
        if starts is not None:
            roles += _role(mesh, groups, device, traces[0], 0, starts, False)
            continue
        for r in range(mesh.replicas):
            one = traces.get(r) or run(r)
            fixed = [tuple((n, 0) for n in line) for line in _starts(one)]
            roles += _role(mesh, groups, device, one, r, fixed, True)
    names = " ".join(f"{n}={s}{'*' if n == mesh.replica else ''}" for n, s in mesh.axes.items())
    head = ["tocsin-plan 1", f"mesh {names}", *groups.lines()]
    head += [f"assume {text.word(note)}" for note in sorted(notes)]
    return "\n".join(head + roles) + "\n"
