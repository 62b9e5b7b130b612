"""Runs `.plan` text with numbers: every rank of the parallel plan and the logical plan on the same
random logical inputs, and compares what the outputs claim. An oracle for the exporter that knows
nothing of the prover."""

import itertools
import re

import torch

_OP = re.compile(r"(?P<outs>.*?)= (?P<name>[\w.]+)\((?P<ins>[^)]*)\)"
                 r"(?: \{(?P<attrs>[^}]*)\})?(?P<rest>.*)")
_DTYPES = {"float32": torch.float64, "float64": torch.float64, "int64": torch.int64,
           "bool": torch.bool, "int32": torch.int64}


class Role:
    def __init__(self, at):
        self.at, self.inputs, self.ops, self.outputs = at, [], [], []


class Plan:
    """Enough of the format for what the exporter writes."""

    def __init__(self, text):
        self.axes, self.replica, self.groups, self.roles = {}, None, {}, []
        for line in text.splitlines():
            word, _, rest = line.partition(" ")
            if word == "mesh":
                for part in rest.split():
                    name, size = part.split("=")
                    if size.endswith("*"):
                        self.replica = name
                    self.axes[name] = int(size.rstrip("*"))
            elif word == "group":
                name, _, members = rest.partition(" = ")
                self.groups[name] = [_at(m) for m in re.findall(r"\(([^)]*)\)", members)]
            elif word == "role":
                self.roles.append(Role(_at(rest)))
            elif word == "in":
                value, shape, name, starts = re.match(
                    r"%(\d+):\w+\[(.*?)\] = (\S+?)\[(.*)\]$", rest).groups()
                self.roles[-1].inputs.append((value, _ints(shape), name, _starts(starts)))
            elif word == "out":
                kind, name, starts, value, fold = re.match(
                    r"(\w+) (\S+?)\[(.*)\] = %(\d+)(?: fold=(\w+),\w+)?$", rest).groups()
                self.roles[-1].outputs.append((kind, name, _starts(starts), value, fold))
            elif word.startswith("%") or word == "=":
                found = _OP.match(line)
                outs = re.findall(r"%(\d+):(\w+)\[([\d,]*)\]", found["outs"])
                group = re.search(r"group=(\S+)", found["rest"])
                self.roles[-1].ops.append((
                    found["name"], re.findall(r"%(\d+)", found["ins"]),
                    [(v, d, _ints(s)) for v, d, s in outs], _attributes(found["attrs"] or ""),
                    group and group[1]))

    def ranks(self):
        """(coordinates, role) of all of them."""
        for point in itertools.product(*(range(n) for n in self.axes.values())):
            at = dict(zip(self.axes, point))
            for role in self.roles:
                if all(at[axis] == k for axis, k in role.at.items()):
                    yield tuple(point), at, role

    def members(self, group, at):
        for member in self.groups[group]:
            whole = {**{self.replica: at.get(self.replica)}, **member}
            if whole.get(self.replica) == "all":
                continue
            yield tuple(whole[axis] for axis in self.axes)
        if any(member.get(self.replica) == "all" for member in self.groups[group]):
            for k in range(self.axes[self.replica]):
                for member in self.groups[group]:
                    yield tuple(k if axis == self.replica else member[axis] for axis in self.axes)


def _at(text):
    pairs = (word.split("=") for word in text.split())
    return {axis: int(k) if k.isdigit() else k for axis, k in pairs}


def _ints(text):
    return [int(x) for x in text.split(",") if x.strip()]


def _starts(text):
    parts = [part.split(" : ") for part in text.split(", ") if part]
    return [(start, int(length)) for start, length in parts]


def _attributes(text):
    result = {}
    for key, value in re.findall(r"(\w+)=(\[[^\]]*\]|[^,]+)", text):
        if value.startswith("["):
            result[key] = _ints(value[1:-1])
        else:
            try:
                result[key] = int(value)
            except ValueError:
                try:
                    result[key] = float(value)
                except ValueError:
                    result[key] = value
    return result


def _place(starts, at):
    result = []
    for start, length in starts:
        begin = 0
        for term in start.split("+"):
            axis, star, weight = term.partition("*")
            begin += at[axis] * int(weight) if star else int(term)
        result.append(slice(begin, begin + length))
    return tuple(result)


def _slice(x, a):
    index = [slice(None)] * x.dim()
    index[a["dim"]] = slice(a["start"], a["end"], a.get("step", 1))
    return x[tuple(index)]


def _pad(x, a, shape):
    out = torch.zeros(shape, dtype=x.dtype)
    out.narrow(a["dim"], a["before"], x.shape[a["dim"]]).copy_(x)
    return out


