"""Runs plans in float64: every rank, every micro-batch, with real collectives.

An oracle for the verifier that shares nothing with it: it knows no algebra, only numbers. Each rank
is a generator that stops at a collective or a receive until its partners have arrived. A plan that
cannot run (unmatched collective, undefined value, wrong shape, deadlock) raises PlanFailure.

A plan here is any object of the shape of bench/plans/plan_objects.py.
"""

import re

import numpy as np


class PlanFailure(Exception):
    """The plan cannot be executed."""


# ---- operators -------------------------------------------------------------------------------


def slice_dim(x, dim, start, end, step=1):
    index = [slice(None)] * x.ndim
    index[dim] = slice(start, end, step)
    return x[tuple(index)]


def softmax(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def embedding_backward(gradient, ids, rows):
    table = np.zeros((rows, gradient.shape[-1]))
    np.add.at(table, ids.reshape(-1), gradient.reshape(-1, gradient.shape[-1]))
    return table


def pad(x, a):
    widths = [(0, 0)] * x.ndim
    widths[a["dim"]] = (a["before"], a["after"])
    return np.pad(x, widths)


def reduction(function):
    return lambda x, a: [function(x[0], axis=tuple(a["dims"]), keepdims=bool(a.get("keepdim")))]


def cut(x, a):
    ends = np.cumsum(a["sizes"])
    return [slice_dim(x, a["dim"], end - size, end) for size, end in zip(a["sizes"], ends)]


def top_k_mask(p, k):
    """1 for the k largest of the last dim."""
    order = np.argsort(-p, axis=-1, kind="stable")[..., :k]
    mask = np.zeros_like(p)
    np.put_along_axis(mask, order, 1.0, axis=-1)
    return mask


ELEMENTWISE = {
    "mul": np.multiply, "div": np.divide, "sub": np.subtract, "neg": np.negative,
    "reciprocal": np.reciprocal, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "exp": np.exp,
    "log": np.log, "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "abs": np.abs,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "silu": lambda x: x / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0), "maximum": np.maximum, "minimum": np.minimum,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "and": np.logical_and, "or": np.logical_or, "not": np.logical_not,
    "where": np.where, "linear": lambda x, w: x @ w.T, "mm": np.matmul, "bmm": np.matmul,
    "matmul": np.matmul, "embedding": lambda table, ids: table[ids],
}  # fmt: skip

# name: (inputs, attributes) -> outputs
OPERATORS = {
    **{name: (lambda x, a, f=function: [f(*x)]) for name, function in ELEMENTWISE.items()},
    "identity": lambda x, a: [x[0]],
    "wait": lambda x, a: [x[0]],
    "view": lambda x, a: [x[0].reshape(a["shape"])],
    "permute": lambda x, a: [x[0].transpose(a["dims"])],
    "expand": lambda x, a: [np.broadcast_to(x[0], a["shape"])],
    "slice": lambda x, a: [slice_dim(x[0], a["dim"], a["start"], a["end"], a.get("step", 1))],
    "select": lambda x, a: [np.take(x[0], a["index"], axis=a["dim"])],
    "split": lambda x, a: cut(x[0], a),
    "cat": lambda x, a: [np.concatenate(x, axis=a["dim"])],
    "stack": lambda x, a: [np.stack(x, axis=a["dim"])],
    "pad": lambda x, a: [pad(x[0], a)],
    "scale": lambda x, a: [x[0] * a["factor"]],
    "add_scalar": lambda x, a: [x[0] + a["value"]],
    "pow": lambda x, a: [x[0] ** a["exponent"]],
    "sum": reduction(np.sum),
    "mean": reduction(np.mean),
    "amax": reduction(np.max),
    "softmax": lambda x, a: [softmax(x[0], a["dim"])],
    "masked_fill": lambda x, a: [np.where(x[1], a["value"], x[0])],
    "full": lambda x, a: [np.full(a["shape"], float(a["value"]))],
    "arange": lambda x, a: [np.arange(a["start"], a["end"], a.get("step", 1))],
    "embedding_backward": lambda x, a: [embedding_backward(x[0], x[1], a["rows"])],
    "top_k_gates": lambda x, a: [x[0] * top_k_mask(x[0], a["k"])],
    "top_k_mask": lambda x, a: [top_k_mask(x[0], a["k"])],
}


def add(values, attrs):
    total = values[0]
    for value in values[1:]:
        total = total + value * attrs.get("alpha", 1)
    return [total]


def contract(op, values):
    """An operator of the user's own that is a product of its operands: by its axis signature."""
    left, right = op.sig.split("->")
    letters = {}

    def axes(text):
        words = re.search(r"\[(.*)\]", text)[1].split()
        return "".join(letters.setdefault(w.rstrip("+^"), chr(97 + len(letters))) for w in words)

    operands = ",".join(axes(part) for part in re.findall(r"\[[^\]]*\]", left))
    return [np.einsum(f"{operands}->{axes(right.split(']')[0] + ']')}", *values)]


def execute(op, values):
    if op.name == "add":
        return add(values, op.attrs)
    if op.name == "cast":
        return [values[0].astype(bool if op.outputs[0].dtype == "bool" else
                                 np.int64 if op.outputs[0].dtype.startswith("int") else
                                 np.float64)]  # fmt: skip
    if op.name == "copies":
        return [values[0]] * len(op.outputs)
    if op.name in OPERATORS:
        return OPERATORS[op.name](values, op.attrs)
    if op.sig and "linear=" in op.sig:
        return contract(op, values)
    raise PlanFailure(f"no numbers for operator {op.name}")


# ---- collectives -----------------------------------------------------------------------------


def collect(op, values):
    """What each member of the group receives; `values` in group order."""
    name, attrs, count = op.name, op.attrs, len(values)
    if name == "all_gather":
        return [np.concatenate(values, axis=attrs["dim"])] * count
    if name == "broadcast":
        return [values[attrs["root"]]] * count
    if name == "all_to_all":
        blocks = [np.split(value, count, axis=attrs["split_dim"]) for value in values]
        return [np.concatenate([block[k] for block in blocks], axis=attrs["join_dim"])
                for k in range(count)]  # fmt: skip
    if len({value.shape for value in values}) != 1:
        raise PlanFailure(f"{op.label or name}: members bring different shapes")
    kind = attrs.get("op", "sum")
    total = {"max": np.max, "min": np.min}.get(kind, np.sum)(values, axis=0)
    if kind == "avg":
        total = total / count
    if name == "all_reduce":
        return [total] * count
    return np.split(total, count, axis=attrs["dim"])


class Rank:
    """One rank's execution."""

    def __init__(self, machine, role, device, replica):
        self.machine, self.role, self.device, self.replica = machine, role, device, replica
        self.shared = {}  # values of no micro-batch: inputs, persistent ones, segments run once
        self.own = {}  # micro-batch: values
        for item in role.inputs:
            batches = range(machine.plan.microbatches) if item.each else [None]
            for batch in batches:
                self.store(item.value, batch, machine.input(item, replica, batch or 0), True)

    def store(self, value, batch, array, is_input=False):
        if tuple(array.shape) != value.shape:
            raise PlanFailure(f"%{value.name} has shape {array.shape}, declared {value.shape}")
        home = self.shared if batch is None or value.keep and not is_input else (
            self.own.setdefault(batch, {}))  # fmt: skip
        home[value.name] = array

    def load(self, value, batch):
        for home in (self.own.get(batch, {}), self.shared):
            if value.name in home:
                return home[value.name]
        raise PlanFailure(f"%{value.name} is read before it is written")

    def run(self):
        """A generator: yields whenever it waits for others."""
        turns = self.role.schedule or [(name, None) for name in self.role.segments]
        for segment, batch in turns:
            for op in self.role.segments[segment]:
                try:
                    yield from self.run_op(op, batch)
                except (ValueError, IndexError, ArithmeticError) as error:
                    raise PlanFailure(f"{op.label or op.name}: {error}") from error

    def run_op(self, op, batch):
        values = [self.load(value, batch) for value in op.inputs]
        if op.name == "accumulate":
            output = op.outputs[0]
            before = self.shared.get(output.name)
            results = [values[0] if before is None else before + values[0]]
        elif op.name == "send":
            key = (self.device, op.attrs["peer"], self.replica, op.attrs.get("tag", 0))
            self.machine.mail.setdefault(key, []).append(values[0])
            return
        elif op.name == "recv":
            key = (op.attrs["peer"], self.device, self.replica, op.attrs.get("tag", 0))
            while not self.machine.mail.get(key):
                yield op
            results = [self.machine.mail[key].pop(0)]
        elif op.group:
            results = yield from self.meet(op, values[0])
        else:
            results = execute(op, values)
        self.machine.progress += 1
        for value, array in zip(op.outputs, results):
            self.store(value, batch, array)

    def meet(self, op, value):
        members = self.machine.members(op.group, self.replica)
        me = (self.device, self.replica)
        if me not in members:
            raise PlanFailure(f"{op.label or op.name}: rank {me} is not in group {op.group}")
        count = self.machine.sequence.setdefault((me, tuple(members)), [0])
        key = (tuple(members), count[0])
        count[0] += 1
        meeting = self.machine.meetings.setdefault(key, {"op": op, "values": {}})
        first = meeting["op"]
        if (first.name, first.attrs) != (op.name, op.attrs):
            raise PlanFailure(f"{op.label} meets {first.label} in group {op.group}")
        meeting["values"][me] = value
        self.machine.progress += 1
        while len(meeting["values"]) < len(members):
            yield op
        if "results" not in meeting:
            meeting["results"] = collect(op, [meeting["values"][m] for m in members])
        return [meeting["results"][members.index(me)]]


class Machine:
    """All ranks of a plan on the logical inputs {name: array}."""

    def __init__(self, plan, inputs):
        self.plan, self.inputs = plan, inputs
        self.mail, self.sequence, self.meetings, self.progress = {}, {}, {}, 0
        self.ranks = []
        for role in plan.roles:
            device = plan.device(role.coordinates)
            first, count = role.coordinates.get(plan.replica_axis, (0, plan.replicas))
            for replica in range(first, first + count):
                self.ranks.append(Rank(self, role, device, replica))

    def input(self, item, replica, batch):
        whole = self.inputs[item.name]
        index = []
        for (base, w_replica, w_batch), length in zip(item.starts, item.value.shape):
            start = base + w_replica * replica + w_batch * batch
            index.append(slice(start, start + length))
        return whole[tuple(index)]

    def members(self, group, replica):
        result = []
        axis = self.plan.replica_axis
        everyone = range(self.plan.replicas)
        members = self.plan.groups[group].members
        replicas = everyone if any(m.get(axis) == "all" for m in members) else [replica]
        for r in replicas:
            for member in members:
                own = member.get(axis, replica)
                result.append((self.plan.device(member), r if own == "all" else own))
        return result

    def run(self):
        waiting = [rank.run() for rank in self.ranks]
        while waiting:
            before, left = self.progress, []
            for rank in waiting:
                if next(rank, None) is not None:
                    left.append(rank)
            if left and len(left) == len(waiting) and before == self.progress:
                raise PlanFailure(f"{len(left)} ranks wait for one another")
            waiting = left
        return self

    def outputs(self):
        """(kind, name, role, [(replica, micro-batch, array)], output) of every declared output."""
        for role in self.plan.roles:
            for output in role.outputs:
                copies = []
                for rank in self.ranks:
                    if rank.role is not role:
                        continue
                    batches = [k for k in rank.own if output.value.name in rank.own[k]] or [None]
                    copies += [(rank.replica, k or 0, rank.load(output.value, k)) for k in batches]
                yield role, output, copies


def folded(output, copies):
    """The copies, with those that only together are the logical value combined."""
    for symbol, fold in enumerate(output.fold):
        if fold == "equal":
            continue
        apart = {}
        for copy in copies:
            key = copy[1 - symbol]
            apart.setdefault(key, []).append(copy[2])
        combine = np.mean if fold == "mean" else np.sum
        copies = [((0, key) if symbol == 0 else (key, 0)) + (combine(values, axis=0),)
                  for key, values in apart.items()]  # fmt: skip
    return copies


def random_inputs(plan, seed=0, integers_below=8):
    """{name: array} of the logical plan's inputs, positive where a state must be."""
    generator = np.random.default_rng(seed)
    result = {}
    for role in plan.roles:
        for item in role.inputs:
            if item.value.dtype.startswith("int"):
                result[item.name] = generator.integers(0, integers_below, item.value.shape)
            else:
                array = generator.normal(size=item.value.shape)
                result[item.name] = np.abs(array) if item.name.endswith("_sq") else array
    return result


def compare(logical, parallel, inputs, tolerance=1e-9):
    """[(kind, name, coordinates, relative error)] of the parallel outputs that differ."""
    reference = {}
    for _, output, copies in Machine(logical, inputs).run().outputs():
        reference[output.kind, output.name] = copies[0][2]
    differences = []
    for role, output, copies in Machine(parallel, inputs).run().outputs():
        whole = reference[output.kind, output.name]
        for replica, batch, array in folded(output, copies):
            index = []
            for (base, w_replica, w_batch), length in zip(output.starts, output.value.shape):
                start = base + w_replica * replica + w_batch * batch
                index.append(slice(start, start + length))
            expected = whole[tuple(index)]
            if expected.shape != array.shape:
                differences.append((output.kind, output.name, role.coordinates, np.inf))
                continue
            size = np.abs(whole).max(initial=0) + 1e-300
            error = np.abs(array - expected).max(initial=0) / size
            if not error <= tolerance:
                differences.append((output.kind, output.name, role.coordinates, error))
    return differences
