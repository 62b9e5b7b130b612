"""What the guard costs: the digest of many tensors against one plain read of them, and the check of
all weights in every step of the reference GPT under DistributedDataParallel.

Rate: parameters and optimizer state of the reference GPT, one thread; a loop in C that adds up
64-bit words, and _core.digest_tensors, in turn. The figure is the median of their rates' ratios.

Overhead: 2 ranks (gloo), one thread each, 2,048 tokens a step in all. Steps with (A) and without
(B) in blocks A B B A, each quadruple one ratio; the figure is the upper end of the 95 % bootstrap
interval of the median ratio.
  weights  the check of weights after every step against never, all else of the guard in both
  guard    a guarded model (gradients and weights, every step) against one without a guard

Without --worker this drives the ranks; with it, it is one.
"""

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from overhead import bootstrap

ROOT = Path(__file__).resolve().parent.parent
FIGURES = {"weights": "weight_check_overhead", "guard": "guard_overhead"}
READ = """
#include <stddef.h>
#include <stdint.h>
uint64_t read_all(const uint64_t **tensors, const size_t *words, size_t count)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < words[i]; j++)
            sum += tensors[i][j];
    return sum;
}
"""


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quads", type=int, default=40, help="quadruples A B B A an arm")
    parser.add_argument("--block", type=int, default=1, help="steps in a block")
    parser.add_argument("--reads", type=int, default=41, help="pairs of reads")
    parser.add_argument("--arms", nargs="*", default=list(FIGURES), choices=list(FIGURES))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--batch", type=int, default=8, help="of all ranks together")
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--worker", type=int, help="the rank")
    parser.add_argument("--folder", type=Path)
    return parser.parse_args()


def make_model(args):
    import torch

    sys.path.insert(0, str(ROOT / "examples/demo"))
    from gpt import GPT, encode

    torch.set_num_threads(1)
    torch.manual_seed(0)
    data, vocabulary = encode((ROOT / "LICENSE").read_text(encoding="utf-8"))
    return GPT(vocabulary, args.length, args.width, args.layers, 6, 0.0), data


# ---- the rate of digests ---------------------------------------------------------------------


def plain_read(folder):
    source, library = folder / "read.c", folder / "read.so"
    source.write_text(READ)
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-O3", "-march=native", "-shared", "-fPIC", "-o", library, source],
                   check=True)  # fmt: skip
    read = ctypes.CDLL(str(library)).read_all
    read.restype = ctypes.c_uint64
    return read


