"""Studies of false alarms and of detection, over healthy programs and known mistakes.

Programs: those of bench/programs/healthy, with several seeds each; the references and twins of
tests/corpus, one run each. Mistakes: the bugs of tests/corpus, and mistakes made mechanically in
the programs (studies/altered.py). docs/performance.md tells the method and the figures.

  within               learned from two seeds of a program, on its other seeds
  cross-configuration  learned from two seeds of a program, on it with other options
  cross-program        learned from K programs drawn at random, on all others
  cross-class          learned from K programs of one class, on programs of the other classes

An invariant is triggered by a run if it could be judged, and not trivial if some mistake violates
it.
"""

import argparse
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/corpus"))

from run_corpus import CorpusError  # noqa: E402
from studies import altered, detection, loss_curves, matrix  # noqa: E402
from studies.recordings import (  # noqa: E402
    Run,
    Studio,
    StudyError,
    changed_runs,
    read_programs,
    repeated_runs,
)
from studies.verdicts import Court, Rates  # noqa: E402

FIGURES = {
    "fp_within_pct": ("within", "percent_triggered"),
    "fp_cross_configuration_pct": ("cross-configuration", "percent_triggered"),
    "fp_cross_pct": ("cross-program, 5 inputs", "percent_triggered"),
    "fp_two_inputs_pct": ("cross-program, 2 inputs", "percent_triggered"),
    "fp_cross_class_pct": ("cross-class, 5 inputs", "percent_triggered"),
    "fp_non_trivial_pct": ("cross-program, 5 inputs", "percent_non_trivial"),
    "fp_runs_with_finding_pct": ("cross-program, 5 inputs", "percent_runs"),
}


def by_program(recorded):
    runs = {}
    for run, path in recorded.items():
        runs.setdefault(run.program, []).append(path)
    return runs


def spread(counts):
    return f"{sum(counts) / len(counts):.1f} ({min(counts)}-{max(counts)})"


