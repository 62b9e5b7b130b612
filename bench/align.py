"""Does `tocsin align` name the place where two runs part? Faults put into real runs, and figures.

  cases   every fault of align_programs/align_cases.py, against the healthy run of its model and
          configuration, which has to be identical with its own repetition; also by the baselines
          that `tocsin align` has as options
  speed   a long recording against its copy: events a second of one core, and memory at two lengths
  overhead  what recording costs in each mode (bench/overhead.py)

Processes are forked from one that has imported torch. Results are stored in TOCSIN_BENCH_OUT (else
build/bench) as align-cases.json; `--only` takes parts of names: "gpt/", "/ddp3/", "rows".
"""

import argparse
import collections
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("PYTHONHASHSEED", "0")

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench/align_programs"))

from align_cases import CONFIGURATIONS, cases  # noqa: E402

COMMAND = os.environ.get("TOCSIN", str(ROOT / "build/tocsin"))
OUT = Path(os.environ.get("TOCSIN_BENCH_OUT", ROOT / "build/bench"))
PATIENCE = 300  # seconds for one process
BASELINES = {
    "xor": ["--digest", "xor"],
    "sum": ["--digest", "sum"],
    "norm": ["--digest", "norm"],
    "tolerance 1e-3": ["--tolerance", "1e-3"],
    "few probes": ["--probes", "few"],
}


def figure(name, value, unit):
    print(f"figure {name} {value:.6g} {unit}", flush=True)


# ---- recording ---------------------------------------------------------------------------------


class Recording:
    """A training in processes of its own, one a rank."""

    def __init__(self, folder, model, configuration, fault=(), steps=None):
        self.folder, self.model, self.configuration = folder, model, configuration
        self.fault, self.steps = dict(fault), steps
        self.run, self.log = folder / "run", folder / "truth.jsonl"
        self.failed = False
        shutil.rmtree(folder, ignore_errors=True)
        self.run.mkdir(parents=True)
        (self.run / "run.json").write_text('{"format":"tocsin-run","version":1,"mode":"record"}')
        self.left = {self._fork(rank) for rank in range(CONFIGURATIONS[configuration][1])}

    def _fork(self, rank):
        sys.stdout.flush()
        process = os.fork()
        if process == 0:
            status = 1
            try:
                self._train(rank)
                status = 0
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        return process

    def _train(self, rank):
        signal.alarm(PATIENCE)
        with open(self.folder / f"stderr-{rank}", "w") as errors:
            os.dup2(errors.fileno(), 1)
            os.dup2(errors.fileno(), 2)
        way, world, mode = CONFIGURATIONS[self.configuration]
        os.environ.update(TOCSIN_RUN=str(self.run), TOCSIN_MODE="record", TOCSIN_BOUNDARIES=mode)
        if self.fault:
            words = {**self.fault, "log": self.log}
            os.environ["TOCSIN_INJECT"] = " ".join(f"{key}={words[key]}" for key in words)
        if world > 1:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
        from tocsin import attach, recorder

        if not attach.attach():
            raise SystemExit("not recorded")
        if world > 1:
            import torch.distributed

            torch.distributed.init_process_group(
                "gloo", init_method=f"file://{self.folder}/store", rank=rank, world_size=world
            )
        from align_models import STEPS, train

        train(self.model, way, world, rank, self.steps or STEPS)
        if world > 1:
            torch.distributed.destroy_process_group()
        recorder.stop()

    def errors(self):
        return "".join(path.read_text() for path in sorted(self.folder.glob("stderr-*")))

    def truth(self):
        return json.loads(self.log.read_text().splitlines()[0]) if self.log.exists() else None


def record_all(wanted, jobs):
    """Recordings of {name: arguments}, a few at a time: yields (name, recording) as they end."""
    waiting, running = list(wanted.items()), {}
    while waiting or running:
        while waiting and len(running) < jobs:
            name, arguments = waiting.pop(0)
            running[name] = Recording(*arguments)
        process, status = os.wait()
        for name, recording in list(running.items()):
            if process in recording.left:
                recording.left.discard(process)
                recording.failed = recording.failed or status != 0
                if not recording.left:
                    yield name, running.pop(name)


