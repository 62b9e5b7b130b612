"""Edits of a plan in memory (bench/plans/plan_objects.py): find operators by label, replace,
insert, remove, rewire. What mutations and refactorings are made of."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "bench/plans"), str(ROOT / "tests/ref")]

from plan_objects import Group, Op, Role, Value  # noqa: E402

ONE, ALL = "one", "all"  # which tensor-parallel ranks an edit touches
PASSING = {"add", "sub", "neg", "scale", "view", "permute", "slice", "cat", "expand", "identity",
           "sum", "mean", "accumulate", "all_reduce", "all_gather", "cast", "reduce_scatter",
           "recv"}  # fmt: skip
CONTRACTIONS = {"linear", "matmul", "mm", "embedding_backward"}


class Site:
    """An operator where it stands."""

    def __init__(self, plan, role, segment, op):
        self.plan, self.role, self.segment, self.op = plan, role, segment, op

    @property
    def ops(self):
        return self.role.segments[self.segment]

    @property
    def index(self):
        return next(k for k, op in enumerate(self.ops) if op is self.op)

    @property
    def tp(self):
        return self.role.coordinates.get("tp", 0)

    def fresh(self, like, suffix, shape=None):
        taken = {value.name for op in self.role.ops() for value in op.outputs}
        name = f"{like.name}.{suffix}"
        while name in taken:
            name += "x"
        return Value(name, like.dtype, shape or like.shape)

    def insert(self, offset, name, inputs, like, suffix, shape=None, attrs=None, group="",
               label=""):  # fmt: skip
        """A new operator `offset` places after this one; its output."""
        value = self.fresh(like, suffix, shape)
        op = Op(name, inputs, [value], attrs, self.op.phase, self.op.fqn, self.op.source,
                label or f"{self.op.label}.{suffix}", group)  # fmt: skip
        self.ops.insert(self.index + offset, op)
        return value

    def before(self, name, inputs, like, suffix, **more):
        return self.insert(0, name, inputs, like, suffix, **more)

    def turn_into(self, name, inputs=None, attrs=None, group=""):
        op = self.op
        op.name, op.attrs, op.group = name, dict(attrs or {}), group
        if inputs is not None:
            op.inputs = list(inputs)

    def remove(self):
        """Take the operator out; its readers read its first input."""
        self.replace_uses(self.op.outputs[0], self.op.inputs[0])
        self.ops.remove(self.op)

    def replace_uses(self, old, new, after=None):
        """Everyone (after operator `after` of this segment) who reads `old` reads `new`."""
        for ops in self.role.segments.values():
            first = ops.index(after) + 1 if after in ops else 0
            for op in ops[first:]:
                op.inputs = [new if value is old else value for value in op.inputs]
        for output in self.role.outputs:
            if output.value is old:
                output.value = new

    def value(self, label):
        """The output of this role's operator of that label."""
        return next(op for op in self.role.ops() if op.label == label).outputs[0]


def sites(plan, label, ranks=ALL, phase=""):
    """Where the operator of that label stands: on tp rank 0 alone (of cp rank 0), or on all."""
    found = []
    for role in plan.roles:
        where = role.coordinates
        if ranks == ONE and (where.get("tp", 0) or where.get("cp", 0)):
            continue
        for segment, ops in role.segments.items():
            found += [Site(plan, role, segment, op) for op in ops
                      if op.label == label and op.phase.startswith(phase)]  # fmt: skip
    if not found:
        raise LookupError(f"no operator {label}")
    return found


def add_group(plan, like, name, members):
    """A group of other members than group `like`; its name."""
    full = f"{like}.{name}"
    plan.groups.setdefault(full, Group(full, members))
    return full


def around(plan, label):
    """Who may be named when a collective is missing or wrong: the operator itself, the contraction
    that made the partial sum and the sums in between, who reads the value, and the first operator
    in program order behind it that is nonlinear or a contraction, also beyond a pipeline send."""
    names = {label}
    for role in plan.roles:
        for ops in role.segments.values():
            for position, op in enumerate(ops):
                if op.label == label:
                    names |= makers(list(role.ops()), op) | readers(plan, label)
                    names |= first_demand(plan, role, ops[position + 1 :], set(op.outputs))
    return names


def makers(ops, op):
    """The producers of the operator's inputs, back to contractions."""
    names, wanted = set(), set(op.inputs)
    for other in reversed(ops):
        if wanted & set(other.outputs):
            names.add(other.label)
            if other.name in PASSING:
                wanted |= set(other.inputs)
    return names


def readers(plan, label):
    """Who reads the value, also through operators that only a parallel plan has."""
    names = set()
    for role in plan.roles:
        wanted = {value for op in role.ops() if op.label == label for value in op.outputs}
        for op in role.ops():
            if wanted & set(op.inputs):
                names.add(op.label)
                if op.group or op.name in ("send", "recv", "identity"):
                    wanted |= set(op.outputs)
    return names


def first_demand(plan, role, ops, tainted):
    """The first contraction and the first nonlinear operator that the values reach."""
    names, contracted = set(), False
    for op in ops:
        count = sum(value in tainted for value in op.inputs)
        if not count:
            continue
        if op.name == "send":
            there = {**role.coordinates, "pp": role.coordinates["pp"] + (1 if op.phase == "fw"
                                                                         else -1)}  # fmt: skip
            peer = next(other for other in plan.roles if other.coordinates == there)
            received = next(o for o in peer.segments[op.phase] if o.name == "recv"
                            and o.attrs["tag"] == op.attrs["tag"])  # fmt: skip
            names |= first_demand(plan, peer, peer.segments[op.phase], set(received.outputs))
        elif op.name in PASSING or op.name == "mul" and count == 1:
            tainted |= set(op.outputs)
        elif op.name in CONTRACTIONS and not contracted:
            names.add(op.label)
            contracted = True
            tainted |= set(op.outputs)
        elif op.name not in CONTRACTIONS:
            return names | {op.label}
    return names


def split_replicas(plan, parts):
    """Every role as `parts` roles for equal ranges of the replicas, so that these may differ."""
    count = plan.replicas // parts
    roles = []
    for role in plan.roles:
        for part in range(parts):
            twin = Role({plan.replica_axis: (part * count, count), **role.coordinates})
            twin.inputs, twin.outputs = role.inputs, role.outputs
            twin.schedule = role.schedule
            twin.segments = {
                name: [Op(op.name, op.inputs, op.outputs, op.attrs, op.phase, op.fqn, op.source,
                          op.label, op.group, op.sig) for op in ops]
                for name, ops in role.segments.items()}  # fmt: skip
            roles.append(twin)
    plan.roles = roles
