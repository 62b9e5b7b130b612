"""Guarded trainings whose steps are replayed: `guard_replay_program.py RANKS FOLDER NAME...` trains
each as ranks of one job and prints one JSON line each: what every rank saw."""

import contextlib
import json
import os
import random
import signal
import sys
import tempfile
from collections import namedtuple

import gloo_end
import guard_program
import numpy
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import tocsin

Result = namedtuple("Result", "logits kept")


class Attention(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.into = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.into(x).chunk(3, -1))  # fmt: skip
        seen = F.scaled_dot_product_attention(
            q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=True
        )
        return self.out(seen.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width=16, heads=2, dropout=0.0):
        super().__init__()
        self.attention = Attention(width, heads, dropout)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inner, self.outer = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        x = x + self.dropout(self.attention(self.first(x)))
        return x + self.dropout(self.outer(F.gelu(self.inner(self.second(x)))))


class Gpt(nn.Module):
    def __init__(self, dropout=0.1, recompute=False, tied=True):
        super().__init__()
        torch.manual_seed(7)
        self.recompute = recompute
        self.tokens, self.places = nn.Embedding(13, 16), nn.Embedding(8, 16)
        self.blocks = nn.ModuleList(Block(dropout=dropout) for _ in range(2))
        self.head = nn.Linear(16, 13, bias=False)
        if tied:
            self.head.weight = self.tokens.weight
        self.frozen = nn.Parameter(torch.ones(16), requires_grad=False)
        self.unused = nn.Linear(3, 3)

    def forward(self, x):
        hidden = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks:
            hidden = checkpoint(block, hidden, use_reentrant=False) if self.recompute \
                else block(hidden)  # fmt: skip
        return Result(self.head(hidden * self.frozen), hidden)  # a model that returns a tuple


def gpt_batch(step, rank, micro=0):
    generator = torch.Generator().manual_seed(1000 * step + 10 * rank + micro)
    return {"x": torch.randint(0, 13, (2, 8), generator=generator), "name": f"{step}"}


def gpt_loss(model, batch):
    logits = model(batch["x"]).logits
    return F.cross_entropy(logits.flatten(0, 1), batch["x"].roll(1, 1).flatten())


class Norm(nn.Module):
    """Buffers of two kinds: BatchNorm's are written only, spectral norm's are read, too."""

    def __init__(self, spectral=False):
        super().__init__()
        torch.manual_seed(7)
        first = nn.Linear(6, 12)
        self.first = nn.utils.parametrizations.spectral_norm(first) if spectral else first
        self.norm = nn.Identity() if spectral else nn.BatchNorm1d(12)
        self.last = nn.Linear(12, 3)

    def forward(self, x):
        return self.last(F.dropout(F.relu(self.norm(self.first(x))), 0.2, self.training))


def points(step, rank, micro=0):
    generator = torch.Generator().manual_seed(1000 * step + 10 * rank + micro)
    x = torch.randn(8, 6, generator=generator)
    return x, x[:, :3].argmax(1)


def points_loss(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1]) * (random.random() + numpy.random.rand())


def train(model, loss, batch, guarded=True, *, steps=4, accumulate=1, hold=True, autocast=None,
          scaled=False, rebuild=None, divide=False, fault=None, each_step=None,
          **options):  # fmt: skip
    """(losses, guard). autocast: "inside" or "outside" compute_loss."""
    rank = dist.get_rank()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0) if scaled else None
    cast = lambda on: torch.autocast("cpu", torch.bfloat16, enabled=on)  # noqa: E731

    def compute_loss(model, given):
        with cast(True) if autocast == "inside" else contextlib.nullcontext():
            return loss(model, given)

    guard = None
    if guarded:
        options = {"audit_every": 2, "timeout": 100, **options}
        guard = tocsin.Guard(model, optimizer, rebuild or batch, compute_loss, scaler=scaler,
                             folder=tempfile.mkdtemp(dir=sys.argv[2]), **options)  # fmt: skip
    if fault is not None:
        fault(model, guard)
    losses = []
    torch.manual_seed(50 + rank)
    random.seed(rank)
    numpy.random.seed(rank)
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        for micro in range(accumulate):
            given = batch(step, rank, micro)
            quiet = hold and micro < accumulate - 1
            with model.no_sync() if quiet else contextlib.nullcontext():
                with cast(autocast == "outside"):
                    found = guard.compute_loss(given) if guarded else compute_loss(model, given)
                losses.append(found.detach().clone())
                found = found / accumulate if divide else found
                if guarded:
                    guard.backward(found)
                else:
                    (found if scaler is None else scaler.scale(found)).backward()
        if guarded:
            guard.step()
        elif scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        if each_step is not None:
            each_step(guard, step)
    return losses, guard


