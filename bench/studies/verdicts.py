"""What invariants of many sets of runs say of many runs.

A run is counted once (`infer --keep`); a set of them is then learned from what was counted. All
sets together are one file of invariants, against which each run is checked once: an invariant is
judged by itself, so what a set says of a run is what its members say. Sets x runs cost sets + runs.
"""

import json
from dataclasses import dataclass, field


@dataclass
class Report:
    """A run checked against everything."""

    judged: dict
    findings: list
    violated: set = field(init=False)

    def __post_init__(self):
        self.violated = {finding["invariant"] for finding in self.findings}

    def of(self, invariants):
        return [finding for finding in self.findings if finding["invariant"] in invariants]


@dataclass
class Rates:
    """Violated invariants of all that were deployed, triggered, and triggered and not trivial."""

    violated: int = 0
    triggered: int = 0
    deployed: int = 0
    violated_non_trivial: int = 0
    triggered_non_trivial: int = 0
    runs: int = 0
    runs_with_finding: int = 0
    clusters: int = 0

    def add(self, invariants, report, non_trivial):
        triggered = invariants & report.judged.keys()
        violated = invariants & report.violated
        self.violated += len(violated)
        self.triggered += len(triggered)
        self.deployed += len(invariants)
        self.violated_non_trivial += len(violated & non_trivial)
        self.triggered_non_trivial += len(triggered & non_trivial)
        self.runs += 1
        self.runs_with_finding += bool(violated)
        self.clusters += len({finding["cluster"] for finding in report.of(violated)})

    @property
    def percent_triggered(self):
        return 100 * self.violated / max(1, self.triggered)

    @property
    def percent_deployed(self):
        return 100 * self.violated / max(1, self.deployed)

    @property
    def percent_non_trivial(self):
        return 100 * self.violated_non_trivial / max(1, self.triggered_non_trivial)

    @property
    def percent_runs(self):
        return 100 * self.runs_with_finding / max(1, self.runs)

    def __str__(self):
        return (
            f"{self.violated:6} of {self.triggered:8} {self.percent_triggered:8.3f} %"
            f" {self.percent_deployed:8.3f} % {self.percent_non_trivial:8.3f} %"
            f" {self.runs:7} {self.percent_runs:7.2f} % {self.clusters / max(1, self.runs):8.3f}"
        )

    HEAD = (
        f"{'violated of triggered':>31} {'of deployed':>6} {'non-trivial':>6}"
        f" {'checks':>5} {'alarmed':>9} {'clusters':>8}"
    )


class Court:
    """Sets of invariants by name, and the reports of runs on all of them."""

    def __init__(self, studio, pool):
        self.studio, self.pool = studio, pool
        self.sets = {}
        self.lines = {}
        self.reports = {}
        self.examples = {}

    def count(self, run):
        """The examples of a run, made once for this study."""
        if run not in self.examples:
            path = self.studio.folder / f"{run.name}.examples"
            self.studio.output_of("infer", "--quiet", "--force", run, "--keep", path)
            self.examples[run] = path
        return self.examples[run]

    def infer(self, runs, path):
        added = [word for run in sorted(runs) for word in ("--add", self.count(run))]
        self.studio.output_of("infer", "--quiet", "--force", "-j1", *added, "-o", path)
        return path

    def learn(self, name, runs):
        """The ids of the invariants of a set of runs."""
        path = self.infer(runs, self.studio.folder / f"set-{len(self.sets)}.jsonl")
        self.sets[name] = self.take(path)
        path.with_name(f"{path.name}.provenance.json").unlink(missing_ok=True)
        return self.sets[name]

    def learn_library(self, source):
        """The shipped library as a set of its own."""
        path = self.studio.folder / "library.jsonl"
        self.studio.output_of("merge", "--force", source, "-o", path)
        self.sets["library"] = self.take(path)

    def take(self, path):
        lines = {json.loads(line)["id"]: line for line in path.read_text().splitlines()[1:]}
        self.lines.update(lines)
        path.unlink()
        return frozenset(lines)

    def check(self, runs):
        """Reports on runs; every set must have been learned before."""
        path = self.studio.folder / "everything.jsonl"
        head = {"format": "tocsin-invariants", "version": 1, "count": len(self.lines)}
        lines = [self.lines[name] for name in sorted(self.lines)]
        path.write_text("\n".join([json.dumps(head, separators=(",", ":")), *lines]) + "\n")
        runs = [run for run in runs if run not in self.reports]
        self.reports.update(zip(runs, self.pool.map(lambda run: self.report(path, run), runs)))

    def report(self, invariants, run):
        text = self.studio.output_of(
            "check", "-i", invariants, "--format", "json", "--counts", "--all", run
        )
        report = json.loads(text)
        judged = {i["id"]: i["judged"] for i in report["invariants"] if i["judged"] > 0}
        return Report(judged, report["findings"])

    def sentence(self, invariant):
        return json.loads(self.lines[invariant])["text"]
