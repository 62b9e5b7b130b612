#!/usr/bin/env python3
"""Reference reader of `.plan` texts, written from docs/formats/plan.md alone.

    plan.py FILE              prints the canonical text of a plan
    plan.py --check FILE ...  compares each file, which must be canonical, with that

It reads into plain dicts (`read`) and prints from them (`canonical`). It trusts its input more than
the C reader does: it is no validator, but nothing is skipped or guessed.
"""

import itertools
import re
import sys

BLANKS = re.compile(r"[ \t]*")
IDENTIFIER = re.compile(r"[A-Za-z0-9_]+")
NAME = re.compile(r"[A-Za-z0-9_./-]+")
WORD = re.compile(r"[A-Za-z0-9_./:<>\[\]()+*-]+")
INTEGER = re.compile(r"[+-]?[0-9]+")
REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?")
ESCAPE = re.compile(r'\\(["\\]|x[0-9a-f]{2})')
QUOTED = re.compile(r'"((?:[^"\\\x00-\x1f\x7f]|\\["\\]|\\x[0-9a-f]{2})*)"')
NUMERIC = re.compile(r"[+-]?\.?[0-9]|(-?inf|nan)$")
PHASES = ("fw", "bw", "opt", "re")


class Line:
    """A cursor over one line."""

    def __init__(self, text, number):
        self.text, self.at, self.number = text, 0, number

    def fail(self, what):
        raise ValueError(f"line {self.number}, column {self.at + 1}: {what}")

    def skip(self):
        self.at = BLANKS.match(self.text, self.at).end()

    def at_end(self):
        self.skip()
        return self.at == len(self.text) or self.text[self.at] == "#"

    def peek(self):
        self.skip()
        return self.text[self.at:self.at + 1]

    def accept(self, mark):
        self.skip()
        found = self.text.startswith(mark, self.at)
        self.at += len(mark) if found else 0
        return found

    def expect(self, mark):
        if not self.accept(mark):
            self.fail(f"expected {mark}")

    def take(self, pattern, what):
        found = pattern.match(self.text, self.at)
        if not found:
            self.fail(f"expected {what}")
        self.at = found.end()
        return found.group()

    def word(self, pattern):
        """A bare word of this pattern, or a quoted one, directly here."""
        if self.text.startswith('"', self.at):
            inside = self.take(QUOTED, "a quoted word")[1:-1]
            return ESCAPE.sub(lambda m: m.group(1) if len(m.group(1)) == 1
                              else chr(int(m.group(1)[1:], 16)), inside)
        return self.take(pattern, "a word")

    def spaced(self, pattern):
        self.skip()
        return self.word(pattern)

    def integer(self):
        self.skip()
        return int(self.take(INTEGER, "an integer"))

    def keyword(self):
        self.skip()
        found = IDENTIFIER.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return found.group() if found else ""

    def end(self):
        if not self.at_end():
            self.fail("expected the end of the line")


# ---- reading -------------------------------------------------------------------------------------

def read_type(line):
    dtype = line.keyword()
    line.expect("[")
    shape = []
    while not line.accept("]"):
        shape.append(line.integer())
        if line.peek() != "]":
            line.expect(",")
    return {"dtype": dtype, "shape": shape}


def read_start(line, replica):
    """[base, weight of the replica, weight of the micro-batch]"""
    start, sign = [0, 0, 0], -1 if line.accept("-") else 1
    while True:
        if line.peek().isdigit():
            start[0] += sign * line.integer()
        else:
            symbol = {replica: 1, "mb": 2}[line.keyword()]
            line.expect("*")
            start[symbol] += sign * line.integer()
        if line.accept("+"):
            sign = 1
        elif line.accept("-"):
            sign = -1
        else:
            return start


def read_slice(line, replica):
    """(starts, lengths), or None when it is left out."""
    if not line.accept("["):
        return None
    starts, lengths = [], []
    while not line.accept("]"):
        starts.append(read_start(line, replica))
        line.expect(":")
        lengths.append(line.integer())
        if line.peek() != "]":
            line.expect(",")
    return starts, lengths


def read_value(line):
    if line.accept("["):
        items = []
        while not line.accept("]"):
            items.append(line.integer())
            if line.peek() != "]":
                line.expect(",")
        return items
    quoted = line.peek() == '"'
    word = line.spaced(WORD)
    if quoted:
        return word
    if INTEGER.fullmatch(word):
        return [int(word)]
    if REAL.fullmatch(word) or word in ("inf", "-inf", "nan"):
        return float(word)
    if NUMERIC.match(word):
        line.fail("not a number")
    return word


