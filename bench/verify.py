"""Figures of `tocsin verify`: which mistakes it finds and names, how long large plans take.

  campaign  every mistake of tests/python/plan_mutations.py must be REFUTED with the wrong operator
            named first; no correct change of plan_refactorings.py may be reported
  nnscaler  the real plans of an nnScaler data set, and the 14 mistakes that TrainVerify's authors
            injected into one of them; skipped where the folder is absent (TOCSIN_DATA, else
            shared/data beside the checkout)
  sizes     plans of the shapes of Llama-405B and DeepSeek-671B: seconds of reading and proof
  incremental  verifying again after a change of one layer, with a cache
  scaling   how the time grows with layers, tensor parallelism, micro-batches and replicas
  table     the configurations of TrainVerify's published times beside ours, on generated plans

Each stage stores what it found in TOCSIN_BENCH_OUT (else build/bench) as verify-STAGE.json.
"""

import argparse
import collections
import copy
import csv
import dataclasses
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / part) for part in ("bench/plans", "tests/python", "tests/ref")]

from nnscaler_mutations import expert_mutations, nnscaler_mutations  # noqa: E402
from parallel_plan import SHAPES, Config, build_pair, write_streaming  # noqa: E402
from plan_mutations import mutations  # noqa: E402
from plan_objects import read_plan, write_plan  # noqa: E402
from plan_refactorings import refactorings  # noqa: E402

COMMAND = os.environ.get("TOCSIN", str(ROOT / "build/tocsin"))
DATA = Path(os.environ.get("TOCSIN_DATA", ROOT.parent / "shared" / "data")) / "nnscaler-plans"
OUT = Path(os.environ.get("TOCSIN_BENCH_OUT", ROOT / "build/bench"))
GIB = 1 << 30


def figure(name, value, unit):
    print(f"figure {name} {value:.6g} {unit}", flush=True)


def store(stage, content):
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"verify-{stage}.json").write_text(json.dumps(content, indent=1))


def verify(logical, parallel, *options, timeout=900):
    """The command's JSON, with its exit code; an error message as verdict ERROR."""
    command = [COMMAND, "verify", str(logical), str(parallel), "--format", "json", *options]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return {"verdict": "TIMEOUT", "causes": [], "unknown": [], "exit": -1}
    try:
        result = json.loads(done.stdout)
    except json.JSONDecodeError:
        result = {"verdict": "ERROR", "causes": [], "unknown": [done.stderr.strip()]}
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    result["wall_seconds"] = time.monotonic() - start
    result["cpu_seconds"] = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
    result["exit"] = done.returncode
    return result


def total_seconds(result):
    return result.get("seconds", 0) + result.get("read_seconds", 0)


# ---- the campaign -----------------------------------------------------------------------------


class Cases:
    """Healthy pairs by configuration, their logical side written once."""

    def __init__(self, folder):
        self.folder, self.known = Path(folder), {}

    def healthy(self, config):
        key = tuple(sorted(config.items()))
        if key not in self.known:
            logical, parallel = build_pair(Config(**config))
            path = self.folder / f"logical{len(self.known)}.plan"
            write_plan(logical, path)
            self.known[key] = (path, parallel)
        return self.known[key]

    def verify(self, case):
        path, parallel = self.healthy(case.config)
        edited = copy.deepcopy(parallel)
        case.edit(edited)
        target = self.folder / "edited.plan"
        write_plan(edited, target)
        return verify(path, target)


def cause_op(cause):
    """The label in a cause: what stands before a colon or blank."""
    return cause["op"].split(": ")[0].split(" ")[0]


def judge(mutation, parallel, result):
    names = mutation.names(parallel) if callable(mutation.names) else mutation.names
    named = [cause_op(cause) for cause in result["causes"]]
    return {
        "case": str(mutation), "number": mutation.number, "phase": mutation.phase,
        "verdict": result["verdict"], "refuted": result["verdict"] == "REFUTED",
        "exact": bool(named) and named[0] in names, "among": bool(set(named) & names),
        "other": sum(name not in names for name in named), "named": named[:4],
        "classes": [cause["cause"] for cause in result["causes"][:4]],
        "relation": [[cause["relation"], cause["expected"]] for cause in result["causes"][:1]],
        "names": sorted(names)[:12], "unknown": result["unknown"][:3],
    }  # fmt: skip


