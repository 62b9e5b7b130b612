"""Count false alarms: infer from the demo's three reference runs, watch many healthy ones.

The runs differ from the references and from each other in seed, batch size, learning rate, depth,
width, dropout, precision, optimizer, clipping, warm-up, accumulation and ranks. Any finding is a
false alarm and is printed. Exit status 0 only when there is none.
"""

import argparse
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

from run import REFERENCES
from tocsin_command import DemoError, Program, Tocsin

STEPS = 50

CNN = (
    "--optimizer sgd --lr 1e-2 --batch 32",
    "--optimizer sgd --lr 5e-2 --batch 128 --clip 1 --depth 3",
    "--optimizer sgd --lr 1e-3 --batch 16 --bf16 --warmup 10",
    "--optimizer adam --lr 2e-3 --batch 48 --dropout 0.3",
    "--optimizer adam --lr 5e-3 --batch 32 --width 12 --accumulate 2",
    "--optimizer adamw --lr 3e-3 --batch 64 --dropout 0.1 --bf16",
    "--optimizer adamw --lr 1e-3 --batch 8 --depth 4",
    "--optimizer rmsprop --lr 1e-3 --batch 32 --clip 5",
    "--optimizer rmsprop --lr 5e-4 --batch 100 --depth 1 --bf16",
    "--optimizer adagrad --lr 1e-2 --batch 32 --dropout 0.5",
    "--optimizer adagrad --lr 5e-2 --batch 24 --width 4 --accumulate 3",
    "--optimizer sgd --lr 1e-2 --batch 32 --freeze-features",
)
GPT = (
    "--optimizer adamw --lr 1e-3 --batch 8",
    "--optimizer adamw --lr 3e-3 --batch 4 --depth 4 --dropout 0.1 --warmup 10",
    "--optimizer adamw --lr 3e-4 --batch 16 --bf16 --accumulate 2",
    "--optimizer adam --lr 1e-3 --batch 8 --width 48 --clip 0",
    "--optimizer adam --lr 5e-4 --batch 12 --length 48 --dropout 0.2 --bf16",
    "--optimizer sgd --lr 0.1 --batch 8 --depth 1",
    "--optimizer sgd --lr 3e-2 --batch 6 --clip 0.5 --warmup 5 --accumulate 3",
    "--optimizer rmsprop --lr 5e-4 --batch 8 --heads 2",
    "--optimizer rmsprop --lr 1e-3 --batch 10 --dropout 0.3 --depth 3",
    "--optimizer adagrad --lr 1e-2 --batch 8 --bf16",
)
TWO_RANKS = (
    Program("cnn.py", "--optimizer sgd --lr 2e-2 --batch 16 --clip 1", ranks=2),
    Program("cnn.py", "--optimizer adam --lr 1e-3 --batch 32 --bf16 --dropout 0.2", ranks=2),
    Program("gpt.py", "--optimizer adamw --lr 2e-3 --batch 6 --depth 3", ranks=2),
    Program("gpt.py", "--optimizer sgd --lr 5e-2 --batch 8 --clip 0 --warmup 5", ranks=2),
)


def healthy_programs(steps):
    programs = [Program("cnn.py", arguments) for arguments in CNN]
    programs += [Program("gpt.py", arguments) for arguments in GPT]
    programs += TWO_RANKS
    return [
        Program(program.script, f"--steps {steps} --seed {seed} {program.arguments}", program.ranks)
        for seed, program in enumerate(programs, 100)
    ]


def count_findings(tocsin, steps):
    runs = tocsin.in_parallel(
        tocsin.record, [(f"reference-{i}", program) for i, program in enumerate(REFERENCES, 1)]
    )
    invariants = tocsin.infer(runs)
    programs = healthy_programs(steps)
    reports = tocsin.in_parallel(
        tocsin.watch,
        [(f"healthy-{i}", program, invariants) for i, program in enumerate(programs, 1)],
    )
    findings = 0
    for program, report in zip(programs, reports):
        findings += len(report["findings"])
        if report["holds"] == 0:
            raise DemoError(f"nothing could be judged: {program}")
        for finding in report["findings"]:
            print(f"false alarm: {program}\n  step {finding['step']}: {finding['rendered']}")
    print(f"figure healthy_runs {len(programs)} runs")
    print(f"figure healthy_findings {findings} findings")
    return findings


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tocsin", default="build/tocsin", help="the command")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--keep", type=Path, help="keep recordings and reports in this new folder")
    args = parser.parse_args()
    if args.keep:
        args.keep.mkdir(parents=True)
    with nullcontext(args.keep) if args.keep else tempfile.TemporaryDirectory() as folder:
        try:
            findings = count_findings(Tocsin(args.tocsin, folder, args.jobs), args.steps)
            return 0 if findings == 0 else 1
        except DemoError as error:
            print(f"healthy runs: {error}", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main())
