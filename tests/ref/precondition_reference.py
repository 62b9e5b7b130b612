#!/usr/bin/env python3
"""Reference of inference: from instances to a fact's precondition, in plain sets.

Independent of the C code: it works on instances and Python sets of row numbers, one hypothesis at a
time. `precondition_reference.py FILE` reads JSON Lines written by test_precondition_property and
compares its own result with the one that stands in each line; it prints the first difference.

A line: {"pair", "runs", "instances": [{"run", "fact", "fields": {name: [a, b]}}],
"result": {"drop", "when", "instances", "runs"}}. Values are typed texts ("b:1", "i:3", "s:word",
"n"; "" is absent).
"""

import json
import math
import sys

GROUPS_MAX, DISJUNCTS_MAX, DEPTH_MAX, BUDGET = 8, 4, 3, 256
VALUES_OF_FACT_MAX = 4
IDENTITIES = {"meta.rank", "var.name", "meta.step"}
PREFERENCE = ["meta.first_micro", "meta.grad_enabled", "meta.stage", "meta.", "var.",
              "self.training", "self.", "arg."]
KINDS = {"constant": 1, "consistent": 2, "unequal": 3, "exist": 4}


def preference(field):
    return next((i for i, p in enumerate(PREFERENCE) if field.startswith(p)), len(PREFERENCE))


def value_order(value):
    kind, _, text = value.partition(":")
    number = {"n": 0, "b": 1, "i": 2, "s": 4}[kind]
    return (number, int(text) if kind in "bi" else 0, text if kind == "s" else "")


def clause_order(clause):
    kind, field, value = clause
    return (preference(field), field, KINDS[kind], value_order(value) if value else ())


def constant_allowed(field, value):
    if field in IDENTITIES or field.endswith(".shape"):
        return False
    return not value.startswith("i:") or field.endswith(".ndim") or field.startswith("meta.")


def reduce_fields(fields, pair):
    """What clauses may speak of; also whether this is a pair of different variables."""
    kept, contrast = {}, False
    for name, (a, b) in fields.items():
        if not pair:
            if constant_allowed(name, a):
                kept[name] = (a, b)
        elif name in IDENTITIES and a and b:
            contrast |= name == "var.name" and a != b
            kept[name] = ("=", "=" if a == b else "/")
        else:
            kept[name] = (a, b)
    return kept, contrast


def clauses_of(fields, pair):
    for name, (a, b) in fields.items():
        if not a or not b:
            continue
        yield ("exist", name, "")
        if a != b:
            yield ("unequal", name, "")
            continue
        if pair:
            yield ("consistent", name, "")
        if constant_allowed(name, a):
            yield ("constant", name, a)


class Rows:
    def __init__(self, case):
        self.pair = case["pair"]
        index = {}
        self.true, self.count, self.runs, self.contrast, self.says = [], [], [], [], []
        for instance in case["instances"]:
            fields, contrast = reduce_fields(instance["fields"], self.pair)
            key = tuple(sorted(fields.items()))
            row = index.setdefault(key, len(index))
            if row == len(self.count):
                self.true.append(0), self.count.append(0), self.runs.append(set())
                self.contrast.append(contrast)
                self.says.append(set(clauses_of(fields, self.pair)))
            self.count[row] += 1
            self.true[row] += instance["fact"]
            self.runs[row].add(instance["run"])
        every = set().union(*self.says) if self.says else set()
        self.holds = {c: {r for r, says in enumerate(self.says) if c in says} for c in every}
        self.holds = {c: rows for c, rows in self.holds.items() if len(rows) < len(self.count)}

    def candidates(self, positives):
        clauses = sorted((c for c, rows in self.holds.items() if rows & positives),
                         key=clause_order)
        values = {}
        for kind, field, _ in clauses:
            values[field] = values.get(field, 0) + (kind == "constant")
        return [c for c in clauses if c[0] != "constant" or values[c[1]] <= VALUES_OF_FACT_MAX]

    def weigh(self, where):
        return sum(self.count[r] for r in where)

    def where(self, group):
        rows = set(range(len(self.count)))
        for clause in group:
            rows &= self.holds[clause]
        return rows


def significance(rows, clause, positives, negatives):
    """The G statistic of clause and fact over instances, in 1/1024; negative: they disagree."""
    def term(x):
        return x * math.log(x) if x > 0 else 0.0
    a, b = rows.weigh(positives & rows.holds[clause]), rows.weigh(positives - rows.holds[clause])
    c, d = rows.weigh(negatives & rows.holds[clause]), rows.weigh(negatives - rows.holds[clause])
    g = 2 * (term(a) + term(b) + term(c) + term(d) - term(a + b) - term(c + d)
             - term(a + c) - term(b + d) + term(a + b + c + d))
    return math.floor(g * 1024 + 0.5) * (1 if a * (c + d) > c * (a + b) else -1)