def read_attributes(line):
    attributes = {}
    while not line.accept("}"):
        key = line.spaced(NAME)
        line.expect("=")
        attributes[key] = read_value(line)
        if line.peek() != "}":
            line.expect(",")
    return attributes


SIGNATURE_OPERAND = re.compile(r"[A-Za-z_0-9]*\[([^\]]*)\]")


def read_signature(text):
    """Operands as lists of axes, the axes' marks, and the words behind them."""
    inputs, arrow, rest = text.partition("->")
    marks = {}

    def operands(part):
        result = []
        for match in SIGNATURE_OPERAND.finditer(part):
            axes = []
            for axis in match.group(1).replace("...", "... ").split():
                name = axis.rstrip("+^")
                marks[name] = marks.get(name) or axis[len(name):len(name) + 1]
                axes.append(name)
            result.append(axes)
        return result

    sides = operands(inputs), operands(rest)
    words = SIGNATURE_OPERAND.sub("", rest).split()
    assert arrow
    linear = sorted({int(i) for w in words if w.startswith("linear=") for i in w[7:].split(",")})
    return {"sides": sides, "marks": marks, "linear": linear, "commutative": "commutative" in words}


def write_signature(signature, names):
    def operand(axes):
        return "[" + " ".join(names(a) + signature["marks"].get(a, "") for a in axes) + "]"

    inputs, outputs = (" ".join(map(operand, side)) for side in signature["sides"])
    text = f"{inputs} -> {outputs}" if inputs else f"-> {outputs}"
    if signature["linear"]:
        text += " linear=" + ",".join(map(str, signature["linear"]))
    return text + (" commutative" if signature["commutative"] else "")


def signature_key(signature):
    """The signature's text with its axes numbered in order of appearance."""
    numbers = {"...": "...", "1": "1", "_": "_"}
    for axes in itertools.chain(*signature["sides"]):
        for axis in axes:
            numbers.setdefault(axis, f"a{len(numbers)}")
    return write_signature(signature, numbers.get)


def read_operator(line, plan, role):
    op = {"outputs": [], "inputs": [], "attributes": {}, "phase": "", "fqn": "", "src": "",
          "label": "", "group": None, "sig": None}
    while not line.accept("="):
        line.expect("%")
        name = line.word(NAME)
        line.expect(":")
        role["types"][name] = read_type(line)
        if line.accept("keep"):
            role["keep"].add(name)
        role["written"].add(name)
        op["outputs"].append(name)
        if line.peek() != "=":
            line.expect(",")
    op["name"] = line.spaced(NAME)
    line.expect("(")
    while not line.accept(")"):
        line.expect("%")
        name = line.word(NAME)
        if line.accept(":"):
            role["types"][name] = read_type(line)
        op["inputs"].append(name)
        if line.peek() != ")":
            line.expect(",")
    if line.accept("{"):
        op["attributes"] = read_attributes(line)
    while not line.at_end():
        if line.accept("@"):
            op["fqn"] = line.word(WORD)
            continue
        keyword = line.keyword()
        if keyword in PHASES:
            op["phase"] = keyword
            continue
        line.expect("=")
        op[keyword] = line.word(NAME if keyword == "group" else WORD)
    if op["sig"] is not None:
        signature = read_signature(op["sig"])
        op["sig"] = plan["signatures"].setdefault(signature_key(signature), signature)
    role["segments"][-1]["ops"].append(op)


def read_coordinates(line, plan):
    """{axis: integer, (first, count) or "all"}"""
    result = {}
    while axis := line.keyword():
        line.expect("=")
        if axis == plan["replica"] and line.accept("all"):
            result[axis] = "all"
        else:
            first = line.integer()
            count = line.integer() if axis == plan["replica"] and line.accept(":") else 1
            result[axis] = (first, count) if axis == plan["replica"] else first
    return result


def read_turn(line):
    quoted = line.peek() == '"'
    name = line.word(NAME)
    if quoted:
        return name, int(line.take(INTEGER, "a number")) if line.accept(".") else -1
    found = re.fullmatch(r"(.+)\.([0-9]+)", name)
    return (found.group(1), int(found.group(2))) if found else (name, -1)


