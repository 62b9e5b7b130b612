"""Does the guard find silent errors, name the right rank, and leave healthy trainings alone?

  faults    every fault of sdc_programs/sdc_faults.py in real trainings of 3 gloo ranks: found by
            which check, when, who is named, what is published; and what others see of the same
            faults. One that changes no bit of loss, gradient, weight or checkpoint is masked
  healthy   long healthy trainings with all checks: every finding is a false alarm
  overhead  what check 3 costs in each step, and a digest of many tensors against reading them

Results are stored in TOCSIN_BENCH_OUT (else build/bench) as sdc-*.json; tables are Markdown.
`--only` takes parts of names: "gpt/", "optimizer state", "/nan/".
"""

import argparse
import collections
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("PYTHONHASHSEED", "0")

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench/sdc_programs"), str(ROOT / "bench/align_programs")]

from sdc_faults import AUDIT_EVERY, COMPUTE, PLACES, STAGED, WEIGHTS, cases  # noqa: E402

OUT = Path(os.environ.get("TOCSIN_BENCH_OUT", ROOT / "build/bench"))
PATIENCE = 1500  # seconds for a stage
OTHERS = ("xor", "pair", "norm", "rank 0")


def figure(name, value, unit):
    print(f"figure {name} {value:.6g} {unit}", flush=True)


def share(wanted, of):
    return 100 * len(wanted) / len(of) if of else 100.0


# ---- ranks -------------------------------------------------------------------------------------


def in_ranks(world, work):
    """work(bench) in each rank of one process group; they are forks of this process."""
    with tempfile.TemporaryDirectory() as folder:
        sys.stdout.flush()
        ranks = []
        for rank in range(world):
            process = os.fork()
            if process == 0:
                _be_rank(rank, world, folder, work)
            ranks.append(process)
        failed = False
        for _ in ranks:
            process, status = os.wait()
            failed = failed or status != 0
            if failed:
                for each in ranks:
                    if each != process:
                        _end(each)
        if failed:
            for path in sorted(Path(folder).glob("stderr-*")):
                print(f"{path.name}:\n{path.read_text()[-3000:]}", file=sys.stderr)
            raise SystemExit("sdc: a rank failed")


def _end(process):
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _be_rank(rank, world, folder, work):
    status = 1
    try:
        signal.alarm(PATIENCE)
        with open(os.path.join(folder, f"stderr-{rank}"), "w") as errors:
            os.dup2(errors.fileno(), 2)
        import torch.distributed as dist

        dist.init_process_group(
            "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world
        )
        from sdc_ranks import Bench

        work(Bench(rank, world, folder))
        dist.barrier()
        status = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        sys.stdout.flush()
        os._exit(status)


# ---- faults ------------------------------------------------------------------------------------


def run_faults(arguments):
    chosen = cases(arguments.ranks, arguments.only or ())[:: arguments.every]
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / "sdc-faults.jsonl"
    path.write_text("")

    def work(bench):
        from sdc_ranks import run_faults

        def told(result):
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")

        unlike = run_faults(bench, chosen, told)
        if unlike and bench.rank == 0:
            print(f"  healthy trainings differ: {unlike}", flush=True)

    begin = time.perf_counter()
    in_ranks(arguments.ranks, work)
    results = [json.loads(line) for line in path.read_text().splitlines()]
    seconds = time.perf_counter() - begin
    print(f"{len(results)} faults in {seconds:.0f} s\n", flush=True)
    report(results, arguments.verbose)


def detected(result):
    return result["check"] is not None


def right(result):
    return result["attributed"] is True


def print_table(columns, rows):
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * len(columns))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    print(flush=True)


def cell(found, named, of):
    """detected / right culprit, in per cent."""
    return f"{share(found, of):.0f} / {share(named, of):.0f}" if of else "-"


def print_places(live):
    """Each way on the same unmasked faults."""
    rows = []
    for place in [*PLACES, "all"]:
        these = [each for each in live if place in (each["place"], "all")]
        row = [place, len(these), cell(*_of_guard(these), these)]
        for method in OTHERS:
            seen = [each for each in these if each["others"][method] is not None]
            row.append(cell(seen, [e for e in seen if e["others"][method]["right"]], these))
        rows.append(row)
    print_table(["place of the fault", "not masked", "guard", "xor vote", "sum pair vote",
                 "L1 norm vote", "SHA-1 against rank 0"], rows)  # fmt: skip


def _of_guard(these):
    return [each for each in these if detected(each)], [each for each in these if right(each)]


def print_checks(live):
    """Which check found what first."""
    checks = sorted({each["check"] for each in live if detected(each)})
    rows = []
    for place in PLACES:
        for duration in ("once", "persistent", "device"):
            these = [e for e in live if (e["place"], e["duration"]) == (place, duration)]
            if not these:
                continue
            counts = collections.Counter(each["check"] or "nothing" for each in these)
            poisoned = sum(each["poisoned"] for each in these)
            bare = sum(each["bare_poisoned"] for each in these)
            wrong = sum(each["attributed"] is False for each in these)
            found = [counts[check] or "" for check in [*checks, "nothing"]]
            rows.append(
                [place, duration, len(these), *found, wrong or "", f"{poisoned} of {bare}"]
            )
    print_table(["place", "duration", "not masked", *checks, "nothing", "wrong rank",
                 "poisoned, of those without the guard"], rows)  # fmt: skip


