"""What recording and checking cost a training step: the reference GPT, observer on against off.

Reference GPT: 6 layers, d = 384, 2,048 tokens a step, AdamW, 2 threads (examples/demo/gpt.py's
model). One process trains; its observer is paused (B) and resumed (A) in blocks A B B A, so that
drift of the machine's speed cancels. Each quadruple gives one ratio time(A) / time(B); the figure
is the upper end of the 95 % bootstrap interval of the median ratio over quadruples.

Arms:
  noise   no recorder at all, "on" and "off" are the same: what this machine can resolve
  record  `tocsin record`: everything, with digests
  check   `tocsin run` with the invariants inferred from two recordings of this same GPT; the
          checker follows in its own process on the same cores
  online, trusted, full
          `tocsin record --mode`: also what passes the boundaries of calls (docs/align.md)

Without --worker this drives the arms; with it, it is the training process.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODES = ("online", "trusted", "full")
FIGURES = {"record": "record_overhead_gpt", "check": "check_overhead_gpt",
           **{mode: f"align_overhead_{mode}" for mode in MODES}}  # fmt: skip


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arms", nargs="+", default=["noise", "record", "check"],
                        choices=["noise", *FIGURES])  # fmt: skip
    parser.add_argument("--quads", type=int, default=60, help="quadruples A B B A")
    parser.add_argument("--block", type=int, default=2, help="steps in a block")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worker", choices=["observed", "plain", "sample"])
    parser.add_argument("--times", type=Path, help="where the worker writes its step times")
    return parser.parse_args()


# ---- the training process ------------------------------------------------------------------


def make_step(args):
    import torch
    from torch import nn

    sys.path.insert(0, str(ROOT / "examples/demo"))
    from gpt import GPT, encode, sample

    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    data, vocabulary = encode(text)
    model = GPT(vocabulary, args.length, args.width, args.layers, 6, 0.0)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
    generator = torch.Generator().manual_seed(args.seed)

    def step():
        inputs, targets = sample(data, args.batch, args.length, generator)
        logits = model(inputs)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def work(args):
    step = make_step(args)
    if args.worker == "sample":
        for _ in range(4):
            step()
        return
    pause = resume = lambda: None
    hashed = lambda: 0
    if args.worker == "observed":
        from tocsin._core import pause, recorder_summary, resume

        hashed = lambda: recorder_summary()["hashed_bytes"]

    for _ in range(3):
        step()
    quads, before = [], hashed()
    for _ in range(args.quads):
        seconds = {"on": 0.0, "off": 0.0}
        for arm in ("on", "off", "off", "on"):
            if arm == "off":
                pause()
            begin = time.perf_counter()
            for _ in range(args.block):
                step()
            seconds[arm] += time.perf_counter() - begin
            if arm == "off":
                resume()
        quads.append(seconds)
    times = {"quads": quads, "hashed": (hashed() - before) // (2 * args.block * args.quads)}
    args.times.write_text(json.dumps(times), encoding="utf-8")


# ---- the driver ----------------------------------------------------------------------------


def bootstrap(ratios, rounds=10000):
    """Median of the ratios with its 95 % percentile interval."""
    generator = random.Random(0)
    medians = sorted(
        statistics.median(generator.choices(ratios, k=len(ratios))) for _ in range(rounds)
    )
    return statistics.median(ratios), medians[int(0.025 * rounds)], medians[int(0.975 * rounds)]


def worker_command(args, kind, times=None, seed=None):
    command = [sys.executable, str(Path(__file__).resolve()), "--worker", kind]
    for name in ("quads", "block", "layers", "width", "batch", "length", "threads"):
        command += [f"--{name}", str(getattr(args, name))]
    command += ["--seed", str(args.seed if seed is None else seed)]
    return command + (["--times", str(times)] if times else [])


def call(command, environment):
    done = subprocess.run(command, env=environment, stdout=sys.stderr)
    if done.returncode != 0:
        raise SystemExit(f"overhead: exit status {done.returncode} of {' '.join(command)}")


def infer(args, tocsin, folder, environment):
    runs = []
    for seed in (1, 2):
        runs.append(str(folder / f"sample-{seed}"))
        call([tocsin, "record", "-q", "-o", runs[-1], "--",
              *worker_command(args, "sample", seed=seed)], environment)  # fmt: skip
    invariants = str(folder / "invariants.jsonl")
    call([tocsin, "infer", *runs, "-o", invariants], environment)
    return invariants


def measure(args, arm, tocsin, folder, environment):
    times = folder / f"{arm}.json"
    if arm == "noise":
        command = worker_command(args, "plain", times)
    elif arm != "check":
        mode = ["--mode", arm] if arm in MODES else []
        command = [tocsin, "record", *mode, "-o", str(folder / arm), "--",
                   *worker_command(args, "observed", times)]  # fmt: skip
    else:
        invariants = infer(args, tocsin, folder, environment)
        command = [tocsin, "run", "-i", invariants, "-o", str(folder / "check"),
                   "-r", str(folder / "report.txt"), "--",
                   *worker_command(args, "observed", times)]  # fmt: skip
    call(command, environment)
    times = json.loads(times.read_text(encoding="utf-8"))
    quads = times["quads"]
    ratio, low, high = bootstrap([quad["on"] / quad["off"] for quad in quads])
    step_ms = 1e3 * statistics.median(quad["off"] for quad in quads) / (2 * args.block)
    return {"arm": arm, "ratio": ratio, "low": low, "high": high, "step_ms": step_ms,
            "hashed_bytes_per_step": times["hashed"],
            "steps_per_arm": 2 * args.block * args.quads, "threads": args.threads,
            "layers": args.layers, "width": args.width, "tokens": args.batch * args.length,
            "quads": quads}  # fmt: skip


def main():
    args = parse_arguments()
    if args.worker:
        work(args)
        return
    tocsin = os.environ.get("TOCSIN", str(ROOT / "build/tocsin"))
    output = Path(os.environ.get("TOCSIN_BENCH_OUT", ROOT / "build/bench"))
    output.mkdir(parents=True, exist_ok=True)
    threads = str(args.threads)
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    with tempfile.TemporaryDirectory() as folder:
        for arm in args.arms:
            result = measure(args, arm, tocsin, Path(folder), environment)
            (output / f"overhead_{arm}.json").write_text(json.dumps(result), encoding="utf-8")
            print(
                f"{arm}: ratio {result['ratio']:.4f}, 95 % interval {result['low']:.4f} to "
                f"{result['high']:.4f}, {result['step_ms']:.0f} ms a step, "
                f"{result['hashed_bytes_per_step'] / 1e6:.0f} MB hashed a step, "
                f"{result['steps_per_arm']} steps an arm"
            )
            if arm in FIGURES:
                print(f"figure {FIGURES[arm]} {result['high']:.4f} ratio", flush=True)


if __name__ == "__main__":
    main()
