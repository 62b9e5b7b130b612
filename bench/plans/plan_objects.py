"""A parallel plan as small objects, its `.plan` text (docs/formats/plan.md) and back.

Made for programs that build and edit plans: an operator refers to its operands as objects, so an
edit is an assignment. Texts are written role by role; reading keeps everything in memory.
"""

import re

NAME = re.compile(r"[A-Za-z0-9_.\-/]+\Z")
WORD = re.compile(r"[A-Za-z0-9_.\-/:<>\[\]()+*]+\Z")
LISTS = {"dims", "shape", "sizes"}  # attributes that are lists also when they have one item
PHASES = ("fw", "bw", "opt", "re")


class Value:
    __slots__ = ("name", "dtype", "shape", "keep")

    def __init__(self, name, dtype, shape, keep=False):
        self.name, self.dtype, self.shape, self.keep = name, dtype, tuple(shape), keep

    def __repr__(self):
        return f"%{self.name}:{self.dtype}{list(self.shape)}"


class Op:
    """One operator. `group` is the name of a process group, `label` what reports call it."""

    __slots__ = ("name", "inputs", "outputs", "attrs", "phase", "fqn", "source", "label", "group",
                 "sig")  # fmt: skip

    def __init__(self, name, inputs, outputs, attrs=None, phase="", fqn="", source="", label="",
                 group="", sig=""):  # fmt: skip
        self.name, self.inputs, self.outputs = name, list(inputs), list(outputs)
        self.attrs = dict(attrs or {})
        self.phase, self.fqn, self.source, self.label = phase, fqn, source, label
        self.group, self.sig = group, sig

    def __repr__(self):
        return f"{self.label or self.name}: {self.outputs} = {self.name}({self.inputs})"


class Input:
    """value = name[start : length, ...]; a start is (base, per replica, per micro-batch)."""

    __slots__ = ("value", "each", "name", "starts")

    def __init__(self, value, name, starts, each=False):
        self.value, self.name, self.each = value, name, each
        self.starts = [tuple(start) for start in starts]


class Output:
    __slots__ = ("kind", "name", "value", "starts", "fold")

    def __init__(self, kind, name, value, starts, fold=("equal", "equal")):
        self.kind, self.name, self.value, self.fold = kind, name, value, tuple(fold)
        self.starts = [tuple(start) for start in starts]


class Role:
    """What a rank class does. `coordinates` leaves the replica axis out, or limits it to a range
    (first, count) of replicas."""

    def __init__(self, coordinates):
        self.coordinates = dict(coordinates)
        self.inputs, self.outputs = [], []
        self.segments = {}  # name: operators
        self.schedule = []  # (segment, micro-batch or None)

    def ops(self):
        for ops in self.segments.values():
            yield from ops


class Group:
    """An ordered process group: members are dicts of coordinates; the replica axis is absent (the
    caller's own replica), "all" or a number."""

    def __init__(self, name, members):
        self.name, self.members = name, [dict(member) for member in members]


class Plan:
    def __init__(self, axes, replica_axis=None, microbatches=1):
        self.axes = dict(axes)  # name: size, outermost first
        self.replica_axis, self.microbatches = replica_axis, microbatches
        self.groups, self.assumptions, self.roles = {}, [], []

    def ops(self):
        for role in self.roles:
            yield from role.ops()

    @property
    def replicas(self):
        return self.axes[self.replica_axis] if self.replica_axis else 1

    def device_axes(self):
        return [name for name in self.axes if name != self.replica_axis]

    def device(self, coordinates):
        """Row-major number of the coordinates without the replica axis."""
        number = 0
        for name in self.device_axes():
            number = number * self.axes[name] + coordinates[name]
        return number


# ---- writing ---------------------------------------------------------------------------------


def quoted(text, plain=NAME):
    if plain.match(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def number_text(value):
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, float):
        return repr(value)
    return str(value)


def attributes_text(attrs):
    items = []
    for key, value in attrs.items():
        if isinstance(value, (list, tuple)):
            items.append(f"{key}=[{','.join(map(str, value))}]")
        elif isinstance(value, str):
            items.append(f"{key}={quoted(value)}")
        else:
            items.append(f"{key}={number_text(value)}")
    return "{" + ", ".join(items) + "}"


def value_text(value):
    keep = " keep" if value.keep else ""
    return f"%{value.name}:{value.dtype}[{','.join(map(str, value.shape))}]{keep}"


def op_text(op, undefined=()):
    """The statement; values that nothing writes have their type where they are read."""
    left = ", ".join(map(value_text, op.outputs))
    parts = [f"{left} = " if left else "= ", op.name]
    parts.append("(" + ", ".join(value_text(value) if value in undefined else f"%{value.name}"
                                 for value in op.inputs) + ")")  # fmt: skip
    if op.attrs:
        parts.append(" " + attributes_text(op.attrs))
    if op.sig:
        parts.append(f' sig="{op.sig}"')
    if op.group:
        parts.append(f" group={quoted(op.group)}")
    if op.phase:
        parts.append(" " + op.phase)
    if op.fqn:
        parts.append(" @" + quoted(op.fqn, WORD))
    if op.source:
        parts.append(" src=" + quoted(op.source, WORD))
    if op.label:
        parts.append(" label=" + quoted(op.label, WORD))
    return "".join(parts)