def campaign(only=None):
    judged, reports = [], []
    with tempfile.TemporaryDirectory() as folder:
        cases = Cases(folder)
        for mutation in mutations():
            if only and mutation.number not in only:
                continue
            result = cases.verify(mutation)
            judged.append(judge(mutation, cases.healthy(mutation.config)[1], result))
        for change in refactorings():
            if only and change.number not in only:
                continue
            result = cases.verify(change)
            reports.append({"case": str(change), "verdict": result["verdict"],
                            "causes": result["causes"][:3],
                            "unknown": result["unknown"][:3]})  # fmt: skip
    store("campaign", {"mutations": judged, "refactorings": reports})
    print(f"{'class':>5} {'cases':>6} {'refuted':>8} {'exact':>6}")
    for number in sorted({each["number"] for each in judged}):
        part = [each for each in judged if each["number"] == number]
        print(f"{number:>5} {len(part):>6} {sum(e['refuted'] for e in part):>8} "
              f"{sum(e['exact'] for e in part):>6}")  # fmt: skip
    verdicts = collections.Counter(each["verdict"] for each in reports)
    print("correct changes:", ", ".join(f"{n} {verdict}" for verdict, n in verdicts.items()))
    figure("verify_mutations", len(judged), "count")
    figure("verify_refuted_pct", 100 * statistics.mean(e["refuted"] for e in judged), "%")
    figure("verify_named_exact_pct", 100 * statistics.mean(e["exact"] for e in judged), "%")
    figure("verify_controls", len(reports), "count")
    figure("verify_controls_proved", verdicts["PROVED"], "count")
    false = sum(each["verdict"] == "REFUTED" or bool(each["causes"]) for each in reports)
    figure("verify_false_reports", false, "count")


# ---- nnScaler's plans -------------------------------------------------------------------------


def world_name(path):
    return path.name.split("_gbs")[0]


def single_of(path):
    """The logical plan of a file: the same model on one device."""
    model, _, rest = path.name.partition("_dp")
    tail = rest[rest.index("_gbs") :]
    return path.parent / f"{model}_dp1_pp1_tp1_nm1{tail}"


def nnscaler():
    if not DATA.is_dir():
        print(f"nnscaler: skipped, no folder {DATA}")
        return
    rows = []
    for path in sorted(DATA.glob("*.pkl.zst")):
        if not single_of(path).exists() or single_of(path) == path:
            continue
        for order in ("group", "metadata"):
            result = verify(single_of(path), path, "--order", order)
            rows.append({"plan": path.name, "order": order, **result})
            print(f"{world_name(path):<40} {order:<9} {result['verdict']:<9} "
                  f"{len(result['causes'])} causes, {result.get('gradients_proved', 0)} of "
                  f"{result.get('gradients', 0)} gradients, "
                  f"{total_seconds(result):.2f} s")  # fmt: skip
    large = DATA / "llama3_default_dp16_pp4_tp8_nm8_gbs512_ly3_h32_hi4096_sq128.pkl.zst"
    if large.exists():
        result = verify(single_of(large), large, "--order", "metadata", "--enumerate")
        rows.append({"plan": large.name, "order": "enumerated", **result})
        print(f"enumerated: {result['verdict']}, {result.get('nodes', 0)} nodes")
        if "seconds" in result:
            figure("verify_461k_seconds", result["seconds"], "s")
    store("nnscaler", rows)
    mutated_nnscaler()


def plan_text(path, target):
    """An nnScaler file as `.plan` text."""
    with open(target, "wb") as stream:
        command = [COMMAND, "plan", "show", str(path)]
        done = subprocess.run(command, stdout=stream, stderr=subprocess.PIPE)
    return done.returncode == 0


MUTATED = (
    ("llama3_default_dp2_pp2_tp2_nm2_gbs512_ly2_h32_hi4096_sq128.pkl.zst", nnscaler_mutations),
    ("moe_default_dp2_pp2_tp2_nm2_gbs1024_ly2_h16_hi512_sq128_a2_r16.pkl.zst", expert_mutations),
)