def solve(rows, clauses, positives, negatives, depth, budget):
    """Groups (conjunctions), or None."""
    if budget[0] == 0 or depth > DEPTH_MAX:
        return None
    budget[0] -= 1
    base = [c for c in clauses if positives <= rows.holds[c] and not negatives <= rows.holds[c]]
    alive = negatives & rows.where(base)
    if not alive:
        return [base]
    partial = [c for c in clauses if not positives <= rows.holds[c] and positives & rows.holds[c]]
    partial.sort(key=lambda c: (-significance(rows, c, positives, alive),
                                -rows.weigh(rows.holds[c] & positives), clauses.index(c)))
    return (disjoin(rows, positives, alive, base, partial) or
            split(rows, clauses, positives, alive, base, partial, depth, budget))


def disjoin(rows, positives, alive, base, partial):
    chosen, left = [], set(positives)
    for clause in partial:
        if left and not rows.holds[clause] & alive and rows.holds[clause] & left:
            chosen.append(clause)
            left -= rows.holds[clause]
    if left or len(chosen) > DISJUNCTS_MAX:
        return None
    return [base + [clause] for clause in chosen]


def split(rows, clauses, positives, alive, base, partial, depth, budget):
    groups, left = [], set(positives)
    for clause in partial:
        where = rows.holds[clause]
        if not left or not where & left or alive <= where:
            continue
        sub = solve(rows, clauses, positives & where, alive & where, depth + 1, budget)
        if sub is None:
            continue
        if len(groups) + len(sub) > GROUPS_MAX:
            return None
        groups += [base + [clause] + group for group in sub]
        left -= where
    return None if left else groups


def deduce(rows, positives, negatives):
    clauses = rows.candidates(positives)
    groups = solve(rows, clauses, positives, negatives, 0, [BUDGET])
    if groups is None:
        return None
    minimal = []
    for group in groups:
        kept = sorted(set(group), key=clause_order)
        for clause in reversed(list(kept)):
            rest = [c for c in kept if c != clause]
            if not negatives & rows.where(rest):
                kept = rest
        if kept not in minimal:
            minimal.append(kept)
    return [g for g in minimal if not any(set(h) < set(g) for h in minimal)]


def infer(case):
    rows = Rows(case)
    everything = range(len(rows.count))
    if any(0 < rows.true[r] < rows.count[r] and not rows.contrast[r] for r in everything):
        return {"drop": "CONTRADICTORY"}
    positives = {r for r in everything if rows.true[r] == rows.count[r] and not rows.contrast[r]}
    negatives = {r for r in everything if rows.true[r] < rows.count[r]}
    if not positives:
        return {"drop": "NO_PRECONDITION"}
    support = set().union(*(rows.runs[r] for r in positives))
    two_runs = case["runs"] > 1 and not rows.pair
    if two_runs and len(support) < 2:
        return {"drop": "ONE_RUN"}
    groups = deduce(rows, positives, negatives)
    if groups is None:
        return {"drop": "NO_PRECONDITION"}
    if two_runs:
        groups = [g for g in groups
                  if len(set().union(*(rows.runs[r] for r in rows.where(g) & positives))) > 1]
    if not groups:
        return {"drop": "ONE_RUN_PRECONDITION"}
    for run in range(case["runs"] if case["runs"] > 1 else 0):
        alone = {r for r in everything if rows.runs[r] == {run}}
        if not negatives & alone or not positives - alone:
            continue
        learned = deduce(rows, positives - alone, negatives - alone)
        if learned and any(rows.where(g) & negatives & alone for g in learned):
            return {"drop": "NOT_STABLE"}
    return {"drop": "KEPT", "when": sorted(sorted(list(c) for c in g) for g in groups),
            "instances": sum(rows.count[r] for r in positives), "runs": len(support)}


def main():
    cases = kept = 0
    with open(sys.argv[1], encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            case = json.loads(line)
            expected, found = infer(case), case["result"]
            if found["drop"] == "KEPT":
                found["when"] = sorted(sorted(group) for group in found["when"])
                kept += 1
            if expected != found:
                print(f"line {number}: reference says {expected}\nC says {found}")
                return 1
            cases += 1
    print(f"{cases} cases equal, {kept} of them invariants")
    return 0


if __name__ == "__main__":
    sys.exit(main())
