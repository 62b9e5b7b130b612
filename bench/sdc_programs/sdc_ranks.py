"""What a rank of bench/sdc.py does: trainings with a fault, with and without the guard, and healthy
ones with it. All in one process group that lives as long as the bench."""

import contextlib
import gc
import os
import shutil
import time

import sdc_others
import torch
import torch.distributed as dist
from align_models import MODELS
from sdc_faults import AUDIT_EVERY, SAVE_STEP, STAGED, STEPS
from sdc_models import batch_of, compute_loss, optimizer_of
from torch.nn.parallel import DistributedDataParallel

import tocsin
from tocsin import injection
from tocsin.guard import exchange
from tocsin.guard.digests import digest


class Bench:
    """The rank's groups and folder."""

    def __init__(self, rank, world, folder):
        self.rank, self.world, self.folder = rank, world, folder
        # New ones for each guard would be what takes longest.
        shared = dist.new_group(group_desc=exchange.DESCRIPTION)
        exchange.Exchange._new_group = lambda self: shared
        self.control = dist.new_group(group_desc="tocsin-bench")
        injection.inject("collective", step=1, rank=world).close()  # below the guard's own watch

    def gather(self, value):
        """On rank 0 what all ranks say."""
        values = [None] * self.world if self.rank == 0 else None
        dist.gather_object(value, values, group=self.control)
        return values