def mutated_plan(path, make):
    """What became of each mistake in one plan."""
    judged = []
    with tempfile.TemporaryDirectory() as folder:
        logical, healthy, target = (Path(folder) / f"{n}.plan" for n in ("l", "p", "m"))
        if not (plan_text(single_of(path), logical) and plan_text(path, healthy)):
            print(f"mistakes in {path.name}: skipped, `tocsin plan show` failed")
            return []
        base = read_plan(healthy)
        for mutation in make(base):
            edited = copy.deepcopy(base)
            mutation.edit(edited)
            write_plan(edited, target)
            judged.append(judge(mutation, base, verify(logical, target)))
    return judged


def mutated_nnscaler():
    judged = [each for name, make in MUTATED if (DATA / name).exists()
              for each in mutated_plan(DATA / name, make)]  # fmt: skip
    store("nnscaler-mutations", judged)
    if not judged:
        return
    for each in judged:
        print(f"{each['case']:<52} {each['verdict']:<8} {'exact' if each['exact'] else '-':<6} "
              f"{', '.join(each['named'][:3])}")  # fmt: skip
    refuted = statistics.mean(each["refuted"] for each in judged)
    exact = statistics.mean(each["exact"] for each in judged)
    figure("verify_nnscaler_mutations", len(judged), "count")
    figure("verify_nnscaler_refuted_pct", 100 * refuted, "%")
    figure("verify_nnscaler_named_exact_pct", 100 * exact, "%")


# ---- size -------------------------------------------------------------------------------------


def time_config(config, repeat=1):
    """(best total seconds, that result, operators of the parallel plan)."""
    with tempfile.TemporaryDirectory() as folder:
        logical, parallel = Path(folder) / "l.plan", Path(folder) / "p.plan"
        write_streaming(config.logical_side(), logical)
        count = write_streaming(config, parallel)
        results = [verify(logical, parallel) for _ in range(repeat)]
    best = min(results, key=total_seconds)
    return total_seconds(best), best, count


def sizes():
    found = {}
    for name, config in SHAPES.items():
        seconds, result, count = time_config(config, 3)
        found[name] = {"operators": count, **result}
        print(f"{name}: {count} operators, {result['verdict']}, read "
              f"{result.get('read_seconds', 0):.2f} s, proof {result.get('seconds', 0):.2f} s, "
              f"processor {result.get('cpu_seconds', 0):.2f} s, "
              f"{result.get('peak_rss_bytes', 0) / GIB:.2f} GiB")  # fmt: skip
        if "seconds" in result:
            figure(f"verify_{name}_operators", count, "count")
            figure(f"verify_{name}_seconds", seconds, "s")
            figure(f"verify_{name}_rss_gib", result["peak_rss_bytes"] / GIB, "GiB")
    store("sizes", found)


def incremental():
    """Verifying again after one layer has changed, in the model and on all ranks, with a cache:
    against the first time, and against a run that keeps nothing."""
    with tempfile.TemporaryDirectory() as folder:
        pairs = [(Path(folder) / f"l{k}.plan", Path(folder) / f"p{k}.plan") for k in (0, 1)]
        cache = ("--cache", str(Path(folder) / "cache"))
        write_streaming(SHAPES["405b"].logical_side(), pairs[0][0])
        write_streaming(SHAPES["405b"], pairs[0][1])
        for before, after in zip(*pairs, strict=True):
            change_layer(before, after, "label=layers.60.attention.scores.scale")
        plain = [verify(*pairs[0]) for _ in range(3)]
        first = verify(*pairs[0], *cache)
        again = [verify(*pairs[(k + 1) % 2], *cache) for k in range(6)]
    store("incremental", {"plain": plain, "first": first, "again": again})
    ours = statistics.median(each["wall_seconds"] for each in again)
    base = statistics.median(each["wall_seconds"] for each in plain)
    print(f"without a cache {base:.3f} s; first {first['wall_seconds']:.3f} s, {first['parts']} "
          f"parts; after a change {ours:.3f} s, "
          f"{', '.join(str(each['parts_proved']) for each in again)} parts proved, "
          f"{' '.join(sorted({each['verdict'] for each in again}))}")  # fmt: skip
    figure("verify_incremental_ratio", ours / first["wall_seconds"], "ratio")
    figure("verify_incremental_over_uncached", ours / base, "ratio")


