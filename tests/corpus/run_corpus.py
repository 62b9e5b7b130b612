"""Record the corpus and judge what Tocsin finds in it; see README.md.

Recordings are kept and made again only when the program or the recorder has changed. Each is
checked against the shipped library, against what is inferred from the references, and against both.
Exit status 0 only if no healthy run has a finding, all recordings could be made, and, with
--all-found, all cases are found.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SECONDS = 240
JUDGES = ("library", "inferred", "both")


class CorpusError(Exception):
    pass


@dataclass(frozen=True)
class Recording:
    """One run of one program."""

    name: str
    path: Path
    arguments: tuple = ()
    ranks: int = 1
    modules: str = ""
    may_fail: bool = False

    def command(self):
        launcher = [str(HERE / "ranks.py"), str(self.ranks)] if self.ranks > 1 else []
        return [sys.executable, *launcher, str(self.path), *self.arguments]


def digest_files(paths):
    total = hashlib.sha256()
    for path in paths:
        total.update(path.name.encode() + b"\0" + path.read_bytes())
    return total.hexdigest()


class Corpus:
    def __init__(self, tocsin, folder, keep_stale):
        self.tocsin = str(Path(tocsin).resolve())
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        package = Path(self.tocsin).parent / "python/tocsin"
        parts = sorted(p for p in package.rglob("*") if p.suffix in (".py", ".so"))
        self.recorder = "any" if keep_stale else digest_files(parts)
        # One thread a process: several run at a time, and the programs are tiny.
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        for name in [name for name in self.environment if name.startswith("TOCSIN_")]:
            del self.environment[name]
        self.has_library = "--library" in self.call("check", "--help").stdout

    def call(self, *arguments, seconds=600):
        return subprocess.run(
            [self.tocsin, *map(str, arguments)],
            env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=seconds,
        )  # fmt: skip

    def record(self, recording):
        run = self.folder / recording.name
        mark = self.folder / f"{recording.name}.made-from"
        made_from = digest_files([recording.path, HERE / "ranks.py"]) + " " + self.recorder
        if run.exists() and mark.exists():
            kept = mark.read_text()
            if kept == made_from or self.recorder == "any" and kept[:64] == made_from[:64]:
                return run
        mark.unlink(missing_ok=True)
        module = ["--module", recording.modules] if recording.modules else []
        done = self.call(
            "record", "--quiet", "--force", "-o", run, *module, "--",
            "timeout", "--signal=KILL", SECONDS, *recording.command(),
            seconds=2 * SECONDS,
        )  # fmt: skip
        if not run.exists() or done.returncode != 0 and not recording.may_fail:
            why = done.stderr[-2000:]
            raise CorpusError(f"{recording.name} failed ({done.returncode}):\n{why}")
        if not any(run.glob("process-*.trace")):
            raise CorpusError(f"{recording.name}: nothing was recorded:\n{done.stderr[-2000:]}")
        mark.write_text(made_from)
        return run

    def infer(self, runs):
        path = self.folder / "inferred.jsonl"
        done = self.call("infer", "--force", *runs, "-o", path)
        if done.returncode != 0:
            raise CorpusError(f"inference failed ({done.returncode}):\n{done.stderr}")
        return path

    def findings(self, run, judge, invariants):
        """What `tocsin check` reports, in its order; None where that judge does not exist."""
        if judge != "inferred" and not self.has_library:
            return None
        chosen = {
            "library": [],
            "inferred": ["-i", invariants],
            "both": ["-i", invariants, "--library"],
        }[judge]
        done = self.call("check", *chosen, "--format", "json", run)
        try:
            return json.loads(done.stdout)["findings"]
        except (ValueError, KeyError):
            raise CorpusError(f"check of {run.name} ({done.returncode}): {done.stderr}") from None


def is_about(case, finding):
    text = finding["rendered"]
    entity = f"{finding['entity'] or ''}\n{text}"
    return (
        finding["code"] in case["relation"]
        and re.search(case["entity"], entity) is not None
        and re.search(case["cause"], text) is not None
    )


def judge_case(case, findings):
    """{found, late, step, cause_first, early, first}: see README.md."""
    if findings is None:
        return None
    trigger = case["trigger"]["step"]
    about = [f for f in findings if is_about(case, f)]
    steps = [f["step"] for f in about if f["step"] is not None]
    step = min(steps, default=None)
    at_end = case["trigger"]["kind"] == "end" and bool(about)
    found = at_end or step is not None and step <= trigger + 1
    return {
        "found": found,
        "late": bool(about) and not found,
        "step": step,
        "cause_first": found and is_about(case, findings[0]),
        "findings": len(findings),
        "first": findings[0]["rendered"] if findings else None,
        "first_step": findings[0]["step"] if findings else None,
    }


def describe(verdict):
    if verdict is None:
        return "-"
    if verdict["found"]:
        return f"{'cause first' if verdict['cause_first'] else 'found'} @{verdict['step']}"
    if verdict["late"]:
        return f"late @{verdict['step']}"
    return f"{verdict['findings']} other" if verdict["findings"] else "silent"


def recordings_of(case):
    path = HERE / "cases" / f"{case['program']}.py"
    for variant in ("bug", "healthy"):
        if variant == "bug" and case.get("control"):
            continue
        yield Recording(
            f"{case['id']}-{variant}", path, (variant,), case.get("ranks", 1),
            case.get("modules", ""), variant == "bug" and case.get("breaks", False),
        )  # fmt: skip


def read_cases(names, quick):
    cases = json.loads((HERE / "cases.json").read_text(encoding="utf-8"))["cases"]
    unknown = set(names) - {case["id"] for case in cases}
    if unknown:
        raise CorpusError(f"no such case: {', '.join(sorted(unknown))}")
    if quick:
        cases = [case for case in cases if case.get("quick")]
    return [case for case in cases if not names or case["id"] in names]


def read_references(quick):
    entries = json.loads((HERE / "references.json").read_text(encoding="utf-8"))["references"]
    entries = [e for e in entries if e.get("quick") or not quick]
    return [
        Recording(f"reference-{e['program']}", HERE / "references" / f"{e['program']}.py",
                  ranks=e.get("ranks", 1), modules=e.get("modules", ""))
        for e in entries
    ]  # fmt: skip


def run_all(corpus, cases, references, jobs):
    """Per case: its verdict by each judge, and the number of findings in its healthy twin."""
    wanted = references + [r for case in cases for r in recordings_of(case)]
    with ThreadPoolExecutor(jobs) as pool:
        runs = dict(zip((r.name for r in wanted), pool.map(corpus.record, wanted)))
    invariants = corpus.infer([runs[r.name] for r in references])
    results = []
    for case in cases:
        result = {"id": case["id"], "program": case["program"]}
        for judge in JUDGES:
            healthy = corpus.findings(runs[f"{case['id']}-healthy"], judge, invariants)
            bug = None
            if not case.get("control"):
                bug = corpus.findings(runs[f"{case['id']}-bug"], judge, invariants)
            result[judge] = {
                "bug": judge_case(case, bug),
                "healthy": None if healthy is None else [f["rendered"] for f in healthy],
            }
        results.append(result)
    return results


def print_results(results, explain):
    print(f"{'case':40} " + " ".join(f"{judge:17}" for judge in JUDGES) + " twin")
    for result in results:
        verdicts = [result[judge]["bug"] for judge in JUDGES]
        alarms = [result[judge]["healthy"] for judge in JUDGES]
        counts = "/".join("-" if alarm is None else str(len(alarm)) for alarm in alarms)
        cells = " ".join(f"{describe(verdict):17}" for verdict in verdicts)
        print(f"{result['program']:40} {cells} {counts}")
        if explain:
            for judge, verdict, alarm in zip(JUDGES, verdicts, alarms):
                if verdict and verdict["first"] and not verdict["cause_first"]:
                    print(f"    {judge}: first: step {verdict['first_step']}: {verdict['first']}")
                for text in alarm or ():
                    print(f"    {judge}: FALSE ALARM: {text}")


def summarise(results):
    """The line of each judge; the last that exists is returned as (found, bugs, clean, runs)."""
    last = None
    for judge in JUDGES:
        verdicts = [r[judge]["bug"] for r in results if r[judge]["bug"]]
        alarms = [r[judge]["healthy"] for r in results if r[judge]["healthy"] is not None]
        if not alarms:
            continue
        found = sum(v["found"] for v in verdicts)
        late = sum(v["late"] for v in verdicts)
        cause = sum(v["cause_first"] for v in verdicts)
        clean = sum(not alarm for alarm in alarms)
        print(f"{judge}: found {found} of {len(verdicts)}, late {late}, cause first {cause}, "
              f"clean {clean} of {len(alarms)}")  # fmt: skip
        last = (found, len(verdicts), clean, len(alarms))
    return last


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", help="ids; default: all")
    parser.add_argument("--quick", action="store_true", help="only those marked as quick")
    parser.add_argument("--tocsin", default=str(ROOT / "build/tocsin"), help="the command")
    parser.add_argument("--folder", default=str(ROOT / "build/corpus"), help="for recordings")
    parser.add_argument("--jobs", type=int, default=2, help="recordings at a time")
    parser.add_argument("--keep-stale", action="store_true",
                        help="do not record again because the recorder has changed")
    parser.add_argument("--all-found", action="store_true", help="fail if a case is not found")
    parser.add_argument("--explain", action="store_true", help="print what was found first instead")
    args = parser.parse_args()
    try:
        corpus = Corpus(args.tocsin, args.folder, args.keep_stale)
        cases = read_cases(args.cases, args.quick)
        results = run_all(corpus, cases, read_references(args.quick), args.jobs)
    except (CorpusError, subprocess.TimeoutExpired) as error:
        print(f"corpus: {error}", file=sys.stderr)
        return 2
    (corpus.folder / "results.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    print_results(results, args.explain)
    found, bugs, clean, runs = summarise(results)
    print(f"corpus: found {found} of {bugs}, clean {clean} of {runs}")
    return 0 if clean == runs and (found == bugs or not args.all_found) else 1


if __name__ == "__main__":
    sys.exit(main())