class Study:
    def __init__(self, studio, pool, programs, args):
        self.studio, self.pool, self.programs, self.args = studio, pool, programs, args
        self.court = Court(studio, pool)
        self.results = {}

    def record(self):
        record, args = self.studio.record_all, self.args
        self.corpus, self.cases = self.studio.record_corpus(self.pool)
        runs = [Run(program, seed) for seed in range(args.seeds) for program in self.programs]
        same = record(runs, self.pool)
        self.healthy = {p: runs for p, runs in by_program(same).items() if len(runs) > 1}
        programs = list(self.healthy)
        wrong = changed_runs(programs, altered.MISTAKES, altered.MISTAKES_OF_RANKS, args.mistakes)
        other = changed_runs(programs, altered.VARIATIONS, (), args.variations)
        self.wrong = record(wrong, self.pool)
        self.varied = by_program(record(other, self.pool))
        print(f"{len(same)} runs of {len(programs)} programs; {len(self.wrong)} of {len(wrong)} "
              f"mistakes and {sum(map(len, self.varied.values()))} of {len(other)} variations "
              "had something to change and ran through")  # fmt: skip

    def learn(self):
        court = self.court
        self.trials = matrix.plan_matrix(
            court, self.healthy, self.varied, self.corpus, self.args.draws
        )
        pools = {
            "the references": {n: [r] for n, r in self.corpus["reference"].items()},
            "the programs": {p.name: runs for p, runs in self.healthy.items()},
        }
        self.detecting = {
            title: detection.learn_inputs(court, title, pool, 2 * self.args.draws)
            for title, pool in pools.items()
        }
        court.learn("the references", self.corpus["reference"].values())
        court.learn_library(ROOT / "lib/invariant/library.jsonl")

    def repeat(self):
        """Runs of programs in other modes, selectively recorded for their own invariants."""
        own = {}
        for program in self.healthy:
            own[program] = self.studio.folder / f"{program.name}.jsonl"
            self.court.infer(self.healthy[program][:2], own[program])
        runs = repeated_runs(self.healthy, self.args.seeds, self.args.repeats)
        self.repeated = self.studio.record_all(runs, self.pool, own)

    def check(self):
        healthy = [run for runs in self.healthy.values() for run in runs]
        varied = [run for runs in self.varied.values() for run in runs]
        twins = [*self.corpus["reference"].values(), *self.corpus["healthy"].values()]
        wrong = [*self.wrong.values(), *self.corpus["bug"].values()]
        self.runs = {"healthy": healthy + varied + twins, "wrong": wrong}
        self.court.check(healthy + varied + twins + wrong + list(self.repeated.values()))
        self.caused = self.find_caused()
        self.non_trivial = set().union(*self.caused.values())

    def find_caused(self):
        """{run with a mistake: what it violates, and the program without the mistake does not}"""
        without = {path: self.healthy[run.program] for run, path in self.wrong.items()}
        for name, path in self.corpus["bug"].items():
            without[path] = [self.corpus["healthy"][name.replace("-bug", "-healthy")]]
        reports = self.court.reports
        return {
            path: reports[path].violated.difference(*(reports[run].violated for run in same))
            for path, same in without.items()
        }

    # ---- results -------------------------------------------------------------------------------

    def report_matrix(self):
        rates, alarms = matrix.judge(self.court, self.trials, self.non_trivial)
        print(f"\nfalse alarms\n{'':36}{Rates.HEAD}")
        for row, of_row in sorted(rates.items()):
            print(f"{row:36}{of_row}")
        self.results["rates"] = {
            row: {**vars(r), "percent": r.percent_triggered} for row, r in rates.items()
        }
        print("\nviolated in healthy runs (runs, invariant):")
        ranked = sorted(alarms.items(), key=lambda item: (-len(item[1]), item[0]))
        for (code, _, sentence), runs in ranked[:40]:
            print(f"  {len(runs):3} {code} {sentence}\n        {', '.join(sorted(runs))[:200]}")
        self.results["alarms"] = [
            {
                "code": code,
                "sentence": sentence,
                "runs": {run: sorted(set(rows)) for run, rows in runs.items()},
            }
            for (code, _, sentence), runs in ranked
        ]
        return rates

    def report_silence(self):
        """Each program by its own invariants, in each mode; and all healthy runs by the library."""
        print("\nruns of programs checked against their own invariants")
        modes = {}
        for program, runs in self.healthy.items():
            modes.setdefault("full", []).extend((program, path) for path in runs)
        for run, path in self.repeated.items():
            mode = ["selective"] * run.selective + ["sampled"] * run.sampled
            modes.setdefault(", ".join(mode), []).append((run.program, path))
        total = 0
        for mode, runs in modes.items():
            rates = Rates()
            for program, path in runs:
                own = self.own(program)
                rates.add(own, self.court.reports[path], self.non_trivial)
                for finding in self.court.reports[path].of(own):
                    print(f"  {path.name}: {finding['code']} {finding['sentence']} "
                          f"({finding['rendered']})")  # fmt: skip
            total += rates.violated
            print(f"{mode:20} {rates.violated} of {rates.triggered} violated in {rates.runs} runs")
            self.results.setdefault("silence", {})[mode] = vars(rates)
        library = Rates()
        for path in self.runs["healthy"]:
            report = self.court.reports[path]
            library.add(self.court.sets["library"], report, self.non_trivial)
            for finding in report.of(self.court.sets["library"]):
                print(f"  library: {path.name}: {finding['code']} {finding['rendered']}")
        print(f"shipped library      {library.violated} violated in {library.runs} healthy runs")
        self.results["library"] = vars(library)
        return total

    def report_transfer(self):
        rows = matrix.transfer(self.court, self.healthy, self.corpus)
        print("\ninvariants of two seeds of a program, by the number of programs they apply to")
        self.results["transfer"] = []
        for low, high in ((1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (17, 32), (33, 1000)):
            inside = [row for row in rows if low <= row[1] <= high]
            everywhere = sum(row[1] == row[2] for row in inside)
            share = 100 * len(inside) / max(1, len(rows))
            print(f"  {low:3} to {high:4}: {len(inside):4} ({share:4.1f} %), "
                  f"{everywhere} of them hold in all")  # fmt: skip
            self.results["transfer"].append([low, high, len(inside), everywhere])

    def report_detection(self):
        reports = {n: self.court.reports[run] for n, run in self.corpus["bug"].items()}
        library = self.court.sets["library"]
        print(f"\nfound of {len(reports)} bugs of the corpus, by the number of inputs "
              "(mean, least and most over draws; with the library)")  # fmt: skip
        for title, sets in self.detecting.items():
            for inputs, names in sets.items():
                alone = self.found(reports, [self.court.sets[name] for name in names])
                both = self.found(reports, [self.court.sets[name] | library for name in names])
                print(f"  {inputs} of {title}: {spread(alone)}; {spread(both)}")
                self.results.setdefault("detection", []).append([title, inputs, alone, both])

    def found(self, reports, sets):
        return [len(detection.found_cases(self.cases, reports, chosen)) for chosen in sets]

    def report_baselines(self):
        """Share of runs with an alarm: healthy ones, bugs of the corpus, mistakes in programs."""
        healthy = [(p, run) for p, runs in self.healthy.items() for run in runs]
        kinds = {
            "healthy": [(None, run) for run in self.corpus["healthy"].values()] + healthy,
            "corpus": [(None, run) for run in self.corpus["bug"].values()],
            "mistakes": [(run.program, path) for run, path in self.wrong.items()],
        }
        curves = {
            kind: list(self.pool.map(lambda r: loss_curves.loss_curve(self.studio, r[1]), runs))
            for kind, runs in kinds.items()
        }
        rows = {f"{n}, {t}": of_row for (n, t), of_row in loss_curves.measure(curves).items()}
        for title in ("library", "the references"):
            chosen = self.court.sets[title]
            rows[title] = {k: self.alarmed(runs, lambda _: chosen) for k, runs in kinds.items()}
        rows["both"] = {k: self.alarmed(runs, self.judges) for k, runs in kinds.items()}
        rows["both, and two seeds of the program"] = {
            k: self.alarmed(runs, self.judges_and_own) for k, runs in kinds.items()
        }
        print("\nruns with any alarm, of those judged")
        print(f"{'':44}{'healthy':>16}{'corpus bugs':>16}{'mistakes':>16}")
        for title, of_row in rows.items():
            cells = (f"{hit} of {n} ({100 * hit / max(1, n):.0f} %)" for hit, n in of_row.values())
            print(f"{title:44}" + "".join(f"{cell:>16}" for cell in cells))
        self.results["baselines"] = rows

    def own(self, program):
        return self.court.sets[f"{program.name}, seeds 0 and 1"] if program else frozenset()

    def judges(self, _):
        return self.court.sets["library"] | self.court.sets["the references"]

    def judges_and_own(self, program):
        return self.judges(program) | self.own(program)

    def alarmed(self, runs, chosen):
        """(runs with a finding that their mistake, if they have one, has caused; runs)"""
        reports = self.court.reports
        violated = (
            self.caused.get(run, reports[run].violated) & chosen(program) for program, run in runs
        )
        return sum(map(bool, violated)), len(runs)

    def report_mistakes(self):
        print("\nruns with a mistake that is found: by the library; by it, the references and the "
              "program's own")  # fmt: skip
        kinds = {}
        for run, path in self.wrong.items():
            kinds.setdefault(run.change, []).append((run.program, path))
        for kind, runs in sorted(kinds.items()):
            library = self.alarmed(runs, lambda _: self.court.sets["library"])
            every = self.alarmed(runs, self.judges_and_own)
            print(f"  {kind:24} {library[0]:3} {every[0]:3} of {len(runs)}")
            self.results.setdefault("mistakes", {})[kind] = [library[0], every[0], len(runs)]


def run_study(args):
    programs = read_programs(args.programs)
    studio = Studio(args.tocsin, args.folder, args.corpus, args.keep_stale, args.as_recorded)
    with ThreadPoolExecutor(args.jobs) as pool:
        study = Study(studio, pool, programs, args)
        study.record()
        study.repeat()
        if args.record_only:
            return
        study.learn()
        study.check()
        rates = study.report_matrix()
        own = study.report_silence()
        study.report_transfer()
        study.report_detection()
        study.report_baselines()
        study.report_mistakes()
    known = len(study.corpus["reference"]) + len(study.corpus["healthy"])
    print(f"\nfigure fp_programs {len(study.healthy) + known} programs")
    print(f"figure fp_own_violations {own} violations")
    for name, (row, member) in FIGURES.items():
        if row in rates:
            print(f"figure {name} {getattr(rates[row], member):.4f} percent")
    path = Path(args.folder).parent / "fp-study.json"
    path.write_text(json.dumps(study.results, indent=1), encoding="utf-8")
    if studio.failed:
        raise StudyError(f"{len(studio.failed)} runs failed: {', '.join(studio.failed)}")


def main():
    out = os.environ.get("TOCSIN_BENCH_OUT", str(ROOT / "build/bench"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tocsin", default=os.environ.get("TOCSIN", str(ROOT / "build/tocsin")))
    parser.add_argument("--folder", default=f"{out}/fp", help="for recordings of programs")
    parser.add_argument("--corpus", default=str(ROOT / "build/corpus"), help="for the corpus'")
    parser.add_argument("--programs", default="", help="only those matching this expression")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--mistakes", type=int, default=3, help="of each program")
    parser.add_argument("--variations", type=int, default=2, help="of each program")
    parser.add_argument("--repeats", type=int, default=3, help="in other modes of recording")
    parser.add_argument("--draws", type=int, default=10, help="sets of inputs for each size")
    parser.add_argument("--record-only", action="store_true")
    parser.add_argument("--keep-stale", action="store_true",
                        help="do not record again because the recorder has changed")  # fmt: skip
    parser.add_argument("--as-recorded", action="store_true",
                        help="record nothing: study the recordings that there are")  # fmt: skip
    args = parser.parse_args()
    try:
        run_study(args)
    except (CorpusError, StudyError) as error:
        print(f"fp: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