def compared(make, loss, batch, wrapped=None, **options):
    """Guarded and not: the same bits? And was anything found?"""
    seen = []
    for guarded in (False, True):
        model = DistributedDataParallel(make(), **(wrapped or {}))
        losses, guard = train(model, loss, batch, guarded, **options)
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        tensors = [*losses, *gradients, *model.state_dict().values(), torch.get_rng_state()]
        seen.append([guard_program.bits(tensors), str(random.getstate()),
                     str(numpy.random.get_state()[1:])])  # fmt: skip
    saved = guard.replay_check.audit_now()
    guard.close()
    return {"same": seen[0] == seen[1], "findings": guard.findings, "saved": saved,
            "passed": guard.passed_step("replay"),
            "limits": guard.replay_check.limits}  # fmt: skip


# ---- healthy ------------------------------------------------------------------------------------


def _gpt(make=Gpt, wrapped=None, **options):
    wrapped = {"find_unused_parameters": True, **(wrapped or {})}
    return compared(make, gpt_loss, gpt_batch, wrapped, **options)


def dropout():
    return _gpt()


def deterministic():
    return _gpt(deterministic=True)


def recomputed():
    return _gpt(lambda: Gpt(recompute=True), deterministic=True)


def accumulated():
    return _gpt(accumulate=3, divide=True)


def accumulated_deterministic():
    return _gpt(accumulate=3, divide=True, deterministic=True)


def accumulated_with_messages():
    return _gpt(accumulate=2, hold=False, deterministic=True)


def autocast_inside():
    return _gpt(autocast="inside", deterministic=True)


def autocast_outside():
    return _gpt(autocast="outside", scaled=True, deterministic=True)


def scaled():
    return _gpt(scaled=True)


def batch_norm():
    return compared(Norm, points_loss, points, accumulate=2)


def batch_norm_of_each_rank():
    return compared(Norm, points_loss, points, {"broadcast_buffers": False}, deterministic=True)


def spectral_norm():
    return compared(lambda: Norm(True), points_loss, points, accumulate=2, deterministic=True)


def spectral_norm_of_each_rank():
    """Each rank goes on with vectors of its own."""
    def make():
        model = Norm(True)
        with torch.no_grad():
            for buffer in model.buffers():
                buffer += 0.01 * dist.get_rank()
        return model

    return compared(make, points_loss, points, {"broadcast_buffers": False, "init_sync": False})


