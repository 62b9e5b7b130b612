"""Inference and checking against TrainCheck 0.2.0, on the same records.

TrainCheck runs as it is published: an environment of its own in TOCSIN_BENCH_OUT/traincheck, with
this project's torch on its path, and TrainCheck with what else it needs from the package index. It
records a small CNN (programs/small_cnn.py) at two lengths, and infers; `tocsin import traincheck`
turns the same records into a run, and `tocsin infer -j1` infers from it. Time is processor time of
the whole process, start included, the least of three runs of ours; TrainCheck runs once. Importing
is timed apart: TrainCheck's own time includes reading its JSON, so the figure with import stands
beside.

infer_speedup_vs_traincheck   the smaller of the two lengths' quotients
infer_parity_pct              of TrainCheck's invariants of the longer run that survive a hold-out
                              run, those that --wide finds too: traincheck/parity.py
infer_rss_ratio               our peak memory by TrainCheck's, the larger of the two
infer_scaling_10x             time for a recording of 400 steps by that for 40 (demo GPT)
check_events_per_s            of that recording, with what was inferred from it
live_events_per_s             the same through --follow

Recordings are kept in TOCSIN_BENCH_OUT/infer: remove it to make them anew.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

import torch
from traincheck import parity

ROOT = Path(__file__).resolve().parent.parent
OUT = Path(os.environ.get("TOCSIN_BENCH_OUT", ROOT / "build/bench"))
TOCSIN = os.environ.get("TOCSIN", str(ROOT / "build/tocsin"))
WORK = OUT / "infer"
LENGTHS = {"short": 7, "long": 125}
MODES = {"": [], " --wide": ["--wide"]}
TIMES = 3


class Failure(Exception):
    pass


def measure(command, **options):
    """Processor seconds and peak KiB of a command; a failure is an error. GNU time reports the
    peak: what Python starts itself begins with the size of Python."""
    timer = shutil.which("time")
    if timer is None:
        raise Failure("GNU time is needed (Debian: apt install time)")
    peak = WORK / "peak"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(WORK / "last.log", "wb") as log:
        code = subprocess.call([timer, "-f", "%M", "-o", peak, *command], stdout=log, stderr=log,
                               **options)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if code != 0:
        tail = (WORK / "last.log").read_text(errors="replace")[-2000:]
        raise Failure(f"exit code {code}: {' '.join(map(str, command))}\n{tail}")
    seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return seconds, int(peak.read_text().split()[-1])


def least(command, times=TIMES):
    runs = [measure(command) for _ in range(times)]
    return min(seconds for seconds, _ in runs), max(kib for _, kib in runs)


def figure(name, value, unit):
    print(f"figure {name} {value:.6g} {unit}", flush=True)


# ---- TrainCheck ------------------------------------------------------------------------------


def traincheck():
    """The folder of TrainCheck's commands; made at the first call."""
    home = OUT / "traincheck"
    commands = home / "bin"
    if not (commands / "traincheck-infer").exists():
        print("TrainCheck 0.2.0 from the package index ...", flush=True)
        venv.create(home, with_pip=True)
        site = home / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
        (site / "torch_of_tocsin.pth").write_text(str(Path(torch.__file__).parent.parent) + "\n")
        subprocess.check_call([commands / "pip", "install", "--quiet", "traincheck==0.2.0"])
    return commands


def collect(commands, name, steps, **variables):
    folder = WORK / f"traincheck-{name}"
    if not (folder / "env_dump.txt").exists():
        script = WORK / "small_cnn.py"  # TrainCheck writes its own version beside it
        shutil.copy(ROOT / "bench/programs/small_cnn.py", script)
        environment = os.environ | {"STEPS": str(steps), "OMP_NUM_THREADS": "1"} | variables
        environment["PATH"] = f"{commands}:{environment['PATH']}"
        command = [commands / "traincheck-collect", "-p", script, "--models-to-track", "model"]
        measure([*command, "--output-dir", folder], cwd=WORK, env=environment)
    return folder


def records_of(folder):
    files = [*folder.glob("trace_*"), *folder.glob("proxy_log.json")]
    return sum(sum(1 for _ in open(file, "rb")) for file in files)


def theirs(commands, folder):
    """What TrainCheck takes to infer, kept beside the records; and how much it finds."""
    kept = folder / "infer.json"
    if not kept.exists():
        output = folder / "invariants.json"
        seconds, kib = measure([commands / "traincheck-infer", "-f", folder, "-o", output],
                               cwd=WORK)
        invariants = sum(1 for line in open(output, encoding="utf-8") if line.strip())
        kept.write_text(json.dumps([seconds, kib, invariants]))
    return json.loads(kept.read_text())


