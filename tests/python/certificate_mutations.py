"""Single-fact mutations of certificates: one number, id or line of the text is changed."""

import re

INTEGER = re.compile(r"-?\d+")


def shapes(lines):
    """Relation id -> its sizes as text."""
    found = {}
    for line in lines:
        match = re.match(r"relation r(\d+) (\[[\d,]*\])", line)
        if match:
            found[int(match[1])] = match[2]
    return found


def meanings(lines):
    """Relation id -> the id of the relation that says the same: a definition for the whole of what
    is defined by it."""
    defined, size, same = {}, shapes(lines), {}
    for line in lines:
        match = re.match(r"atom a(\d+) defined r(\d+)", line)
        if match:
            defined[match[1]] = int(match[2])
        match = re.match(r"relation r(\d+) \[[\d,]*\] = 1 a(\d+)(.*)", line)
        if match and match[2] in defined:
            sizes = [int(n) for n in size[int(match[1])].strip("[]").split(",") if n]
            whole = [f" ({d}:1:{n}:0:{n})" if n > 1 else " ()" for d, n in enumerate(sizes)]
            if match[3] == "".join(whole):
                same[int(match[1])] = defined[match[2]]
    return {r: same.get(r, r) for r in size}


def pick(random, lines, prefix):
    at = [k for k, line in enumerate(lines) if line.startswith(prefix)]
    return random.choice(at) if at else None


def change_number(random, text, first):
    """One integer from column `first` on is changed a little, or much."""
    spots = [m for m in INTEGER.finditer(text, first)]
    if not spots:
        return None
    spot = random.choice(spots)
    value = int(spot[0]) + random.choice([-2, -1, 1, 1, 2, 4, 8])
    return f"{text[:spot.start()]}{value}{text[spot.end():]}"


def relation_number(random, lines):
    at = pick(random, lines, "relation ")
    first = lines[at].index("]") + 1
    changed = change_number(random, lines[at], first)
    return changed and {at: changed}


def relation_factor(random, lines):
    at = pick(random, lines, "relation ")
    terms = [m for m in re.finditer(r"[=+] (-?\d+)", lines[at])]
    if not terms:
        return None
    spot = random.choice(terms)
    value = random.choice([-int(spot[1]), int(spot[1]) + 2, int(spot[1]) - 2, 3 * int(spot[1])])
    return {at: lines[at][: spot.start(1)] + str(value) + lines[at][spot.end(1) :]}


def relation_term(random, lines):
    """A term is dropped, or counted twice."""
    at = pick(random, lines, "relation ")
    head, equal, tail = lines[at].partition(" = ")
    if not equal or tail == "0":
        return None
    terms = tail.split(" + ")
    k = random.randrange(len(terms))
    if random.random() < 0.5:
        terms.insert(k, terms[k])
    else:
        del terms[k]
    return {at: head + " = " + (" + ".join(terms) or "0")}


def relation_atom(random, lines):
    at = pick(random, lines, "relation ")
    spots = [m for m in re.finditer(r" a(\d+)", lines[at])]
    if not spots:
        return None
    spot = random.choice(spots)
    other = int(spot[1]) + random.choice([-2, -1, 1, 2])
    return {at: lines[at][: spot.start(1)] + str(other) + lines[at][spot.end(1) :]}


def relation_box(random, lines):
    """A range of a box is changed, dropped, or taken for a maximum."""
    boxes = [k for k, x in enumerate(lines) if x.startswith("relation ") and " sum " in x]
    if not boxes:
        return None
    at = random.choice(boxes)
    spots = [m for m in re.finditer(r" sum (a\d+\.\d+:\d+:\d+:\S+:\d+)", lines[at])]
    spot = random.choice(spots)
    way = random.randrange(3)
    if way == 0:
        return {at: lines[at][: spot.start()] + lines[at][spot.end() :]}
    if way == 1:
        return {at: lines[at][: spot.start()] + " max " + spot[1] + lines[at][spot.end() :]}
    changed = change_number(random, spot[0], 6)
    return {at: lines[at][: spot.start()] + changed + lines[at][spot.end() :]}


def relation_dims(random, lines):
    """Two dims of one term change places."""
    at = pick(random, lines, "relation ")
    spots = [m for m in re.finditer(r"\([^)]*\)", lines[at])]
    if len(spots) < 2:
        return None
    k = random.randrange(len(spots) - 1)
    one, other = spots[k], spots[k + 1]
    text = lines[at]
    return {
        at: text[: one.start()]
        + other[0]
        + text[one.end() : other.start()]
        + one[0]
        + text[other.end() :]
    }


def relation_parts(random, lines):
    joined = [k for k, x in enumerate(lines) if x.startswith("relation ") and " cat " in x]
    if not joined:
        return None
    at = random.choice(joined)
    parts = re.findall(r" r\d+", lines[at])[1:]
    head = lines[at][: lines[at].index(" cat ") + 6]
    one, other = random.sample(range(len(parts)), 2)
    parts[one], parts[other] = parts[other], parts[one]
    return {at: head + "".join(parts)}