class Counting(Norm):
    """What it computes depends on how often it was called."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) / self.calls


def counting():
    return compared(Counting, points_loss, points, accumulate=2)


def compiled():
    def make():
        return torch.compile(Norm(), backend="eager")

    return compared(make, points_loss, points, deterministic=True)


def in_buckets():
    return _gpt(deterministic=True, wrapped={"gradient_as_bucket_view": True})


def not_wrapped():
    """Gradients that the program averages by itself."""
    model = Norm()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    guard = tocsin.Guard(model, optimizer, points, points_loss, audit_every=1, deterministic=True,
                         folder=tempfile.mkdtemp(dir=sys.argv[2]))  # fmt: skip
    for step in (1, 2, 3):
        optimizer.zero_grad(set_to_none=False)
        guard.backward(guard.compute_loss(points(step, dist.get_rank())))
        with torch.no_grad():
            guard.compute_loss(points(step, 77))  # a look at other data
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        guard.step()
    return {"findings": guard.findings, "passed": guard.passed_step("replay"),
            "limits": guard.replay_check.limits}  # fmt: skip


def one_backward():
    """Two micro-batches, one backward pass: their gradients cannot be told apart."""
    model = DistributedDataParallel(Norm())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    guard = tocsin.Guard(model, optimizer, points, points_loss, audit_every=1, deterministic=True,
                         folder=tempfile.mkdtemp(dir=sys.argv[2]))  # fmt: skip
    for step in (1, 2):
        optimizer.zero_grad()
        with model.no_sync():
            first = guard.compute_loss(points(step, dist.get_rank(), 0))
        guard.step(first + guard.compute_loss(points(step, dist.get_rank(), 1)))
    return {"findings": guard.findings, "passed": guard.passed_step("replay"),
            "limits": guard.replay_check.limits}  # fmt: skip


def compiled_for_shapes():
    """Batches that vary in shape: which kernels a rank has depends on what it saw before."""
    def batch(step, rank, micro=0):
        x, y = points(step, rank, micro)
        return x[: 4 + (step + rank) % 3], y[: 4 + (step + rank) % 3]

    model = DistributedDataParallel(torch.compile(Norm(), backend="eager"))
    _, guard = train(model, points_loss, batch)
    return {"findings": guard.findings, "limits": guard.replay_check.limits,
            "passed": guard.passed_step("replay"),
            "saved": guard.replay_check.audit_now()}  # fmt: skip


class Remembering(Norm):
    """Keeps for its program what it saw; no loss depends on that."""

    def __init__(self):
        super().__init__()
        self.hidden, self.total, self.means, self.seen = None, torch.zeros(12), [], {"calls": 0}
        self.wide = torch.arange(6.0).expand(8, 6)  # one element in many places

    def forward(self, x):
        hidden = self.first(x + self.wide)
        self.hidden = hidden.detach()
        self.total += self.hidden.mean(0)
        self.means.append(float(self.hidden.mean()))
        self.seen["calls"] += 1
        self.seen["hidden"] = self.hidden
        return self.last(F.relu(self.norm(hidden)))


class Adversaries(nn.Module):
    """A network that is judged by two others, which are no part of this module."""

    def __init__(self):
        super().__init__()
        self.maker = DistributedDataParallel(Norm())
        self.judges = (DistributedDataParallel(Norm()), Norm())

    def forward(self, x):
        made = self.maker(x)
        return made + sum(judge(made.repeat(1, 2)) for judge in self.judges)


def remembering():
    seen = []
    for guarded in (False, True):
        model = DistributedDataParallel(Remembering())
        losses, guard = train(model, points_loss, points, guarded, deterministic=True)
        inner = model.module
        tensors = [*losses, *model.state_dict().values(), inner.hidden, inner.total,
                   inner.seen["hidden"]]  # fmt: skip
        seen.append([guard_program.bits(tensors), inner.means, inner.seen["calls"]])
    return {"same": seen[0] == seen[1], "findings": guard.findings, "saved": [],
            "passed": guard.passed_step("replay"), "limits": guard.replay_check.limits}


def adversaries():
    seen = []
    for guarded in (False, True):
        model = Adversaries()
        losses, guard = train(model, points_loss, points, guarded)
        states = [each.state_dict().values() for each in (model, *model.judges)]
        seen.append(guard_program.bits([*losses, *(value for state in states for value in state)]))
    return {"same": seen[0] == seen[1], "findings": guard.findings, "saved": [],
            "passed": guard.passed_step("replay"), "limits": guard.replay_check.limits}


def dropped():
    """Every other backward pass is for nothing: its gradients are dropped."""
    seen = []
    for guarded in (False, True):
        model = DistributedDataParallel(Norm())
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        folder = tempfile.mkdtemp(dir=sys.argv[2])
        guard = tocsin.Guard(model, optimizer, points, points_loss, audit_every=2,
                             deterministic=True, folder=folder) if guarded else None  # fmt: skip
        torch.manual_seed(50 + dist.get_rank())
        random.seed(0)
        numpy.random.seed(0)
        losses = []
        for step in (1, 2, 3, 4):
            for place in (50, 0):
                given = points(step + place, dist.get_rank())
                optimizer.zero_grad()
                loss = guard.compute_loss(given) if guarded else points_loss(model, given)
                losses.append(loss.detach().clone())
                loss.backward()
            guard.step() if guarded else optimizer.step()
        seen.append(guard_program.bits([*losses, *model.state_dict().values()]))
    return {"same": seen[0] == seen[1], "findings": guard.findings, "saved": [],
            "passed": guard.passed_step("replay"), "limits": guard.replay_check.limits}


def _with_messages(model, batch):
    """A loss that depends on all ranks' batches."""
    mean = batch[0].mean()
    dist.all_reduce(mean)
    return points_loss(model, (batch[0] - mean, batch[1]))


