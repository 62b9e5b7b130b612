"""False alarms: what healthy programs violate of invariants that were learned from others.

The programs are the references and the healthy twins of tests/corpus, one recording each.

  within  a program's invariants, learned from two of its runs, on a third; seeds differ
  cross   invariants of K programs, drawn at random, on every program that was not drawn

  within  invariants learned from two runs of a program, on a third of it; the seeds differ
summed over runs; beside it stands the share of runs with any finding.
"""

import argparse
import json
import os
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/corpus"))

from run_corpus import Corpus, CorpusError, read_cases, read_references, recordings_of  # noqa: E402

SEEDS = (0, 10000, 20000)


class Tally:
    """Violated and triggered invariants, and runs with a finding, over many checks."""

    def __init__(self):
        self.violated = self.triggered = self.runs = self.alarmed = 0

    def add(self, report):
        self.violated += report["violated"]
        self.triggered += report["violated"] + report["holds"]
        self.runs += 1
        self.alarmed += report["violated"] > 0

    @property
    def percent(self):
        return 100 * self.violated / max(1, self.triggered)

    @property
    def percent_of_runs(self):
        return 100 * self.alarmed / max(1, self.runs)

    def __str__(self):
        return (
            f"{self.violated} of {self.triggered} triggered ({self.percent:.3f} %), "
            f"{self.alarmed} of {self.runs} runs ({self.percent_of_runs:.1f} %)"
        )


def call(corpus, *arguments):
    done = corpus.call(*arguments)
    if done.returncode not in (0, 1, 3):
        raise CorpusError(f"{' '.join(map(str, arguments))}: {done.stderr}")
    return done


def count(corpus, run):
    """The examples of one run, from which invariants of any set of runs are made at once."""
    path = corpus.folder / f"{run.name}.examples"
    call(corpus, "infer", "--quiet", "--force", run, "--keep", path)
    return path


def infer(corpus, examples, name):
    path = corpus.folder / f"{name}.jsonl"
    added = [argument for path in examples for argument in ("--add", path)]
    call(corpus, "infer", "--quiet", "--force", *added, "-o", path)
    return path


def check(corpus, invariants, run, tally, seen):
    report = json.loads(call(corpus, "check", "-i", invariants, "--format", "json", run).stdout)
    tally.add(report)
    for finding in report["findings"]:
        runs = seen.setdefault((finding["code"], finding["sentence"]), set())
        runs.add(Path(report["run"]).name)


def measure_within(corpus, pool, seen):
    wanted = [
        replace(reference, name=f"{reference.name}-{seed}", arguments=(str(seed),))
        for reference in read_references(quick=False)
        for seed in SEEDS
    ]
    runs = list(pool.map(corpus.record, wanted))
    tally = Tally()
    for first in range(0, len(runs), len(SEEDS)):
        *learned, held_out = runs[first : first + len(SEEDS)]
        name = f"within-{held_out.name}"
        invariants = infer(corpus, [count(corpus, run) for run in learned], name)
        check(corpus, invariants, held_out, tally, seen)
    return tally


def measure_cross(corpus, pool, runs, examples, inputs, draws, seen):
    tally = Tally()
    chosen = random.Random(inputs)
    for draw in range(draws):
        drawn = set(chosen.sample(range(len(runs)), inputs))
        learned = [examples[index] for index in sorted(drawn)]
        invariants = infer(corpus, learned, f"cross-{inputs}-{draw}")
        others = [run for index, run in enumerate(runs) if index not in drawn]
        list(pool.map(lambda run: check(corpus, invariants, run, tally, seen), others))
    return tally


def measure(corpus, jobs, draws):
    programs = read_references(quick=False)
    for case in read_cases([], quick=False):
        programs += [r for r in recordings_of(case) if r.name.endswith("-healthy")]
    seen = {}
    with ThreadPoolExecutor(jobs) as pool:
        runs = list(pool.map(corpus.record, programs))
        examples = list(pool.map(lambda run: count(corpus, run), runs))
        tallies = {"within": measure_within(corpus, pool, seen)}
        for inputs in (2, 3, 5):
            tallies[f"cross, {inputs} inputs"] = measure_cross(
                corpus, pool, runs, examples, inputs, draws, seen
            )
    for name, tally in tallies.items():
        print(f"{name}: {tally}")
    print("violated most (runs, invariant):")
    for (code, sentence), hit in sorted(seen.items(), key=lambda item: -len(item[1]))[:10]:
        print(f"  {len(hit):3} {code} {sentence}")
    print(f"figure fp_programs {len(programs)} programs")
    print(f"figure fp_within_pct {tallies['within'].percent:.3f} percent")
    print(f"figure fp_cross_pct {tallies['cross, 5 inputs'].percent:.3f} percent")
    print(f"figure fp_two_inputs_pct {tallies['cross, 2 inputs'].percent:.3f} percent")
    print(f"figure fp_alarmed_runs_pct {tallies['cross, 5 inputs'].percent_of_runs:.3f} percent")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tocsin", default=os.environ.get("TOCSIN", str(ROOT / "build/tocsin")))
    parser.add_argument("--folder", default=str(ROOT / "build/corpus"), help="for recordings")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--draws", type=int, default=10, help="sets of inputs for each size")
    parser.add_argument("--keep-stale", action="store_true",
                        help="do not record again because the recorder has changed")  # fmt: skip
    args = parser.parse_args()
    try:
        measure(Corpus(args.tocsin, args.folder, args.keep_stale), args.jobs, args.draws)
    except CorpusError as error:
        print(f"fp: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