def align(a, b, *options):
    """The report, with its exit status."""
    command = [COMMAND, "align", "--format", "json", *options, str(a), str(b)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1, 3):
        raise SystemExit(f"align: {' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)


# ---- judging -----------------------------------------------------------------------------------


def flat(index, shape):
    place = 0
    for at, size in zip(index, shape, strict=True):
        place = place * size + at
    return place


def named(report):
    """(step, name, role, rank) of the boundaries that the report shows first."""
    return [(p["step"], p["fqn"], p["role"], p["rank"]) for p in report["pivots"]]


def judge(case, truth, report):
    """"exact", "near" (the first that reads what was changed), "other", "missed"."""
    if report["verdict"] != "DIVERGED" or not report["pivots"]:
        return "missed"
    step, name, role = case.boundary
    first, ranks = named(report)[0], {pivot["rank"] for pivot in report["pivots"]}
    placed = case.everywhere or ranks <= {truth["rank"], None}
    late = report["pivots"][0]["id"].endswith("/end")  # after the step, not before it
    if placed and first[:3] == (step, name, role) and not late:
        return "exact"
    return "near" if placed and first[0] == step and first[1:3] in case.near else "other"


def element_of(case, truth, report):
    """Is the element named, where a single word was changed? None: several were, or its place is
    not the fault's."""
    if len(truth["elements"]) != 1 or judge(case, truth, report) != "exact":
        return None
    pivot, element = report["pivots"][0], truth["elements"][0]
    if not pivot["elements"]:
        return False
    found = pivot["elements"][0]
    bits = sorted(found["bits_set"] + found["bits_cleared"])
    averaged = case.everywhere  # over ranks: other bits, at the same place
    return same_place(truth, found["index"]) and (averaged or bits == element["bits"])


def same_place(truth, index):
    """Of a batch only the digest is kept: its index is flat. Of a shard it is the whole's."""
    element = truth["elements"][0]["index"]
    shape, offset = truth.get("shape", []), truth.get("offset") or [0] * len(element)
    whole = [at + by for at, by in zip(element, offset, strict=True)]
    return index in (whole, [flat(element, shape)])


class Bench:
    def __init__(self, folder, jobs):
        self.folder, self.jobs, self.judged, self.unequal = Path(folder), jobs, [], []

    def key(self, case):
        return f"{case.model}-{case.configuration}"

    def twins(self, chosen):
        wanted = {}
        for case in chosen:
            for twin in ("healthy", "again"):
                name = f"{self.key(case)}-{twin}"
                wanted[name] = (self.folder / name, case.model, case.configuration)
        for name, recording in record_all(wanted, self.jobs):
            if recording.failed:
                raise SystemExit(f"align: {name} failed:\n{recording.errors()[-4000:]}")
        for key in dict.fromkeys(self.key(case) for case in chosen):
            report = align(self.folder / f"{key}-healthy/run", self.folder / f"{key}-again/run")
            if report["verdict"] != "IDENTICAL":
                self.unequal.append((key, report["verdict"], named(report)[:3]))
                print(f"  {key}: healthy runs differ: {named(report)[:3]}", flush=True)

    def case(self, case, recording):
        truth = recording.truth()
        result = {"case": case.name, "number": dict(case.fault)["seed"], "truth": truth,
                  "expected": case.boundary}  # fmt: skip
        self.judged.append(result)
        if truth is None or truth["changed"] == 0:
            result["outcome"] = "not injected"
            print(f"  {case.name}: no fault\n{recording.errors()[-1500:]}", flush=True)
            return
        healthy = self.folder / f"{self.key(case)}-healthy/run"
        report = align(healthy, recording.run)
        result["outcome"] = judge(case, truth, report)
        result["named"] = named(report)[:4]
        result["element"] = element_of(case, truth, report)
        result["failed"] = recording.failed
        for name, options in BASELINES.items():
            result[name] = judge(case, truth, align(healthy, recording.run, *options))
        if result["outcome"] != "exact" or result["element"] is False:
            print(f"  {case.name}: {result['outcome']}: {case.boundary}, named "
                  f"{result['named'][:2]}, element {result['element']}", flush=True)  # fmt: skip

    def run(self, chosen):
        self.twins(chosen)
        by_name = {case.name: case for case in chosen}
        wanted = {
            name: (self.folder / "cases" / name.replace("/", "-"), case.model, case.configuration,
                   case.fault)
            for name, case in by_name.items()
        }  # fmt: skip
        for name, recording in record_all(wanted, self.jobs):
            self.case(by_name[name], recording)
            shutil.rmtree(recording.folder)
        self.judged.sort(key=lambda each: each["number"])


def share(judged, key, wanted):
    return 100 * sum(each.get(key) in wanted for each in judged) / len(judged)


def print_table(judged):
    """How each way of comparing does on the same faults."""
    print(f"{'':16}{'exact':>8}{'near':>8}{'other':>8}{'missed':>8}")
    for key in ("outcome", *BASELINES):
        counts = collections.Counter(each[key] for each in judged if key in each)
        name = "tocsin align" if key == "outcome" else key
        cells = "".join(f"{counts[o]:>8}" for o in ("exact", "near", "other", "missed"))
        print(f"{name:16}{cells}", flush=True)


def run_cases(arguments, folder):
    chosen = [case for case in cases() if not arguments.only or
              any(part in case.name for part in arguments.only)]  # fmt: skip
    bench = Bench(folder, arguments.jobs)
    bench.run(chosen)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "align-cases.json").write_text(json.dumps(bench.judged, indent=1))
    print_table(bench.judged)
    elements = [each["element"] for each in bench.judged if each.get("element") is not None]
    figure("align_injected", len(bench.judged), "count")
    figure("align_named", share(bench.judged, "outcome", {"exact"}), "%")
    figure("align_named_within_one", share(bench.judged, "outcome", {"exact", "near"}), "%")
    figure("align_element_exact", 100 * sum(elements) / max(1, len(elements)), "%")
    figure("align_healthy_unequal", len(bench.unequal), "count")
    return bench