def start_text(start, replica_axis):
    base, per_replica, per_microbatch = start
    parts = []
    if per_replica:
        parts.append(f"{replica_axis}*{per_replica}")
    if per_microbatch:
        parts.append(f"mb*{per_microbatch}")
    if base or not parts:
        parts.insert(0, str(base))
    return "+".join(parts)


def slice_text(starts, shape, replica_axis):
    ranges = (f"{start_text(start, replica_axis)} : {length}"
              for start, length in zip(starts, shape))  # fmt: skip
    return "[" + ", ".join(ranges) + "]"


def coordinates_text(coordinates):
    def one(name, value):
        if isinstance(value, tuple):
            return f"{name}={value[0]}:{value[1]}"
        return f"{name}={value}"

    return " ".join(one(name, value) for name, value in coordinates.items())


def write_header(plan, stream):
    axes = (f"{name}={size}{'*' if name == plan.replica_axis else ''}"
            for name, size in plan.axes.items())  # fmt: skip
    stream.write("tocsin-plan 1\nmesh " + " ".join(axes) + "\n")
    if plan.microbatches != 1:
        stream.write(f"microbatches {plan.microbatches}\n")
    for group in plan.groups.values():
        members = " ".join(f"({coordinates_text(member)})" for member in group.members)
        stream.write(f"group {quoted(group.name)} = {members}\n")
    for text in plan.assumptions:
        stream.write(f"assume {quoted(text)}\n")


def write_role(plan, role, stream):
    axis = plan.replica_axis
    stream.write(f"role {coordinates_text(role.coordinates)}\n")
    for item in role.inputs:
        each = " each" if item.each else ""
        stream.write(f"in {value_text(item.value)}{each} = {quoted(item.name)}"
                     f"{slice_text(item.starts, item.value.shape, axis)}\n")  # fmt: skip
    written = {item.value for item in role.inputs}
    for op in role.ops():
        written.update(op.outputs)
    undefined = {value for op in role.ops() for value in op.inputs if value not in written}
    for name, ops in role.segments.items():
        stream.write(f"segment {quoted(name)}\n")
        stream.write("".join(op_text(op, undefined) + "\n" for op in ops))
    turns = [quoted(name) if batch is None else f"{quoted(name)}.{batch}"
             for name, batch in role.schedule]  # fmt: skip
    for first in range(0, len(turns), 64):
        stream.write("schedule " + " ".join(turns[first : first + 64]) + "\n")
    for item in role.outputs:
        fold = "" if item.fold == ("equal", "equal") else " fold=" + ",".join(item.fold)
        stream.write(f"out {item.kind} {quoted(item.name)}"
                     f"{slice_text(item.starts, item.value.shape, axis)}"
                     f" = %{item.value.name}{fold}\n")  # fmt: skip
    stream.write("end\n")


def write_plan(plan, path):
    with open(path, "w", encoding="utf-8") as stream:
        write_header(plan, stream)
        for role in plan.roles:
            write_role(plan, role, stream)