def measure_rate(args, folder):
    from tocsin import _core
    from tocsin.guard import digests

    model, _ = make_model(args)
    tensors = [each.detach() for each in model.parameters()]
    tensors += [each.clone() for each in tensors] + [each.clone() for each in tensors]
    count = sum(each.numel() * 4 for each in tensors)
    pointers = (ctypes.c_void_p * len(tensors))(*(each.data_ptr() for each in tensors))
    words = (ctypes.c_size_t * len(tensors))(*(each.numel() // 2 for each in tensors))
    read = plain_read(folder)
    digests.digest(tensors)  # learns the layout of tensors
    seconds = {"read": [], "digest": []}
    for _ in range(args.reads):
        begin = time.perf_counter()
        read(pointers, words, len(tensors))
        middle = time.perf_counter()
        _core.digest_tensors(tensors)
        seconds["read"].append(middle - begin)
        seconds["digest"].append(time.perf_counter() - middle)
    ratio = statistics.median(r / d for r, d in zip(seconds["read"], seconds["digest"]))
    rates = {name: count / 1e9 / statistics.median(each) for name, each in seconds.items()}
    print(f"rate: {len(tensors)} tensors, {count / 1e6:.0f} MB: plain read {rates['read']:.1f} "
          f"GB/s, digests {rates['digest']:.1f} GB/s")  # fmt: skip
    print(f"figure multi_tensor_digest_vs_read {ratio:.3f} ratio", flush=True)


# ---- a rank ----------------------------------------------------------------------------------


class Trained:
    """A model that takes steps, guarded or not."""

    def __init__(self, args, rank, guarded):
        import torch
        from torch.nn.parallel import DistributedDataParallel

        import tocsin

        model, self.data = make_model(args)
        self.model = DistributedDataParallel(model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 3e-4)
        self.generator = torch.Generator().manual_seed(rank)
        self.size = args.batch // args.ranks, args.length
        self.guard = None
        if guarded:
            self.guard = tocsin.Guard(self.model, self.optimizer, max_norm=1.0,
                                      folder=str(args.folder / "ledger"))  # fmt: skip

    def step(self):
        from gpt import sample
        from torch import nn

        inputs, targets = sample(self.data, *self.size, self.generator)
        logits = self.model(inputs)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        self.optimizer.zero_grad()
        if self.guard is not None:
            self.guard.step(loss)
            return
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()


def work(args):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{args.folder}/store", rank=args.worker,
                            world_size=args.ranks)  # fmt: skip
    guarded = Trained(args, args.worker, True)
    other = Trained(args, args.worker, False) if "guard" in args.arms else None

    def with_weights(every):
        def step():
            guarded.guard.weights_every = every
            guarded.step()

        return step

    on = with_weights(1)
    arms = {"weights": with_weights(1 << 60), "guard": other and other.step}
    times = {}
    for arm in args.arms:
        off = arms[arm]
        for step in (on, off, on, off):
            step()
        times[arm] = []
        for _ in range(args.quads):
            seconds = {"on": 0.0, "off": 0.0}
            for name, step in (("on", on), ("off", off), ("off", off), ("on", on)):
                begin = time.perf_counter()
                for _ in range(args.block):
                    step()
                seconds[name] += time.perf_counter() - begin
            times[arm].append(seconds)
    if args.worker == 0:
        times["bytes"] = guarded.guard.weight_check.bytes
        (args.folder / "times.json").write_text(json.dumps(times), encoding="utf-8")
    guarded.guard.close()
    dist.destroy_process_group()
    time.sleep(0.2)  # gloo's threads end


# ---- the driver ------------------------------------------------------------------------------


def measure_overhead(args, folder):
    command = [sys.executable, str(Path(__file__).resolve()), "--folder", str(folder)]
    for name in ("quads", "block", "ranks", "layers", "width", "batch", "length"):
        command += [f"--{name}", str(getattr(args, name))]
    command += ["--arms", *args.arms]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen([*command, "--worker", str(rank)], env=environment, stdout=sys.stderr)
        for rank in range(args.ranks)
    ]
    if any([rank.wait() for rank in ranks]):
        raise SystemExit("guard_overhead: a rank failed")
    times = json.loads((folder / "times.json").read_text(encoding="utf-8"))
    for arm in args.arms:
        quads = times[arm]
        ratio, low, high = bootstrap([quad["on"] / quad["off"] for quad in quads])
        steps = 2 * args.block
        milliseconds = {name: 1e3 * statistics.median(quad[name] for quad in quads) / steps
                        for name in ("on", "off")}  # fmt: skip
        cost = statistics.median(1e3 * (quad["on"] - quad["off"]) / steps for quad in quads)
        print(f"{arm}: ratio {ratio:.4f}, 95 % interval {low:.4f} to {high:.4f}; "
              f"{milliseconds['on']:.0f} ms a step with, {milliseconds['off']:.0f} ms without, "
              f"{cost:.1f} ms for {times['bytes'] / 1e6:.0f} MB hashed a step and rank, "
              f"{steps * args.quads} steps an arm, {args.ranks} ranks")  # fmt: skip
        print(f"figure {FIGURES[arm]} {high:.4f} ratio", flush=True)


def main():
    args = parse_arguments()
    if args.worker is not None:
        work(args)
        return
    with tempfile.TemporaryDirectory() as folder:
        measure_rate(args, Path(folder))
        if args.arms:
            measure_overhead(args, Path(folder))


if __name__ == "__main__":
    main()