def read_header(line, keyword, plan):
    if keyword == "mesh":
        while not line.at_end():
            axis = line.keyword()
            line.expect("=")
            plan["axes"].append((axis, line.integer()))
            if line.accept("*"):
                plan["replica"] = axis
    elif keyword == "microbatches":
        plan["microbatches"] = line.integer()
    elif keyword == "group":
        name = line.spaced(NAME)
        line.expect("=")
        members = []
        while line.accept("("):
            members.append(read_coordinates(line, plan))
            line.expect(")")
        plan["groups"].append((name, members))
    elif keyword == "assume":
        text = line.spaced(WORD)
        if text not in plan["assumptions"]:
            plan["assumptions"].append(text)
    else:
        line.fail(f"no statement {keyword}")


def read_in(line, plan, role):
    line.expect("%")
    name = line.word(NAME)
    line.expect(":")
    role["types"][name] = kind = read_type(line)
    role["written"].add(name)
    each = line.keyword() == "each"
    line.expect("=")
    logical = line.spaced(NAME)
    starts, lengths = read_slice(line, plan["replica"]) or whole(kind)
    assert lengths == kind["shape"]
    role["inputs"].append((name, each, logical, starts))


def whole(kind):
    return [[0, 0, 0] for _ in kind["shape"]], kind["shape"]


def read_out(line, plan, role):
    kind, logical = line.keyword(), line.spaced(NAME)
    place = read_slice(line, plan["replica"])
    line.expect("=")
    line.expect("%")
    name = line.word(NAME)
    if name not in role["types"]:
        role["types"][name] = {"dtype": "none", "shape": place[1]}
    starts, lengths = place or whole(role["types"][name])
    assert lengths == role["types"][name]["shape"]
    fold = ("equal", "equal")
    if not line.at_end():
        assert line.keyword() == "fold"
        line.expect("=")
        first = line.keyword()
        line.expect(",")
        fold = (first, line.keyword())
    role["outputs"].append((kind, logical, starts, name, fold))


def read_statement(line, plan):
    role = plan["roles"][-1] if plan["roles"] else None
    if line.text[line.at] in "%=":
        read_operator(line, plan, role)
        return
    keyword = line.keyword()
    if keyword == "role":
        plan["roles"].append({"at": read_coordinates(line, plan), "types": {}, "keep": set(),
                              "written": set(), "inputs": [], "segments": [], "schedule": [],
                              "outputs": []})
    elif keyword == "in":
        read_in(line, plan, role)
    elif keyword == "segment":
        role["segments"].append({"name": line.spaced(NAME), "ops": []})
    elif keyword == "schedule":
        while not line.at_end():
            role["schedule"].append(read_turn(line))
    elif keyword == "out":
        read_out(line, plan, role)
    elif keyword != "end":
        read_header(line, keyword, plan)


def read(text):
    plan = {"axes": [], "replica": None, "microbatches": 1, "groups": [], "assumptions": [],
            "roles": [], "signatures": {}}
    version = None
    for number, content in enumerate(text.split("\n"), 1):
        line = Line(content, number)
        if line.at_end():
            continue
        if version is None:
            line.expect("tocsin-plan")
            version = line.integer()
            assert version == 1
        else:
            read_statement(line, plan)
        line.end()
    for role in plan["roles"]:
        role["schedule"] = role["schedule"] or [(s["name"], -1) for s in role["segments"]]
    return plan


# ---- writing -------------------------------------------------------------------------------------

def quote(text):
    return '"' + "".join(f"\\x{ord(c):02x}" if c < " " or c == "\x7f"
                         else "\\" + c if c in '"\\' else c for c in text) + '"'


def bare(text, pattern=NAME):
    return text if pattern.fullmatch(text) else quote(text)


def write_real(value):
    if value != value or value in (float("inf"), float("-inf")):
        return str(value)
    text = next(t for t in (f"%.{d}g" % value for d in (15, 16, 17)) if float(t) == value)
    return text if "." in text or "e" in text else text + ".0"


def write_attribute(value):
    if isinstance(value, str):
        return quote(value) if NUMERIC.match(value) or value[:1] == "[" else bare(value, WORD)
    if isinstance(value, float):
        return write_real(value)
    return str(value[0]) if len(value) == 1 else "[" + ",".join(map(str, value)) + "]"


def write_type(role, name):
    kind = role["types"][name]
    return f"%{bare(name)}:{kind['dtype']}[{','.join(map(str, kind['shape']))}]"


def write_start(start, replica):
    text = str(start[0]) if start[0] else ""
    for symbol, weight in ((replica, start[1]), ("mb", start[2])):
        if weight:
            text += f"{'-' if weight < 0 else '+' if text else ''}{symbol}*{abs(weight)}"
    return text or "0"