def with_messages():
    return compared(Norm, _with_messages, points)


class Written(Norm):
    """Changes a weight whenever it is called."""

    def forward(self, x):
        with torch.no_grad():
            self.first.weight.mul_(0.999)
        return super().forward(x)


def written():
    return compared(Written, points_loss, points)


def reentrant():
    class Reentrant(Norm):
        def forward(self, x):
            hidden = checkpoint(self.first, x.requires_grad_(), use_reentrant=True)
            return self.last(F.relu(self.norm(hidden)))

    return compared(Reentrant, points_loss, points, deterministic=True)


def with_messages_not_finite():
    """NaN where nothing can be replayed."""
    def loss(model, batch):
        return _with_messages(model, batch) * float("nan")

    model = DistributedDataParallel(Norm())
    try:
        train(model, loss, points)
    except tocsin.GuardAlarm as alarm:
        return {"finding": alarm.finding}


# ---- faults -------------------------------------------------------------------------------------


def alarm(fault, deterministic=False, make=Gpt, **options):
    """The finding that ends a training, and how."""
    model = DistributedDataParallel(make(), find_unused_parameters=True)
    try:
        train(model, gpt_loss, gpt_batch, fault=fault, deterministic=deterministic, **options)
    except tocsin.GuardAlarm as alarm:
        finding = alarm.finding
        return {"finding": finding, "code": alarm.code, "modes":
                [torch.are_deterministic_algorithms_enabled(),
                 torch.backends.cuda.flash_sdp_enabled()]}  # fmt: skip
    return {"finding": None}


def _spoiled(when, amount=lambda: 1e-3 * (1 + dist.get_rank())):
    """A device that computes one element of a layer wrongly when when(guard) says so."""
    def fault(model, guard):
        def computed(module, args, output):
            if not when(guard):
                return None
            output = output.clone()
            output.view(-1)[5] += amount()
            return output

        model.module.blocks[1].inner.register_forward_hook(computed)

    return fault


def _once(when):
    done = []

    def now(guard):
        if done or not when(guard):
            return False
        done.append(True)
        return True

    return now


def _is(*ranks):
    return dist.get_rank() in ranks


def persistent():
    return alarm(_spoiled(lambda guard: _is(2) and guard.step_number >= 3))


def two_hosts():
    """The ring is two pairs: each rank is replayed by the one that it replays."""
    os.environ["NODE_NAME"] = f"node{dist.get_rank() // 2}"
    try:
        return alarm(_spoiled(lambda guard: _is(2)))
    finally:
        del os.environ["NODE_NAME"]


def transient():
    return alarm(_spoiled(_once(lambda guard: _is(1) and guard.step_number == 4)))


def transient_of_the_replayer():
    return alarm(_spoiled(_once(lambda guard: _is(0) and guard.replaying)))


def neighbours():
    return alarm(_spoiled(lambda guard: _is(1, 2)))


def does_not_repeat():
    """Other bits each time, on all ranks."""
    return alarm(_spoiled(lambda guard: True, random.SystemRandom().random))