def change_layer(before, after, label):
    """Another constant in the one operator of this label, wherever it stands."""
    with open(before) as source, open(after, "w") as target:
        for line in source:
            target.write(line.replace("{factor=", "{factor=1") if label in line else line)


def scaling():
    """Processor seconds (one thread) against layers, tensor parallelism and micro-batches, and of
    512 replicas against 64."""
    base = Config(layers=8, hidden=256, heads=16, kv_heads=16, ffn=512, vocab=1024, seq=32,
                  batch=1, dp=8, pp=2, tp=2, nm=4)  # fmt: skip
    rows = []
    for key, values in (("layers", (8, 16, 32, 64)), ("tp", (2, 4, 8, 16)), ("nm", (4, 8, 16, 32)),
                        ("dp", (8, 64, 512))):  # fmt: skip
        for value in values:
            config = dataclasses.replace(base, **{key: value})
            _, result, count = time_config(config, 3)
            seconds = result.get("cpu_seconds", 0)
            rows.append({"axis": key, "value": value, "operators": count, "seconds": seconds,
                         "verdict": result["verdict"]})  # fmt: skip
            print(f"{key:>7} {value:>4} {count:>7} operators {seconds:8.3f} s "
                  f"{result['verdict']}", flush=True)  # fmt: skip
    store("scaling", rows)
    for key in ("layers", "tp", "nm"):
        part = [row for row in rows if row["axis"] == key]
        growth = part[-1]["seconds"] / part[0]["seconds"]
        figure(f"verify_growth_{key}", growth * part[0]["value"] / part[-1]["value"],
               "of linear")  # fmt: skip
    times = {row["value"]: row["seconds"] for row in rows if row["axis"] == "dp"}
    figure("verify_dp512_over_dp64", times[512] / times[64], "ratio")


def table():
    """TrainVerify's published seconds (32 cores) beside ours on one core for the same shape."""
    source = DATA / "trainverify-times-large.csv"
    if not source.exists():
        print(f"table: skipped, no file {source}")
        return
    rows = []
    with open(source, newline="") as stream:
        published = [row for row in csv.DictReader(stream) if row["success"] == "True"]
    print(f"{'plan':<44} {'TrainVerify':>12} {'tocsin':>10} {'ratio':>9}")
    for row in published:
        routed = bool(row["n_routed_experts"])
        number = {key: int(float(row[key])) for key in row if key.startswith("num_") or key in
                  ("gbs", "hidden_size", "seqlen")}  # fmt: skip
        heads = number["num_heads"]
        config = Config(
            model="moe" if routed else "llama", layers=number["num_layers"],
            hidden=number["hidden_size"], heads=heads, kv_heads=heads,
            ffn=4 * number["hidden_size"], vocab=32768, seq=number["seqlen"],
            batch=max(1, number["gbs"] // number["num_dp"] // number["num_mb"]),
            experts=int(float(row["n_routed_experts"] or 8)),
            top_k=int(float(row["n_activated_experts"] or 2)), dp=number["num_dp"],
            pp=number["num_pp"], tp=number["num_tp"], nm=number["num_mb"])  # fmt: skip
        seconds, result, count = time_config(config)
        theirs = float(row["t_total"])
        rows.append({"plan": row["pm"], "theirs": theirs, "ours": seconds,
                     "operators": count, "verdict": result["verdict"]})  # fmt: skip
        print(f"{world_name(Path(row['pm'])):<44} {theirs:>10.0f} s {seconds:>8.2f} s "
              f"{theirs / max(seconds, 1e-9):>8.0f}x {result['verdict']}", flush=True)
    store("table", rows)


STAGES = {"campaign": campaign, "nnscaler": nnscaler, "sizes": sizes, "scaling": scaling,
          "incremental": incremental, "table": table}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=", ".join(STAGES))
    args = parser.parse_args()
    for stage in args.stages or STAGES:
        print(f"-- {stage}", flush=True)
        STAGES[stage]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