def _embedding_backward(g, index, a):
    out = torch.zeros((a["rows"], g.shape[-1]), dtype=g.dtype)
    return out.index_add(0, index.reshape(-1), g.reshape(-1, g.shape[-1]))


def _silu_backward(g, x):
    s = torch.sigmoid(x)
    return g * s * (1 + x * (1 - s))


_COMPUTE = {
    "permute": lambda x, a, s, d: x[0].permute(a["dims"]),
    "view": lambda x, a, s, d: x[0].reshape(s),
    "expand": lambda x, a, s, d: x[0].expand(s),
    "slice": lambda x, a, s, d: _slice(x[0], a),
    "select": lambda x, a, s, d: x[0].select(a["dim"], a["index"]),
    "cat": lambda x, a, s, d: torch.cat(x, a["dim"]),
    "stack": lambda x, a, s, d: torch.stack(x, a["dim"]),
    "pad": lambda x, a, s, d: _pad(x[0], a, s),
    "add": lambda x, a, s, d: x[0] + a.get("alpha", 1) * x[1],
    "sub": lambda x, a, s, d: x[0] - x[1],
    "neg": lambda x, a, s, d: -x[0],
    "scale": lambda x, a, s, d: x[0] * a["factor"],
    "add_scalar": lambda x, a, s, d: x[0] + (a["value"] if d.is_floating_point
                                             else int(a["value"])),
    "mul": lambda x, a, s, d: x[0] * x[1],
    "div": lambda x, a, s, d: x[0] / x[1],
    "mm": lambda x, a, s, d: x[0] @ x[1],
    "bmm": lambda x, a, s, d: x[0] @ x[1],
    "pow": lambda x, a, s, d: x[0] ** a["exponent"],
    "sum": lambda x, a, s, d: x[0].sum(a["dims"], bool(a["keepdim"])),
    "mean": lambda x, a, s, d: x[0].mean(a["dims"], bool(a["keepdim"])),
    "amax": lambda x, a, s, d: x[0].amax(a["dims"], bool(a["keepdim"])),
    "softmax": lambda x, a, s, d: x[0].softmax(a["dim"]),
    "full": lambda x, a, s, d: torch.full(s, a["value"]).to(d),
    "arange": lambda x, a, s, d: torch.arange(s[0]).to(d) * a["step"] + a["start"],
    "cast": lambda x, a, s, d: x[0].to(d),
    "embedding": lambda x, a, s, d: x[0][x[1]],
    "embedding_backward": lambda x, a, s, d: _embedding_backward(x[0], x[1], a),
    "masked_fill": lambda x, a, s, d: x[0].masked_fill(
        x[1], a["value"] if d.is_floating_point else int(a["value"])),
    "where": lambda x, a, s, d: torch.where(*x),
    "clamp": lambda x, a, s, d: x[0].clamp(a.get("min"), a.get("max")),
    "triangle": lambda x, a, s, d: (x[0].triu if a["upper"] else x[0].tril)(a["diagonal"]),
    "silu_backward": lambda x, a, s, d: _silu_backward(*x),
    "threshold_backward": lambda x, a, s, d: x[0] * (x[1] > a["threshold"]),
    "and": lambda x, a, s, d: x[0] & x[1], "or": lambda x, a, s, d: x[0] | x[1],
    "not": lambda x, a, s, d: ~x[0], "wait": lambda x, a, s, d: x[0],
    "silu": lambda x, a, s, d: torch.nn.functional.silu(x[0]),
}
for _name in ("sqrt", "rsqrt", "exp", "log", "sin", "cos", "tanh", "sigmoid", "relu", "abs",
              "reciprocal", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge"):
    _COMPUTE[_name] = lambda x, a, s, d, f=getattr(torch, _name): f(*x)


def _reduce(values, op):
    stacked = torch.stack(values)
    return {"sum": lambda: stacked.sum(0), "avg": lambda: stacked.mean(0),
            "max": lambda: stacked.amax(0), "min": lambda: stacked.amin(0)}[op]()


def _communicate(name, values, position, attributes, shape):
    if name == "all_reduce":
        return _reduce(values, attributes["op"])
    if name == "all_gather":
        return torch.cat(values, attributes["dim"])
    if name == "reduce_scatter":
        return _reduce(values, attributes["op"]).chunk(len(values), attributes["dim"])[position]
    if name == "all_to_all":
        parts = [v.chunk(len(values), attributes["split_dim"])[position] for v in values]
        return torch.cat(parts, attributes["join_dim"])
    if name == "broadcast":
        return values[attributes["root"]]
    raise AssertionError(name)


class Rank:
    """A generator of requests: it stops at what needs other ranks and gets the value sent in."""

    def __init__(self, plan, point, at, role, inputs):
        self.plan, self.point, self.at, self.role = plan, point, at, role
        self.values = {}
        for value, shape, name, starts in role.inputs:
            self.values[value] = inputs[name][_place(starts, at)]
            assert list(self.values[value].shape) == shape, name

    def steps(self):
        for name, ins, outs, attributes, group in self.role.ops:
            operands = [self.values[v] for v in ins]
            if group is not None or name in ("send", "recv"):
                result = yield name, operands, attributes, group, outs
            else:
                shape, dtype = outs[0][2], _DTYPES[outs[0][1]]
                result = _COMPUTE[name](operands, attributes, shape, dtype)
            if outs:
                assert list(result.shape) == outs[0][2], (name, result.shape, outs)
                self.values[outs[0][0]] = result


def run(plan, inputs):
    """All ranks to their ends; {point: Rank}."""
    ranks, waiting, gathered = {}, {}, {}
    for point, at, role in plan.ranks():
        assert point not in ranks, "two roles for one rank"
        ranks[point] = Rank(plan, point, at, role, inputs)
    steps = {point: rank.steps() for point, rank in ranks.items()}
    mail, answers = {}, {point: None for point in ranks}
    others = [axis for axis in plan.axes if axis != plan.replica]

    def device(point):
        number = 0
        for axis, k in zip(plan.axes, point):
            if axis in others:
                number = number * plan.axes[axis] + k
        return number

    while answers or waiting:
        progress = bool(answers)
        for point, answer in list(answers.items()):
            del answers[point]
            try:
                waiting[point] = steps[point].send(answer)
            except StopIteration:
                pass
        for point, (name, operands, attributes, group, outs) in list(waiting.items()):
            if point not in waiting:
                continue
            at = ranks[point].at
            replica = at.get(plan.replica)
            if name == "send":
                key = (replica, device(point), attributes["peer"], attributes["tag"])
                mail.setdefault(key, []).append(operands[0])
                answers[point] = None
                del waiting[point]
            elif name == "recv":
                key = (replica, attributes["peer"], device(point), attributes["tag"])
                if mail.get(key):
                    answers[point] = mail[key].pop(0)
                    del waiting[point]
            else:
                members = list(plan.members(group, at))
                if all(m in waiting and waiting[m][0] == name and
                       list(plan.members(waiting[m][3], ranks[m].at)) == members for m in members):
                    values = [waiting[m][1][0] for m in members]
                    for k, m in enumerate(members):
                        answers[m] = _communicate(name, values, k, attributes, None)
                        del waiting[m]
        assert progress or answers, f"stuck: {waiting}"
    return ranks


def logical_inputs(plan, seed=0):
    """Random contents for every logical input of the plan."""
    generator = torch.Generator().manual_seed(seed)
    inputs = {}
    for value, shape, name, _ in plan.roles[0].inputs:
        integer = name in ("tokens", "targets")
        inputs[name] = (torch.randint(0, 40, shape, generator=generator) if integer
                        else torch.rand(shape, generator=generator, dtype=torch.float64) + 0.5)
    return inputs


def compare(logical_text, parallel_text, seed=0):
    """Names of the outputs that differ, and the number of those compared."""
    logical, parallel = Plan(logical_text), Plan(parallel_text)
    inputs = logical_inputs(logical, seed)
    one, = run(logical, inputs).values()
    expected = {(kind, name): one.values[value] for kind, name, _, value, _ in one.role.outputs}
    wrong, count, folded = set(), 0, {}
    covered = {key: torch.zeros(value.shape, dtype=torch.bool) for key, value in expected.items()}
    for rank in run(parallel, inputs).values():
        for kind, name, starts, value, fold in rank.role.outputs:
            got = rank.values[value]
            place = _place(starts, rank.at)
            covered[kind, name][place] = True
            if fold:
                folded.setdefault((kind, name, fold, str(place)), []).append(got)
                continue
            count += 1
            if not torch.allclose(got, expected[kind, name][place], rtol=1e-6, atol=1e-9):
                wrong.add(f"{kind} {name}")
    for (kind, name, fold, _), values in folded.items():
        count += 1
        got = torch.stack(values).mean(0) if fold == "mean" else torch.stack(values).sum(0)
        if not torch.allclose(got, expected[kind, name], rtol=1e-6, atol=1e-9):
            wrong.add(f"{kind} {name}")
    wrong |= {f"{kind} {name} (not covered)" for (kind, name), c in covered.items() if not c.all()}
    return sorted(wrong), count