# ---- speed -------------------------------------------------------------------------------------


def events_of(run):
    done = subprocess.run([COMMAND, "info", str(run)], capture_output=True, text=True, check=True)
    table = done.stdout.partition("process  rank")[2].splitlines()[1:]
    return sum(int(line.split()[3].replace(",", "")) for line in table if line.strip())


def most_memory(process):
    """MiB at most so far. (A child's ru_maxrss counts this process, from which it was forked.)"""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024 if "VmHWM:" in status else 0.0


def measure(run, copy):
    """(seconds of one core, MiB at most) of aligning a run with its copy."""
    process = subprocess.Popen([COMMAND, "align", str(run), str(copy)], stdout=subprocess.DEVNULL)
    most, ended = 0.0, 0
    while not ended:
        most = max(most, most_memory(process.pid))
        time.sleep(0.001)
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
    if status != 0:
        raise SystemExit("align: a run and its copy are not identical")
    return usage.ru_utime + usage.ru_stime, most


def run_speed(arguments, folder):
    memory = {}
    for steps in (arguments.steps // 4, arguments.steps):
        wanted = {"long": (Path(folder) / f"long{steps}", "gpt", "eager", (), steps)}
        (_, recording), = record_all(wanted, 1)
        if recording.failed:
            raise SystemExit(recording.errors()[-3000:])
        copy = recording.folder / "copy"
        shutil.copytree(recording.run, copy)
        events = 2 * events_of(recording.run)
        measured = [measure(recording.run, copy) for _ in range(5)]
        seconds, memory[steps] = min(s for s, _ in measured), max(most for _, most in measured)
        print(f"  {steps} steps: {events} events of both runs, {1000 * seconds:.0f} ms, "
              f"{memory[steps]:.1f} MiB", flush=True)  # fmt: skip
        shutil.rmtree(recording.folder)
    figure("align_events_per_s", events / seconds, "events/s")
    figure("align_memory_growth", memory[arguments.steps] / memory[arguments.steps // 4], "x")


def run_overhead(arguments):
    command = [sys.executable, str(ROOT / "bench/overhead.py"), "--quads", str(arguments.quads)]
    done = subprocess.run([*command, "--arms", "online", "trusted", "full"])
    if done.returncode != 0:
        raise SystemExit("align: overhead was not measured")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stages", nargs="*", default=["cases", "speed", "overhead"])
    parser.add_argument("--only", nargs="+", help="cases whose name has one of these in it")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2000, help="of the long recording")
    parser.add_argument("--quads", type=int, default=60, help="of the overhead's blocks A B B A")
    parser.add_argument("--keep", type=Path, help="a folder for the recordings")
    arguments = parser.parse_args()
    import torch  # before anything is forked
    import torch.distributed.fsdp  # noqa: F401

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        if "cases" in arguments.stages:
            run_cases(arguments, arguments.keep or folder)
        if "speed" in arguments.stages:
            run_speed(arguments, folder)
    if "overhead" in arguments.stages:
        run_overhead(arguments)


if __name__ == "__main__":
    main()