def judge(commands, name, held):
    """The verdicts of TrainCheck's checker on a run, of what it inferred from another."""
    verdicts = WORK / f"traincheck-verdicts-{name}"
    if not (verdicts / held.name / "passed.log").exists():
        invariants = WORK / f"traincheck-{name}/invariants.json"
        measure([commands / "traincheck-check", "-f", held, "-i", invariants, "-o", verdicts,
                 "--no-html-report"], cwd=WORK)
    return verdicts / held.name


# ---- both ------------------------------------------------------------------------------------


def compare(commands, name, steps):
    folder = collect(commands, name, steps)
    their_seconds, their_kib, their_count = theirs(commands, folder)
    run, output = WORK / f"run-{name}", WORK / f"{name}.jsonl"
    shutil.rmtree(run, ignore_errors=True)
    imported, _ = measure([TOCSIN, "import", "traincheck", "-o", run, folder])
    print(f"{name}: {records_of(folder):,} records; TrainCheck {their_seconds:.2f} s, "
          f"{their_kib / 1024:.0f} MiB, {their_count} invariants", flush=True)
    result = {}
    for mode, options in MODES.items():
        seconds, kib = least([TOCSIN, "infer", "-q", "-j1", *options, run, "-o", output, "-f"])
        count = sum(1 for _ in open(output, encoding="utf-8")) - 1
        result[mode] = (their_seconds / seconds, kib / their_kib)
        print(f"  tocsin infer{mode}: {seconds * 1000:.0f} ms ({their_seconds / seconds:.0f} "
              f"times faster; with import, {imported * 1000:.0f} ms, "
              f"{their_seconds / (seconds + imported):.0f} times), {kib / 1024:.0f} MiB, "
              f"{count} invariants", flush=True)
    return result


def compare_sets(commands, name):
    """Another seed, batch size and length are the hold-out run."""
    held = collect(commands, "held", 20, BATCH="24", SEED="2")
    verdicts = judge(commands, name, held)
    run, wide = WORK / "run-held", WORK / f"{name}-wide.jsonl"
    shutil.rmtree(run, ignore_errors=True)
    measure([TOCSIN, "import", "traincheck", "-o", run, held])
    measure([TOCSIN, "infer", "-q", "--wide", WORK / f"run-{name}", "-o", wide, "-f"])
    table, missing, ours, surviving = parity.compare(TOCSIN, verdicts, wide, run, WORK)
    theirs = sum(count for count, _ in table.values())
    found = sum(count for _, count in table.values())
    for kind, (survived, of_them) in sorted(table.items()):
        print(f"  {kind}: {survived} survive, {of_them} found", flush=True)
    for kind, text, why in missing:
        print(f"    {kind}: {text}: {why}", flush=True)
    print(f"  found by both {found}, by TrainCheck only {theirs - found}; --wide finds {ours}, of "
          f"which {surviving} survive", flush=True)
    figure("infer_parity_pct", 100 * found / theirs, "%")


def record_demo(steps):
    run = WORK / f"gpt-{steps}"
    if not (run / "run.json").exists():
        script = ROOT / "examples/demo/gpt.py"
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        measure([TOCSIN, "record", "-q", "-o", run, "--", sys.executable, script, "--steps",
                 str(steps)], env=environment)
    return run


def scale():
    """Ten times the steps; then the same recording checked, at once and followed."""
    runs = {steps: record_demo(steps) for steps in (40, 400)}
    output = WORK / "gpt.jsonl"
    seconds, kib, events = {}, {}, {}
    for steps, run in runs.items():
        seconds[steps], kib[steps] = least(
            [TOCSIN, "infer", "-q", "-j1", run, "-o", output, "-f"], times=7)
        provenance = json.loads(Path(f"{output}.provenance.json").read_text())
        events[steps] = provenance["runs"][0]["events"]
        print(f"infer {steps} steps: {events[steps]:,} events, {seconds[steps] * 1000:.1f} ms, "
              f"{kib[steps] / 1024:.1f} MiB", flush=True)
    figure("infer_scaling_10x", seconds[400] / seconds[40], "x")
    for name, options in (("check", []), ("live", ["--follow"])):
        used, _ = least([TOCSIN, "check", "-i", output, *options, runs[400]], times=7)
        print(f"{name}: {used * 1000:.1f} ms", flush=True)
        figure(f"{name}_events_per_s", events[400] / used, "events/s")


def main():
    WORK.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    scale()
    commands = traincheck()
    results = [compare(commands, name, steps) for name, steps in LENGTHS.items()]
    compare_sets(commands, "long")
    figure("infer_speedup_vs_traincheck", min(r[""][0] for r in results), "x")
    figure("infer_wide_speedup_vs_traincheck", min(r[" --wide"][0] for r in results), "x")
    figure("infer_rss_ratio", max(r[""][1] for r in results), "x")
    print(f"{time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        print(f"bench/infer.py: {failure}", file=sys.stderr)
        sys.exit(1)