class Training:
    """A model as it always begins, and the fault that waits in it."""

    def __init__(self, bench, name, arguments=None):
        self.bench, self.name = bench, name
        injection._steps.__init__()
        torch.manual_seed(7)
        build, self.make = MODELS[name]
        self.model = DistributedDataParallel(build())
        self.optimizer = optimizer_of(name, self.model.parameters())
        self.fault = None
        if arguments is not None:
            log = os.path.join(bench.folder, f"truth-{bench.rank}.jsonl")
            self.fault = tocsin.inject(log=log, **arguments)
        torch.manual_seed(50 + bench.rank)

    def batch(self, step, rank):
        return batch_of(self.make, step, rank)

    def state(self):
        """What a checkpoint holds."""
        return {"model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict()}

    def replicated(self):
        """Weights, and what the optimizer keeps of them."""
        tensors = []
        for parameter in self.model.parameters():
            state = self.optimizer.state.get(parameter) or {}
            tensors += [parameter, *(each for each in state.values() if torch.is_tensor(each))]
        return tensors

    def gradients(self):
        return digest([parameter.grad for parameter in self.model.parameters()])

    def end(self):
        if self.fault is not None:
            self.fault.close()
        return 0 if self.fault is None else len(self.fault.done)


def content(path):
    """What a checkpoint holds, as digests; "" if it cannot be read, None if there is none."""
    if not os.path.exists(path):
        return None
    try:
        state = torch.load(path, weights_only=True)
        named = list(injection._tensors(state))
        return repr([(path, tensor.dtype, tensor.shape) for path, tensor in named]) + digest(
            [tensor for _, tensor in named]
        ).hex()
    except Exception:  # of a damaged file torch raises many
        return ""


def bare(bench, name, arguments=None):
    """Without the guard: what changes bit by bit, and what others would see."""
    training = Training(bench, name, arguments)
    steps, others, saved = [], [], None
    path = os.path.join(bench.folder, "bare.pt")
    for step in range(1, STEPS + 1):
        training.optimizer.zero_grad()
        loss = compute_loss(training.model, training.batch(step, bench.rank))
        loss.backward()
        seen = [digest([loss]), training.gradients()]
        training.optimizer.step()
        tensors = training.replicated()
        steps.append((*seen, digest(tensors)))
        others.append(sdc_others.digests(tensors))
        if step == SAVE_STEP and bench.rank == 0:
            torch.save(training.state(), path)
            saved = content(path)
            os.remove(path)
    return {"steps": steps, "others": others, "saved": saved, "struck": training.end()}


def guarded(bench, name, arguments=None, gate="vote"):
    """With the guard: what it finds, and what it lets through."""
    training = Training(bench, name, arguments)
    folder = os.path.join(bench.folder, "guarded")
    path = os.path.join(folder, "checkpoint.pt")
    if bench.rank == 0:
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
    dist.barrier(group=bench.control)
    result = {"finding": None, "during": "", "step": 0, "saved": None, "state": None}
    guard = None
    try:
        guard = tocsin.Guard(
            training.model, training.optimizer, training.batch, compute_loss,
            audit_every=AUDIT_EVERY, deterministic=True, gate=gate, folder=folder, timeout=30,
            collectives=True, recompute=True, memory=True,
        )  # fmt: skip
        for step in range(1, STEPS + 1):
            result.update(step=step, during="step")
            training.optimizer.zero_grad()
            guard.step(guard.compute_loss(training.batch(step, bench.rank)))
            if step == SAVE_STEP:
                result["during"] = "save"
                saved = guard.save(training.state() if bench.rank == 0 else None, path)
                result["state"] = saved.state
    except tocsin.GuardAlarm as alarm:
        result["finding"] = alarm.finding
    finally:
        if guard is not None:
            guard.close()
    if bench.rank == 0:
        result["saved"], result["kept"] = content(path), content(path + ".quarantined")
    result["struck"] = training.end()
    return result


def judge(case, runs, twin):
    """On rank 0: what became of a fault. runs, twin: (bare, guarded) of each rank."""
    bare_runs, guarded_runs = [run[0] for run in runs], [run[1] for run in runs]
    changed = [step for run, right in zip(runs, twin, strict=True) for step in range(STEPS)
               if run[0]["steps"][step] != right[0]["steps"][step]]  # fmt: skip
    first, right = guarded_runs[0], twin[0]
    bare_poisoned = bare_runs[0]["saved"] != right[0]["saved"]
    finding = first["finding"]
    poisoned = first["saved"] is not None and first["saved"] != right[1]["saved"]
    alike = {(run["step"], run["during"], run["finding"] is None) for run in guarded_runs}
    named = None if finding is None else finding["ranks"]
    if case.place in STAGED:  # the file has another name here, so other bytes were hit
        written = first["saved"] if first["saved"] is not None else first["kept"]
        masked = written == right[1]["saved"]
    else:
        masked = not changed
    return {
        "case": case.name, "number": case.number, "model": case.model, "place": case.place,
        "pattern": case.pattern, "duration": case.duration, "rank": case.rank, "begins": case.step,
        "gate": case.gate, "struck": max(run["struck"] for run in bare_runs),
        "masked": masked,
        "shows": min(changed, default=SAVE_STEP - 1) + 1,
        "check": None if finding is None else finding["check"],
        "step": first["step"], "during": first["during"],
        "attributed": None if not named else named == [case.rank],
        "finding": finding, "alike": len(alike) == 1,
        "saved": first["state"], "poisoned": poisoned, "bare_poisoned": bare_poisoned,
        "others": {
            method: None if seen is None
            else {"step": seen[0], "named": seen[1], "right": seen[1] == [case.rank]}
            for method, seen in sdc_others.judge([run["others"] for run in bare_runs]).items()
        },
    }  # fmt: skip


def run_faults(bench, chosen, told):
    """All faults of a list; on rank 0 told(result) after each. Returns healthy trainings that were
    not alike."""
    twins, unlike = {}, []
    gc.collect()
    gc.freeze()
    for case in chosen:
        if case.model not in twins:
            first = bare(bench, case.model), guarded(bench, case.model)
            again = bare(bench, case.model), guarded(bench, case.model)
            twins[case.model] = bench.gather(first)
            finding = first[1]["finding"] or again[1]["finding"]
            if first != again or first[0]["saved"] != first[1]["saved"] or finding:
                unlike.append((case.model, finding))
        arguments = case.arguments()
        run = bare(bench, case.model, arguments), guarded(bench, case.model, arguments, case.gate)
        runs = bench.gather(run)
        if bench.rank == 0:
            told(judge(case, runs, twins[case.model]))
        gc.collect()
    return unlike


# ---- healthy trainings ---------------------------------------------------------------------------


def run_healthy(bench, configuration, steps):
    """Findings of a healthy training, each a false alarm. Returns (findings, seconds, skips)."""
    model = configuration.wrap(configuration.build())
    make = configuration.make()
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad],
                                  lr=0.001)  # fmt: skip
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=200)

    def batch(step, rank, micro=0):
        x, y = batch_of(make, step, rank, micro, configuration.seed)
        return (x.bfloat16() if configuration.bfloat16 and x.is_floating_point() else x), y

    def loss_of(model, batch):
        with configuration.cast():
            return compute_loss(model, batch)

    folder = os.path.join(bench.folder, f"healthy-{configuration.name.replace(' ', '-')}")
    guard = tocsin.Guard(
        model, optimizer, batch, loss_of, audit_every=configuration.audit_every,
        deterministic=configuration.deterministic, gate="audit", on_alarm="continue",
        folder=folder, timeout=60, scaler=scaler if configuration.scaler else None,
        max_norm=configuration.max_norm, collectives=True, recompute=True, memory=True,
    )  # fmt: skip
    torch.manual_seed(50 + bench.rank)
    begin, skips = time.perf_counter(), 0
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        for micro in range(configuration.accumulate):
            last = micro == configuration.accumulate - 1
            with contextlib.nullcontext() if last else model.no_sync():
                guard.backward(guard.compute_loss(batch(step, bench.rank, micro)))
        skips += guard.step().skipped_by == "scaler"
        if step % (steps // 2) == 0:
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
            path = os.path.join(folder, f"checkpoint-{step}.pt")
            guard.save(state if bench.rank == 0 else None, path)
    findings, seconds = guard.findings, time.perf_counter() - begin
    guard.close()
    return findings, seconds, skips