def atom_operand(random, lines):
    calls = [k for k, x in enumerate(lines) if re.match(r"atom a\d+ (call|defined).* r\d+", x)]
    at = random.choice(calls)
    spots = [m for m in re.finditer(r" r(\d+)", lines[at])]
    spot = random.choice(spots)
    size = shapes(lines)
    own = int(spot[1])
    same = meanings(lines)
    alike = [r for r in size if size[r] == size[own] and same[r] != same[own] and r < own + 40]
    other = random.choice(alike) if alike and random.random() < 0.7 else own - 1
    if same.get(other) == same[own]:
        return None
    return {at: lines[at][: spot.start(1)] + str(other) + lines[at][spot.end(1) :]}


def atom_key(random, lines):
    calls = [k for k, x in enumerate(lines) if re.match(r"atom a\d+ call", x)]
    at = random.choice(calls)
    own = re.search(r'"([^"]*)"', lines[at])
    others = {re.search(r'"([^"]*)"', lines[k])[1] for k in calls} - {own[1]}
    if not others:
        return None
    other = random.choice(sorted(others))
    return {at: lines[at][: own.start(1)] + other + lines[at][own.end(1) :]}


def atom_input(random, lines):
    inputs = [k for k, x in enumerate(lines) if re.match(r"atom a\d+ input", x)]
    at, other = random.sample(inputs, 2)
    return {at: lines[at].split('"')[0] + '"' + lines[other].split('"')[1] + '"'}


def fact_other(random, lines):
    """A value is said to be another one of the same shape."""
    at = pick(random, lines, "facts ")
    words = lines[at].split(" ")
    size = shapes(lines)
    k = random.randrange(4, len(words))
    own = int(words[k])
    same = meanings(lines)
    alike = [r for r in size if own and size[r] == size[own] and same[r] != same[own]]
    if not alike:
        return None
    words[k] = str(random.choice(alike))
    return {at: " ".join(words)}


def fact_swap(random, lines):
    at = pick(random, lines, "facts ")
    words = lines[at].split(" ")
    size, same = shapes(lines), meanings(lines)
    one = random.randrange(4, len(words))
    alike = [
        k
        for k in range(4, len(words))
        if int(words[one])
        and int(words[k])
        and same[int(words[k])] != same[int(words[one])]
        and size[int(words[k])] == size[int(words[one])]
    ]
    if not alike:
        return None
    other = random.choice(alike)
    words[one], words[other] = words[other], words[one]
    return {at: " ".join(words)}


def fact_drop(random, lines):
    at = pick(random, lines, "facts ")
    words = lines[at].split(" ")
    k = random.randrange(4, len(words))
    if random.random() < 0.5:
        del words[k]
    elif words[k] == "0":
        return None
    else:
        words[k] = "0"
    return {at: " ".join(words)}


def output_claim(random, lines):
    at = pick(random, lines, "output ")
    words = lines[at].split(" ")
    size = shapes(lines)
    own = int(words[4][1:])
    if random.random() < 0.6:
        same = meanings(lines)
        alike = [r for r in size if size[r] == size[own] and same[r] != same[own]]
        if not alike:
            return None
        words[4] = f"r{random.choice(alike)}"
    else:
        k = random.choice([1, 2, 3])
        words[k] = str(int(words[k]) + 1)
    return {at: " ".join(words)}


def line_dropped(random, lines):
    at = random.randrange(len(lines))
    return {at: None}


def lines_swapped(random, lines):
    at = random.randrange(len(lines) - 1)
    if lines[at] == lines[at + 1] or lines[at].split()[0] != lines[at + 1].split()[0]:
        return None  # definitions that do not need one another may stand in any order
    return {at: lines[at + 1], at + 1: lines[at]}


def head(random, lines):
    at = random.choice([1, 2, 3, 4, 0])
    if at in (3, 4):
        word, how = lines[at].split(" ")
        return {at: f"{word} {'each' if how == 'all' else 'all'}"}
    if at == 0:
        return {at: "tocsin-certificate 2"}
    k = random.randrange(len(lines[at]) - 32, len(lines[at]))
    digit = random.choice([d for d in "0123456789abcdef" if d != lines[at][k]])
    return {at: lines[at][:k] + digit + lines[at][k + 1 :]}


def unknown_count(random, lines):
    at = pick(random, lines, "unknown ")
    return {at: f"unknown {int(lines[at].split()[1]) + random.choice([1, 2])}"}


MUTATIONS = [
    relation_number,
    relation_number,
    relation_number,
    relation_factor,
    relation_term,
    relation_atom,
    relation_box,
    relation_dims,
    relation_parts,
    atom_operand,
    atom_key,
    atom_input,
    fact_other,
    fact_other,
    fact_swap,
    fact_drop,
    output_claim,
    line_dropped,
    lines_swapped,
    head,
    unknown_count,
]


def mutate(random, text):
    """(name of the mutation, mutated text)."""
    lines = text.split("\n")[:-1]
    while True:
        mutation = random.choice(MUTATIONS)
        changes = mutation(random, lines)
        if not changes:
            continue
        out = []
        for k, line in enumerate(lines):
            changed = changes.get(k, line)
            if changed is not None:
                out.append(changed)
        mutated = "\n".join(out) + "\n"
        if mutated != text:
            return mutation.__name__, mutated, changes
