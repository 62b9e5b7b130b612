"""Which programs are studied, and recordings of them, kept until program or recorder changes."""

import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

from run_corpus import HERE as CORPUS
from run_corpus import Corpus, digest_files, read_cases, read_references, recordings_of

from studies import altered

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAMS = ROOT / "bench/programs/healthy"
SECONDS = 300


class StudyError(Exception):
    pass


@dataclass(frozen=True)
class Program:
    name: str
    path: Path
    group: str
    ranks: int = 1


@dataclass(frozen=True)
class Run:
    """A program with a seed; perhaps changed, perhaps recorded in another mode."""

    program: Program
    seed: int
    change: str = ""
    selective: bool = False
    sampled: bool = False

    @property
    def name(self):
        marks = [self.change] if self.change else []
        marks += ["selective"] * self.selective + ["sampled"] * self.sampled
        return "-".join([self.program.name, str(self.seed), *marks])

    def command(self):
        command = [str(self.program.path), str(self.seed)]
        if self.change:
            command = [altered.__file__, self.change, *command]
        if self.program.ranks > 1:
            command = [str(CORPUS / "ranks.py"), str(self.program.ranks), *command]
        return [sys.executable, *command]


def read_programs(wanted=""):
    """The programs of bench/programs/healthy whose names match the expression."""
    entries = json.loads((PROGRAMS / "programs.json").read_text(encoding="utf-8"))
    entries = entries if isinstance(entries, list) else entries["programs"]
    return [
        Program(e["name"], PROGRAMS / f"{e['name']}.py", e["class"], e.get("ranks", 1))
        for e in entries
        if re.search(wanted, e["name"])
    ]


class Studio:
    """Makes recordings of programs, and takes those of the corpus."""

    def __init__(self, tocsin, folder, corpus_folder, keep_stale=False, as_recorded=False):
        self.corpus = Corpus(tocsin, corpus_folder, keep_stale)
        self.keep_stale, self.as_recorded = keep_stale, as_recorded
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.failed = []

    def call(self, *arguments, **environment):
        done = subprocess.run(
            [self.corpus.tocsin, *map(str, arguments)],
            env={**self.corpus.environment, **environment}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, errors="replace", timeout=2 * SECONDS,
        )  # fmt: skip
        return done

    def output_of(self, *arguments, accepted=(0, 1, 3)):
        """What a command prints; a failure of it is one of the study."""
        done = self.call(*arguments)
        if done.returncode not in accepted:
            raise StudyError(f"{' '.join(map(str, arguments))[:2000]}: {done.stderr[-2000:]}")
        return done.stdout

    def record(self, run, invariants=None):
        """The folder of a recording; None of a run that failed, and of a change that met nothing
        to change or was not silent. Selective: only what `invariants` need."""
        path = self.folder / run.name
        mark = self.folder / f"{run.name}.made-from"
        sources = [run.program.path, CORPUS / "ranks.py"]
        if run.change:
            sources.append(Path(altered.__file__))
        sources = digest_files(sources)
        if mark.exists():
            program, recorder = mark.read_text().split()
            if program == sources and (self.keep_stale or recorder == self.corpus.recorder):
                return path if path.exists() else None
        if self.as_recorded:
            return None
        mark.unlink(missing_ok=True)
        mode = ["run", "-i", invariants, "-r", os.devnull] if run.selective else ["record"]
        done = self.call(
            *mode, "--quiet", "--force", "-o", path, "--", "timeout", "--signal=KILL", SECONDS,
            *run.command(), **({"TOCSIN_SAMPLE": "3"} if run.sampled else {}),
        )  # fmt: skip
        if done.returncode != 0:
            shutil.rmtree(path, ignore_errors=True)
            if not run.change:
                self.failed.append(run.name)
                print(f"{run.name} failed ({done.returncode}): {done.stderr[-2000:]}",
                      file=sys.stderr)  # fmt: skip
                return None
        elif not any(path.glob("process-*.trace")):
            raise StudyError(f"{run.name}: nothing was recorded: {done.stderr[-2000:]}")
        mark.write_text(f"{sources} {self.corpus.recorder}\n")
        return path if path.exists() else None

    def record_all(self, runs, pool, invariants=None):
        """{run: folder}, without those that gave nothing. `invariants`: by program."""
        paths = pool.map(lambda r: self.record(r, invariants and invariants[r.program]), runs)
        return {run: path for run, path in zip(runs, paths) if path is not None}

    def record_corpus(self, pool):
        """References, twins and bugs, as {name: folder}; and the cases by the names of bugs."""
        cases = read_cases([], quick=False)
        wanted = {"reference": read_references(quick=False), "healthy": [], "bug": []}
        for case in cases:
            for recording in recordings_of(case):
                wanted[recording.name.rsplit("-", 1)[1]].append(recording)
        runs = {
            kind: dict(zip((r.name for r in recordings), pool.map(self.corpus.record, recordings)))
            for kind, recordings in wanted.items()
        }
        return runs, {f"{case['id']}-bug": case for case in cases}


def changed_runs(programs, changes, changes_of_ranks, count):
    """`count` changes of each program, in turn, so that each change meets several programs."""
    runs = []
    for program in programs:
        offered = changes_of_ranks + changes if program.ranks > 1 else changes
        first = 0 if program.ranks > 1 else zlib.crc32(program.name.encode())
        for turn in range(min(count, len(offered))):
            change = offered[(first + turn) % len(offered)]
            runs.append(Run(program, seed=turn, change=change.__name__))
    return runs


def repeated_runs(programs, seeds, count):
    """`count` runs of each program in other modes of recording, in turn, later seeds first."""
    modes = ({"selective": True}, {"sampled": True}, {"selective": True, "sampled": True})
    return [
        Run(program, seeds - 1 - turn % seeds, **modes[turn % len(modes)])
        for program in programs
        for turn in range(count)
    ]