# ---- reading ---------------------------------------------------------------------------------

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}(),=]|\[[^\]]*\]|[^\s{}(),="\[]+')
STATEMENT_VALUE = re.compile(r"%([^\s:,]+):([a-z0-9_]*)\[([0-9, ]*)\]( keep)?")


def unquote(text):
    if text.startswith('"'):
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return text


def parse_number(text):
    """An integer, a list, a real or a word, as attributes are written."""
    if text.startswith("["):
        return [int(part) for part in text[1:-1].split(",") if part.strip()]
    if text.startswith('"'):
        return unquote(text)
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


def parse_start(text, replica_axis):
    start = [0, 0, 0]
    for term in text.replace("-", "+-").split("+"):
        term = term.strip()
        if "*" in term:
            name, factor = term.split("*")
            start[1 if name == replica_axis else 2] += int(factor)
        elif term:
            start[0] += int(term)
    return tuple(start)


def parse_slice(text, replica_axis):
    """'NAME[a : b, ...]' or NAME: (name, starts or None)."""
    found = re.match(r'\s*("(?:[^"\\]|\\.)*"|[^\s\[]+)\s*(?:\[(.*)\])?\s*\Z', text)
    name, body = unquote(found[1]), found[2]
    if body is None:
        return name, None
    ranges = [part.split(":")[0] for part in body.split(",") if part.strip()]
    return name, [parse_start(start, replica_axis) for start in ranges]


def parse_values(text):
    return [Value(name, dtype, [int(dim) for dim in dims.split(",") if dim.strip()], bool(keep))
            for name, dtype, dims, keep in STATEMENT_VALUE.findall(text)]  # fmt: skip


class Reader:
    """Statements one by one; `values` are those of the role being read."""

    def __init__(self):
        self.plan = self.role = self.segment = None
        self.values = {}

    def mesh(self, rest):
        axes, replica = {}, None
        for item in rest.split():
            name, size = item.split("=")
            if size.endswith("*"):
                replica, size = name, size[:-1]
            axes[name] = int(size)
        self.plan = Plan(axes, replica)

    def group(self, rest):
        name, members = rest.split("=", 1)
        tuples = re.findall(r"\(([^)]*)\)", members)
        name = unquote(name.strip())
        self.plan.groups[name] = Group(name, [self.coordinates(text) for text in tuples])

    @staticmethod
    def coordinates(text):
        result = {}
        for item in text.split():
            name, value = item.split("=")
            if ":" in value:
                result[name] = tuple(map(int, value.split(":")))
            else:
                result[name] = int(value) if value.isdigit() else value
        return result

    def begin_role(self, rest):
        self.role, self.values = Role(self.coordinates(rest)), {}
        self.plan.roles.append(self.role)

    def declare(self, rest):
        left, right = rest.split(" = ", 1)
        value = parse_values(left)[0]
        name, starts = parse_slice(right, self.plan.replica_axis)
        starts = starts or [(0, 0, 0)] * len(value.shape)
        self.values[value.name] = value
        self.role.inputs.append(Input(value, name, starts, left.rstrip().endswith("each")))

    def output(self, rest):
        found = re.match(r"(\S+) (.*) = %(\S+)(?: fold=(\S+))?\s*\Z", rest)
        value = self.values[found[3]]
        name, starts = parse_slice(found[2], self.plan.replica_axis)
        starts = starts or [(0, 0, 0)] * len(value.shape)
        fold = tuple(found[4].split(",")) if found[4] else ("equal", "equal")
        self.role.outputs.append(Output(found[1], name, value, starts, fold))

    def schedule(self, rest):
        for turn in rest.split():
            name, _, batch = turn.rpartition(".")
            plain = turn in self.role.segments
            self.role.schedule.append((turn, None) if plain else (name, int(batch)))

    def operator(self, line):
        left, right = line.split("=", 1) if line.startswith("=") else line.split(" = ", 1)
        outputs = [self.values.setdefault(value.name, value) for value in parse_values(left)]
        head, _, rest = right.partition(")")
        for value in parse_values(head):
            self.values.setdefault(value.name, value)
        tokens = TOKEN.findall(STATEMENT_VALUE.sub(r"%\1", head) + ")" + rest)
        close = tokens.index(")")
        inputs = [self.values[name[1:]] for name in tokens[2:close] if name.startswith("%")]
        op = Op(tokens[0], inputs, outputs)
        position = close + 1
        while position < len(tokens):
            position = self.keyword(op, tokens, position)
        self.role.segments[self.segment].append(op)

    @staticmethod
    def keyword(op, tokens, position):
        token = tokens[position]
        if token == "{":
            position += 1
            while tokens[position] != "}":
                key, value = tokens[position], parse_number(tokens[position + 2])
                op.attrs[key] = [value] if key in LISTS and isinstance(value, int) else value
                position += 3 + (tokens[position + 3] == ",")
            return position + 1
        if token in PHASES:
            op.phase = token
            return position + 1
        if token.startswith("@"):
            quoted = token == "@"
            op.fqn = unquote(tokens[position + 1]) if quoted else token[1:]
            return position + 1 + quoted
        field = {"src": "source", "label": "label", "group": "group", "sig": "sig"}[token]
        text = tokens[position + 2]
        position += 3
        while position < len(tokens) and tokens[position].startswith("["):
            text += tokens[position]
            position += 1
        setattr(op, field, unquote(text))
        return position

    def statement(self, line):
        keyword, _, rest = line.partition(" ")
        calls = {"mesh": self.mesh, "group": self.group, "role": self.begin_role,
                 "in": self.declare, "out": self.output, "schedule": self.schedule}  # fmt: skip
        if keyword in calls:
            calls[keyword](rest)
        elif keyword == "microbatches":
            self.plan.microbatches = int(rest)
        elif keyword == "assume":
            self.plan.assumptions.append(unquote(rest.strip()))
        elif keyword == "segment":
            self.segment = rest.strip()
            self.role.segments[self.segment] = []
        elif line.startswith(("%", "=")):
            self.operator(line)
        elif keyword not in ("tocsin-plan", "end"):
            raise ValueError(f"no such statement: {line[:60]}")


def read_plan(path):
    reader = Reader()
    with open(path, encoding="utf-8") as stream:
        for line in stream:
            line = line.strip()
            if line and not line.startswith("#"):
                reader.statement(line)
    return reader.plan