def in_time(result):
    """A persistent fault of the computation is found by a replay at most audit_every steps after
    its first changed bit."""
    return result["check"] == "replay" and result["step"] - result["shows"] < AUDIT_EVERY


def report(results, verbose):
    masked = [each for each in results if each["masked"]]
    live = [each for each in results if not each["masked"]]
    print_places(live)
    print_checks(live)
    weights = [each for each in live if each["place"] in WEIGHTS]
    device = [each for each in live if each["place"] in COMPUTE and each["duration"] == "device"]
    audited = [each for each in device if each["check"] != "gradient"]
    once = [each for each in live if each["duration"] == "once"
            and each["place"] in (*COMPUTE, "all-reduce, given")
            and each["pattern"] != "nan"]  # fmt: skip
    gated = [each for each in results if each["place"] in (*WEIGHTS, *STAGED)]
    gated += [each for each in device if each["gate"] == "audit"]
    poisoned = [each for each in gated if each["poisoned"]]
    missed = [each for each in once if not detected(each)]
    print(
        f"masked: {len(masked)}; masked and found: {sum(map(detected, masked))}; not put in: "
        f"{sum(not each['struck'] for each in results)}; ranks that acted unlike: "
        f"{sum(not each['alike'] for each in results)}\n"
        f"one-shot finite faults before or inside all-reduce: {len(once)}, not found "
        f"{len(missed)}, then published {sum(each['poisoned'] for each in missed)}; "
        f"suspect window of those found: {_windows(once)}",
        flush=True,
    )
    if verbose:
        for each in live:
            if not right(each) or each["poisoned"]:
                print(f"  {each['number']} {each['case']} rank {each['rank']} from {each['begins']}"
                      f" gate {each['gate']}: {each['check']} at {each['step']} {each['during']}, "
                      f"{each['attributed']}, saved {each['saved']}, poisoned {each['poisoned']}: "
                      f"{(each['finding'] or {}).get('text', '')}", flush=True)  # fmt: skip
    figure("sdc_injected", len(results), "count")
    figure("sdc_masked", len(masked), "count")
    figure("sdc_weight_detected_pct", share([e for e in weights if detected(e)], weights), "%")
    figure("sdc_weight_attributed_pct", share([e for e in weights if right(e)], weights), "%")
    figure("sdc_replay_detected_pct", share([e for e in audited if in_time(e)], audited), "%")
    figure("sdc_poisoned_published", len(poisoned), "count")
    figure("sdc_once_not_found", len(missed), "count")


def _windows(these):
    widths = [each["finding"]["suspect_window"] for each in these if detected(each)]
    widths = [last - first + 1 for first, last in widths]
    return f"{min(widths)} to {max(widths)} steps" if widths else "-"


# ---- healthy -----------------------------------------------------------------------------------


def run_healthy(arguments):
    from sdc_models import HEALTHY

    chosen = [each for each in HEALTHY if not arguments.only
              or any(word in each.name for word in arguments.only)]  # fmt: skip
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / "sdc-healthy.jsonl"
    path.write_text("")

    def work(bench):
        from sdc_ranks import run_healthy

        for configuration in chosen:
            findings, seconds, skips = run_healthy(bench, configuration, arguments.steps)
            told = bench.gather(findings)
            if bench.rank == 0:
                with open(path, "a", encoding="utf-8") as file:
                    row = {"name": configuration.name, "steps": arguments.steps, "skips": skips,
                           "seconds": seconds, "findings": [f for each in told for f in each]}
                    file.write(json.dumps(row) + "\n")

    in_ranks(arguments.ranks, work)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    print_table(
        ["healthy configuration", "steps", "skipped by the scaler", "ms a step", "false alarms"],
        [[row["name"], row["steps"], row["skips"], f"{1e3 * row['seconds'] / row['steps']:.1f}",
          len(row["findings"])] for row in rows],
    )  # fmt: skip
    for row in rows:
        for finding in row["findings"][:2]:
            print(f"  {row['name']}: {finding['text']}", flush=True)
    figure("sdc_healthy_steps", sum(row["steps"] for row in rows), "steps")
    figure("sdc_false_alarms", sum(len(row["findings"]) for row in rows), "count")


# ---- overhead ----------------------------------------------------------------------------------


def run_overhead(arguments):
    """Live trainings of the reference GPT: bench/guard_overhead.py."""
    done = subprocess.run([sys.executable, str(ROOT / "bench/guard_overhead.py")])
    if done.returncode != 0:
        raise SystemExit("sdc: overhead was not measured")


STAGES = {"faults": run_faults, "healthy": run_healthy, "overhead": run_overhead}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stages", nargs="*", default=list(STAGES), choices=[*STAGES, []],
                        help="all, by default")  # fmt: skip
    parser.add_argument("--only", nargs="+", help="faults or configurations with one of these")
    parser.add_argument("--every", type=int, default=1, help="only each N-th fault")
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2000, help="of a healthy configuration")
    parser.add_argument("--verbose", action="store_true", help="name the faults that escape")
    arguments = parser.parse_args()
    import torch  # before anything is forked

    torch.set_num_threads(1)
    for stage in arguments.stages or STAGES:
        STAGES[stage](arguments)


if __name__ == "__main__":
    main()