def _backward_spoiled(when):
    """The bits of one gradient; the loss stays as it was."""
    def fault(model, guard):
        def arrives(gradient):
            if not when(guard):
                return None
            gradient = gradient.clone()
            gradient.view(torch.int32).view(-1)[7] ^= 1 << 9
            return gradient

        model.module.blocks[0].outer.weight.register_hook(arrives)

    return fault


def backward_persistent():
    return alarm(_backward_spoiled(lambda guard: _is(3)), deterministic=True)


def gradient_once():
    """In `.grad`, after it was accumulated."""
    def fault(model, guard):
        def accumulated(parameter):
            if _is(1) and guard.step_number == 2 and not guard.replaying:
                parameter.grad.view(torch.int32).view(-1)[3] ^= 1 << 4

        parameter = model.module.head.weight
        parameter.register_post_accumulate_grad_hook(accumulated)

    return alarm(fault, deterministic=True)


def not_finite_by_data():
    def make():
        model = Gpt()
        with torch.no_grad():
            model.frozen.fill_(float("inf"))
        return model

    return alarm(None, make=make)


def not_finite_by_a_device():
    return alarm(_spoiled(lambda guard: _is(1), lambda: float("inf")))


def wrong_batch():
    def rebuild(step, rank, micro):
        return gpt_batch(step + (rank == 1 and step > 2), rank, micro)

    return alarm(None, rebuild=rebuild)


def wrong_batch_elsewhere():
    def rebuild(step, rank, micro):
        return gpt_batch(step, rank, micro + (rank != dist.get_rank()))

    return alarm(None, rebuild=rebuild)


def no_batch():
    def rebuild(step, rank):
        if _is(2):
            raise FileNotFoundError("gone")
        return gpt_batch(step, rank)

    return alarm(None, rebuild=rebuild)


def before_a_save():
    """A fault that began after the last replay is found by one on demand."""
    model = DistributedDataParallel(Gpt(), find_unused_parameters=True)
    found = []

    def each_step(guard, step):
        if step == 3:
            found.append(guard.replay_check.audit_now())

    _, guard = train(model, gpt_loss, gpt_batch, steps=3, each_step=each_step,
                     fault=_spoiled(lambda guard: _is(2) and guard.step_number >= 3))  # fmt: skip
    return {"found": found[0], "replay": guard.findings}


def killed():
    """A rank dies while it replays: what the others do, each in a line of its own."""
    def fault(model, guard):
        def called(module, args):
            if guard.replaying and _is(2):
                os.kill(os.getpid(), signal.SIGKILL)

        model.module.register_forward_pre_hook(called)

    seen = alarm(fault)
    print(json.dumps({"rank": dist.get_rank(), **seen}), flush=True)
    os._exit(seen["code"])


def nothing_yet():
    model = DistributedDataParallel(Gpt(), find_unused_parameters=True)
    _, guard = train(model, gpt_loss, gpt_batch, steps=0)
    return {"saved": guard.replay_check.audit_now(), "coverage": guard.replay_check.coverage}


def two_ranks():
    return {"healthy": _gpt(), **alarm(_spoiled(lambda guard: _is(1)))}


def obstacles():
    """What cannot be replayed is said."""
    class Synchronised(Norm):
        def __init__(self):
            super().__init__()
            self.norm = nn.SyncBatchNorm(12)

    outside = torch.compile(DistributedDataParallel(Norm()), backend="eager")
    in_place = DistributedDataParallel(Norm())
    in_place.compile(backend="eager")
    seen = []
    for model in (Synchronised(), outside, in_place):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        guard = tocsin.Guard(model, optimizer, points, points_loss,
                             folder=tempfile.mkdtemp(dir=sys.argv[2]))  # fmt: skip
        seen.append([guard.replay_check.coverage, guard.replay_check.limits])
        guard.close()
    try:
        tocsin.Guard(Norm(), optimizer, points, points_loss, peer_offset=dist.get_world_size(),
                     folder=tempfile.mkdtemp(dir=sys.argv[2]))  # fmt: skip
    except ValueError as error:
        seen.append(str(error))
    return seen


if __name__ == "__main__":
    guard_program.main(globals())
