"""Tocsin on real training: learn from three healthy runs, then watch healthy and broken ones.

Nothing is written by hand: the invariants are those that `tocsin infer` finds, all of them.
Exit status 0 only when every broken run is found by its second step, by an invariant that is about
the mistake, and no healthy run gives a finding.
"""

import argparse
import re
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from tocsin_command import DemoError, Program, Tocsin

# They differ in model, optimizer, precision, dropout, depth, learning rate and ranks, so that what
# is common to them is a rule and not a habit.
REFERENCES = (
    Program("gpt.py", "--seed 1 --dropout 0.1 --warmup 3 --depth 2", ranks=2),
    Program("cnn.py", "--seed 2 --optimizer sgd --clip 5 --lr 1e-2"),
    Program("gpt.py", "--seed 3 --optimizer adam --bf16 --clip 0 --depth 3 --lr 3e-4"),
)

FOUND_BY_STEP = 2


@dataclass(frozen=True)
class Case:
    name: str
    program: Program
    about: str = ""  # a broken run: what one of its findings must speak of

    @property
    def expected(self):
        return "finding" if self.about else "none"


CASES = (
    Case("healthy: CNN, AdamW, dropout, other batch size",
         Program("cnn.py", "--seed 11 --optimizer adamw --dropout 0.2 --batch 64 --lr 3e-3")),
    Case("healthy: CNN, RMSprop, bf16, deeper",
         Program("cnn.py", "--seed 12 --optimizer rmsprop --bf16 --depth 3 --lr 1e-3")),
    Case("healthy: CNN, two ranks, Adam",
         Program("cnn.py", "--seed 13 --optimizer adam --lr 2e-3", ranks=2)),
    Case("healthy: GPT, SGD, not clipped, one block",
         Program("gpt.py", "--seed 14 --optimizer sgd --lr 0.1 --clip 0 --depth 1")),
    Case("healthy: GPT, Adagrad, warm-up",
         Program("gpt.py", "--seed 15 --optimizer adagrad --lr 1e-2 --warmup 4")),
    Case("healthy: GPT, two ranks, bf16, dropout",
         Program("gpt.py", "--seed 16 --bf16 --dropout 0.2 --batch 4", ranks=2)),
    Case("zero_grad forgotten",
         Program("cnn.py", "--seed 21 --optimizer adam --lr 2e-3 --fault forgotten-zero-grad"),
         about="zero_grad was not called|not cleared"),
    Case("head replaced after the optimizer was built",
         Program("cnn.py", "--seed 22 --optimizer adamw --lr 3e-3 --fault stale-head"),
         about="head.weight.*held by no optimizer"),
    Case("model replaced after the optimizer was built",
         Program("cnn.py", "--seed 23 --fault stale-model"),
         about="held by no optimizer|not part of any model"),
    Case("everything frozen but batch-norm",
         Program("cnn.py", "--seed 24 --optimizer adam --lr 2e-3 --fault frozen"),
         about="held by no optimizer|no gradient"),
    Case("gradient cut off from one layer (detach)",
         Program("gpt.py", "--seed 25 --optimizer adam --fault detached"),
         about="position.weight: no gradient"),
    Case("weights of two ranks drift (one rank clips)",
         Program("gpt.py", "--seed 26 --clip 0.1 --fault clip-one-rank", ranks=2),
         about="differs between ranks"),
)  # fmt: skip


def judge(case, report):
    """(as expected?, "step" column, "first finding" column)"""
    findings = report["findings"]
    if not findings:
        judged = report["holds"] > 0
        return (not case.about and judged, "-", "-" if judged else "(nothing could be judged)")
    steps = [finding["step"] for finding in findings if finding["step"] is not None]
    first = min(steps, default=None)
    on_time = first is not None and first <= FOUND_BY_STEP
    speaks_of_it = any(
        re.search(case.about, finding["rendered"])
        for finding in findings
        if finding["step"] is not None and finding["step"] <= FOUND_BY_STEP
    )
    as_expected = bool(case.about) and on_time and speaks_of_it
    return (as_expected, "?" if first is None else str(first), findings[0]["rendered"])


def shorten(text, columns):
    """One line, with only the first name of a list: "a, b, c and 7 more: no gradient"."""
    text = " ".join(text.split())
    names, separator, rest = text.partition(": ")
    listed = re.fullmatch(r"([^,]+), (.*) and (?:(\d+) more|\S+)", names)
    if separator and listed:
        count = int(listed[3] or 1) + listed[2].count(",") + 1
        text = f"{listed[1]} and {count} more: {rest}"
    return text if len(text) <= columns else text[: columns - 3] + "..."


def print_table(rows):
    header = ("case", "expected", "found at step", "first finding")
    cells = [header] + [
        (case.name, case.expected, step, shorten(text, 100)) for case, _, step, text in rows
    ]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    marks = [" "] + [" " if good else "!" for _, good, _, _ in rows]
    for mark, row in zip(marks, cells):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths))
        print(f"{mark} {line}".rstrip())


def demonstrate(tocsin):
    started = time.monotonic()
    print(f"1. Recording {len(REFERENCES)} healthy runs")
    for program in REFERENCES:
        print(f"     {program}")
    names = [(f"healthy-{i}", program) for i, program in enumerate(REFERENCES, 1)]
    runs = tocsin.in_parallel(tocsin.record, names)

    print("2. Inferring what always holds")
    invariants = tocsin.infer(runs)
    count = len(tocsin.call("show", invariants).stdout.splitlines())
    print(f"     {count} invariants; each in words: tocsin show {invariants.name}")

    print(f"3. Running {len(CASES)} others under `tocsin run`", flush=True)
    reports = tocsin.in_parallel(
        tocsin.watch,
        [(f"case-{i}", case.program, invariants) for i, case in enumerate(CASES, 1)],
    )
    rows = [(case, *judge(case, report)) for case, report in zip(CASES, reports)]
    print()
    print_table(rows)

    broken = [good for case, good, _, _ in rows if case.about]
    healthy = [good for case, good, _, _ in rows if not case.about]
    print()
    print(
        f"{sum(broken)} of {len(broken)} broken runs found by step {FOUND_BY_STEP}, "
        f"{len(healthy) - sum(healthy)} of {len(healthy)} healthy runs with a finding, "
        f"{time.monotonic() - started:.0f} s"
    )
    return all(broken) and all(healthy)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tocsin", default="build/tocsin", help="the command")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--keep", type=Path, help="keep recordings and reports in this new folder")
    args = parser.parse_args()
    if args.keep:
        args.keep.mkdir(parents=True)
    with nullcontext(args.keep) if args.keep else tempfile.TemporaryDirectory() as folder:
        try:
            return 0 if demonstrate(Tocsin(args.tocsin, folder, args.jobs)) else 1
        except DemoError as error:
            print(f"demo: {error}", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main())