def write_slice(starts, shape, replica):
    return "[" + ", ".join(f"{write_start(s, replica)} : {n}"
                           for s, n in zip(starts, shape)) + "]"


def write_coordinates(at, plan, replica):
    parts = [f"{axis}={at[axis]}" for axis, _ in plan["axes"] if axis != plan["replica"]]
    return " ".join(parts + replica)


def write_member(at, plan):
    dp = at.get(plan["replica"])
    replica = [] if dp is None else [f"{plan['replica']}={dp if dp == 'all' else dp[0]}"]
    return f"({write_coordinates(at, plan, replica)})"


def write_role_line(role, plan):
    dp, replicas = role["at"].get(plan["replica"]), dict(plan["axes"]).get(plan["replica"])
    replica = []
    if dp is not None and dp[1] != replicas:
        replica = [f"{plan['replica']}={dp[0]}" + (f":{dp[1]}" if dp[1] != 1 else "")]
    return f"role {write_coordinates(role['at'], plan, replica)}".rstrip()


def write_operator(op, role):
    outputs = ", ".join(write_type(role, name) + (" keep" if name in role["keep"] else "")
                        for name in op["outputs"])
    inputs = ", ".join(write_type(role, name) if name in role["types"]
                       and name not in role["written"] else f"%{bare(name)}"
                       for name in op["inputs"])
    text = f"{outputs}{' ' if outputs else ''}= {bare(op['name'])}({inputs})"
    if op["attributes"]:
        keys = sorted(op["attributes"], key=lambda key: key.encode("utf-8", "surrogateescape"))
        text += " {" + ", ".join(f"{bare(key)}={write_attribute(op['attributes'][key])}"
                                 for key in keys) + "}"
    if op["group"] is not None:
        text += f" group={bare(op['group'])}"
    if op["sig"] is not None:
        text += f' sig="{write_signature(op["sig"], lambda axis: axis)}"'
    text += " " + op["phase"] if op["phase"] else ""
    for mark, key in (("@", "fqn"), ("src=", "src"), ("label=", "label")):
        text += f" {mark}{bare(op[key], WORD)}" if op[key] else ""
    return text


def write_turn(turn):
    name = turn[0]
    text = quote(name) if re.fullmatch(r".+\.[0-9]+", name) else bare(name)
    return text if turn[1] < 0 else f"{text}.{turn[1]}"


def role_lines(role, plan):
    replica = plan["replica"]
    yield write_role_line(role, plan)
    for name, each, logical, starts in role["inputs"]:
        place = write_slice(starts, role["types"][name]["shape"], replica)
        yield f"in {write_type(role, name)} {'each ' if each else ''}= {bare(logical)}{place}"
    for segment in role["segments"]:
        yield f"segment {bare(segment['name'])}"
        for op in segment["ops"]:
            yield write_operator(op, role)
    for first in range(0, len(role["schedule"]), 64):
        yield "schedule " + " ".join(map(write_turn, role["schedule"][first:first + 64]))
    for kind, logical, starts, name, fold in role["outputs"]:
        place = write_slice(starts, role["types"][name]["shape"], replica)
        text = f"out {kind} {bare(logical)}{place} = %{bare(name)}"
        yield text + (f" fold={','.join(fold)}" if fold != ("equal", "equal") else "")
    yield "end"


def canonical(plan):
    axes = "".join(f" {axis}={size}{'*' if axis == plan['replica'] else ''}"
                   for axis, size in plan["axes"])
    lines = ["tocsin-plan 1", f"mesh{axes}", f"microbatches {plan['microbatches']}"]
    for name, members in plan["groups"]:
        lines.append(f"group {bare(name)} = " + " ".join(write_member(m, plan) for m in members))
    lines += [f"assume {quote(text)}" for text in plan["assumptions"]]
    for role in plan["roles"]:
        lines += role_lines(role, plan)
    return "\n".join(lines) + "\n"


def load(path):
    with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        return file.read()


def main():
    if sys.argv[1:2] != ["--check"]:
        text = canonical(read(load(sys.argv[1])))
        sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
        return 0
    wrong = 0
    for path in sys.argv[2:]:
        given = load(path)
        for a, b in itertools.zip_longest(given.split("\n"), canonical(read(given)).split("\n")):
            if a != b:
                print(f"{path}: the file has\n  {a}\nthe reference\n  {b}")
                wrong = 1
                break
    return wrong


if __name__ == "__main__":
    sys.exit(main())
