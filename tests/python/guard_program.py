"""Guarded trainings: `guard_program.py RANKS FOLDER NAME...` trains each as ranks of one job and
prints one JSON line each: what every rank saw. The ranks are forks, so that torch is imported once.
"""

import copy
import gc
import io
import json
import os
import signal
import sys
import tempfile
import time
import weakref

import gloo_end
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tocsin

STEPS = 4


class Net(nn.Module):
    def __init__(self, norm=False, unused=False, dropout=0.0, sparse=False, tied=False):
        super().__init__()
        torch.manual_seed(7)
        self.table = nn.Embedding(11, 8, sparse=sparse)
        self.inner = nn.Linear(8, 16)
        self.norm = nn.BatchNorm1d(16) if norm else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        self.frozen = nn.Parameter(torch.ones(1), requires_grad=False)
        self.outer = nn.Linear(16, 8)
        self.head = nn.Linear(8, 11, bias=False)
        if tied:
            self.head.weight = self.table.weight
        self.other = nn.Linear(4, 4) if unused else None

    def forward(self, x):
        hidden = F.gelu(self.norm(self.inner(self.table(x)))) * self.frozen
        return self.head(self.dropout(self.outer(hidden)))


def batch(step, rank, micro=0):
    generator = torch.Generator().manual_seed(1000 * step + 10 * rank + micro)
    return torch.randint(0, 11, (12,), generator=generator)


def loss_of(model, x):
    return F.cross_entropy(model(x), x.roll(1))


def bits(tensors):
    return [each.detach().cpu().flatten().contiguous().view(torch.uint8).tolist()
            for each in tensors]  # fmt: skip


def make_optimizer(model):
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)


def train(guarded, model, optimizer=None, *, steps=STEPS, accumulate=1, autocast=False,
          max_norm=None, scaler=None, before_step=None, late=None, own_batches=True, **options):
    """(losses, the guard or None). before_step(step): after backward, before the guard looks."""
    rank = dist.get_rank() if own_batches else 0
    optimizer = optimizer or make_optimizer(model)
    guard = None
    if guarded:
        guard = tocsin.Guard(model, optimizer, folder=tempfile.mkdtemp(dir=sys.argv[2]),
                             max_norm=max_norm, scaler=scaler, timeout=20, **options)  # fmt: skip
    losses, outcomes = [], []
    torch.manual_seed(50 + rank)
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        for micro in range(accumulate):
            last = micro == accumulate - 1
            hold = hasattr(model, "no_sync") and not last
            with model.no_sync() if hold else torch.enable_grad():
                with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                    loss = loss_of(model, batch(step, rank, micro))
                if guard is not None:
                    guard.backward(loss)
                else:
                    (loss if scaler is None else scaler.scale(loss)).backward()
            losses.append(loss.detach())
        if before_step is not None:
            before_step(step)
        if guard is not None:
            outcomes.append(guard.step())
            if late is not None:
                late(step)
            continue
        if scaler is not None:
            if max_norm is not None:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            scaler.step(optimizer)
            scaler.update()
        else:
            if max_norm is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            optimizer.step()
    if guard is not None:
        guard.outcomes = outcomes
        guard.close()
    return losses, guard


def compared(make, wrapped=None, **options):
    """Guarded and not: are they the same bits, and was nothing found?"""
    seen = []
    for guarded in (False, True):
        model = make()
        model = DistributedDataParallel(model, **(wrapped or {}))
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0) if options.get("scaled") else None
        rest = {key: value for key, value in options.items() if key != "scaled"}
        losses, guard = train(guarded, model, scaler=scaler, **rest)
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        seen.append(bits([*losses, *gradients, *model.state_dict().values()]))
    return {"same": seen[0] == seen[1], "findings": guard.findings,
            "place": guard.gradient_check.place, "norm": guard.outcomes[-1].norm,
            "uncovered": guard.weight_check.uncovered, "bytes": guard.weight_check.bytes,
            "replicas": guard.weight_check.replicas}  # fmt: skip


def plain():
    return compared(Net)


def clipped():
    return compared(Net, max_norm=0.1)


def accumulated():
    return compared(Net, accumulate=3)


def accumulated_in_place():
    return compared(Net, {"gradient_as_bucket_view": True}, accumulate=2)


def unused():
    return compared(lambda: Net(unused=True), {"find_unused_parameters": True})


def batch_norm():
    return compared(lambda: Net(norm=True, dropout=0.2))


def autocast():
    return compared(lambda: Net(tied=True), autocast=True)


def bfloat16():
    return compared(lambda: Net().bfloat16())


def static_graph():
    return compared(Net, {"static_graph": True})


def sparse():
    def make():
        model = Net(sparse=True)
        model.requires_grad_(True)
        return model

    seen = []
    for guarded in (False, True):
        model = DistributedDataParallel(make())
        losses, guard = train(guarded, model, torch.optim.SGD(model.parameters(), 0.1))
        seen.append(bits([*losses, *model.state_dict().values()]))
    return {"same": seen[0] == seen[1], "findings": guard.findings}


def scaled():
    return compared(Net, scaled=True, max_norm=1.0)


def user_hook():
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    model = DistributedDataParallel(Net())
    model.register_comm_hook(None, allreduce_hook)
    _, guard = train(True, model)
    return {"findings": guard.findings, "place": guard.gradient_check.place}


def several_optimizers():
    model = DistributedDataParallel(Net())
    first = torch.optim.SGD(model.module.inner.parameters(), 0.1, momentum=0.9)
    second = torch.optim.AdamW(model.module.outer.parameters())
    guard = tocsin.Guard(model, [first, second], folder=tempfile.mkdtemp(dir=sys.argv[2]))
    for step in (1, 2):
        guard.step(loss_of(model, batch(step, dist.get_rank())))
    names = [name for name, _, _ in guard.weight_check.voted]
    guard.close()
    return {"findings": guard.findings, "names": names}


def unaware():
    """A script that knows of no guard."""
    model = DistributedDataParallel(Net(norm=True, unused=True), find_unused_parameters=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    losses, _ = train(False, model, accumulate=2, scaler=scaler, max_norm=0.5)
    return {"bits": bits([*losses, *model.state_dict().values()])}


def unaware_plain():
    model = DistributedDataParallel(Net())
    losses, _ = train(False, model)
    return {"bits": bits([*losses, *model.state_dict().values()])}


def unaware_divided():
    """An optimizer that divides its state among the ranks, and has another one inside."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DistributedDataParallel(Net())
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = ZeroRedundancyOptimizer(trained, torch.optim.AdamW, lr=0.01)
    losses, _ = train(False, model, optimizer)
    return {"bits": bits([*losses, *model.state_dict().values()])}


def unaware_heads():
    """Two wrapped models that share a trunk: each optimizer has parameters of both."""
    torch.manual_seed(3)
    trunk = nn.Linear(4, 4)
    models = [DistributedDataParallel(nn.Sequential(trunk, nn.Linear(4, 2))) for _ in range(2)]
    optimizers = [torch.optim.SGD(model.parameters(), 0.1) for model in models]
    losses = []
    for step in range(STEPS):
        model, optimizer = models[step % 2], optimizers[step % 2]
        optimizer.zero_grad()
        losses.append(model(torch.ones(2, 4) * dist.get_rank()).square().mean())
        losses[-1].backward()
        optimizer.step()
    return {"bits": bits([*losses, *models[0].parameters(), *models[1].parameters()])}


def unaware_late_hook():
    """A communication hook for the second half of the training."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    model = DistributedDataParallel(Net())
    optimizer = make_optimizer(model)
    losses, _ = train(False, model, optimizer, steps=2)
    model.register_comm_hook(None, fp16_compress_hook)
    losses += train(False, model, optimizer, steps=2)[0]
    return {"bits": bits([*losses, *model.state_dict().values()])}


def unaware_closure():
    """Gradients that step() computes itself."""
    model = DistributedDataParallel(Net())
    optimizer = make_optimizer(model)
    losses = []
    for step in range(1, STEPS + 1):

        def closure(step=step):
            optimizer.zero_grad()
            loss = loss_of(model, batch(step, dist.get_rank()))
            loss.backward()
            return loss

        losses.append(optimizer.step(closure) if step % 2 else optimizer.step(closure=closure))
    return {"bits": bits([*losses, *model.state_dict().values()])}


def unaware_copies():
    """Copies and pickles of all, in the middle; the copies are trained on, too."""
    model = DistributedDataParallel(Net())
    optimizer = make_optimizer(model)
    losses, _ = train(False, model, optimizer)
    twin = copy.deepcopy(model)
    file = io.BytesIO()
    torch.save([model, optimizer], file)
    assert b"tocsin" not in file.getvalue()
    file.seek(0)
    read, _ = torch.load(file, weights_only=False)
    for each in (model, twin, read):
        losses += train(False, each, steps=1)[0]
    return {"bits": bits([*losses, *twin.state_dict().values(), *read.state_dict().values()])}


def unaware_trials():
    """What was trained and dropped is gone."""
    alive = []
    for _ in range(2):
        model = DistributedDataParallel(Net())
        optimizer = make_optimizer(model)
        train(False, model, optimizer, steps=1)
        alive += [weakref.ref(model), weakref.ref(model.module), weakref.ref(optimizer)]
        del model, optimizer
    gc.collect()
    return {"alive": [each() is not None for each in alive]}


def unaware_probe():
    """Rank 0 trains another model in between."""
    model = DistributedDataParallel(Net())
    losses, _ = train(False, model, steps=2)
    if dist.get_rank() == 0:
        attached = sys.modules.get("tocsin.guard.attached")
        if attached is not None:
            attached._patience, kept = 0.5, attached._patience
        losses += train(False, Net(), steps=2)[0]
        if attached is not None:
            attached._patience = kept
    dist.barrier(dist.new_group())
    losses += train(False, model, steps=2)[0]
    return {"bits": bits([*losses, *model.state_dict().values()])}


def unaware_in_backward():
    """Each parameter has an optimizer that steps as soon as its gradient is there."""
    model = Net()
    optimizers = {each: torch.optim.SGD([each], 0.1) for each in model.parameters()}

    def accumulated(parameter):
        dist.all_reduce(parameter.grad)
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(accumulated)
    losses = []
    for step in range(1, STEPS + 1):
        losses.append(loss_of(model, batch(step, dist.get_rank())))
        losses[-1].backward()
    return {"bits": bits([*losses, *model.state_dict().values()])}


def divided():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DistributedDataParallel(Net())
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = ZeroRedundancyOptimizer(trained, torch.optim.AdamW, lr=0.01)
    _, guard = train(True, model, optimizer)
    return {"findings": guard.findings, "uncovered": guard.weight_check.uncovered}


# ---- other ways to be distributed ----------------------------------------------------------------


def _sharded(mesh_shape, names, parallelize, given=False, **options):
    """A training on a mesh of 4 ranks, guarded and not."""
    from torch.distributed.device_mesh import init_device_mesh

    seen = []
    for guarded in (False, True):
        mesh = init_device_mesh("cpu", mesh_shape, mesh_dim_names=names)
        model = Net()
        parallelize(model, mesh)
        if given:
            options["mesh"] = mesh
        losses, guard = train(guarded, model, **options)
        weights = [getattr(p, "_local_tensor", p) for p in model.parameters()]
        seen.append(bits([*losses, *weights]))
    return {"same": seen[0] == seen[1], "findings": guard.findings,
            "place": guard.gradient_check.place, "uncovered": guard.weight_check.uncovered,
            "replicas": guard.weight_check.replicas,
            "bytes": guard.weight_check.bytes}  # fmt: skip


def _shard_fully(model, mesh):
    from torch.distributed.fsdp import fully_shard

    fully_shard(model.outer, mesh=mesh)
    fully_shard(model, mesh=mesh)


def hybrid_sharded():
    return _sharded((2, 2), ("replicas", "shards"), _shard_fully, max_norm=1.0)


def sharded():
    return _sharded((4,), ("shards",), _shard_fully, max_norm=1.0)


def tensor_parallel():
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    def parallelize(model, mesh):
        parallelize_module(
            model, mesh["model"], {"inner": ColwiseParallel(), "outer": RowwiseParallel()}
        )

    return _sharded((4,), ("model",), parallelize, given=True, own_batches=False)


def hybrid_fault():
    """One of two replicas of a shard: seen, nobody named."""
    from torch.distributed.device_mesh import init_device_mesh

    model = Net()
    _shard_fully(model, init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards")))

    def late(step):
        if step == 2 and dist.get_rank() == 3:
            _flip(model.outer.weight._local_tensor, 1)

    return alarm(model, late=late)


# ---- faults -------------------------------------------------------------------------------------


def alarm(model, **options):
    """The finding that ends a training, its exit code and what the ledger says."""
    try:
        train(True, model, **options)
    except tocsin.GuardAlarm as alarm:
        finding = alarm.finding
        return {"finding": finding, "code": alarm.code}
    return {"finding": None}


def _flip(tensor, index):
    tensor.detach().view(torch.int32).flatten()[index] ^= 1 << 3


def weight_fault():
    model = DistributedDataParallel(Net())
    optimizer = make_optimizer(model)

    def stepped(optimizer, args, kwargs):
        if optimizer.state[model.module.outer.bias]["step"] == 2 and dist.get_rank() == 1:
            _flip(model.module.outer.weight, 5)

    optimizer.register_step_post_hook(stepped)
    return alarm(model, optimizer=optimizer)


def state_fault():
    model = DistributedDataParallel(Net())
    optimizer = make_optimizer(model)

    def stepped(optimizer, args, kwargs):
        if optimizer.state[model.module.outer.bias]["step"] == 3 and dist.get_rank() == 2:
            _flip(optimizer.state[model.module.inner.weight]["exp_avg_sq"], 17)

    optimizer.register_step_post_hook(stepped)
    return alarm(model, optimizer=optimizer)


def begins_unlike():
    model = Net()
    if dist.get_rank() == 1:
        _flip(model.inner.weight, 0)
    model = DistributedDataParallel(model, init_sync=False)
    return alarm(model)


def _poisoned(rank, step, value, scaler=None, on_alarm="skip_update", **wrapped):
    """A NaN in the gradient of one element on one rank in one step."""
    model = DistributedDataParallel(Net(), **wrapped)
    now = {"calls": 0}

    def changed(gradient):
        now["calls"] += 1
        if dist.get_rank() != rank or now["calls"] != step:
            return None
        gradient = gradient.clone()
        gradient[2, 3] = value
        return gradient

    model.module.outer.weight.register_hook(changed)
    before = {}

    def before_step(number):
        if number == step:
            before["weights"] = bits(model.parameters())

    def late(number):
        if number == step:
            before["same"] = before["weights"] == bits(model.parameters())

    _, guard = train(True, model, on_alarm=on_alarm, before_step=before_step, late=late,
                     scaler=scaler)  # fmt: skip
    return {
        "findings": guard.findings, "kept": before["same"],
        "skipped": [outcome.skipped_by for outcome in guard.outcomes],
        "finite": all(bool(p.isfinite().all()) for p in model.parameters()),
    }  # fmt: skip


def nan_in_a_gradient():
    return _poisoned(1, 2, float("nan"))


def nan_beside_a_hook():
    return _poisoned(1, 2, float("nan"), gradient_as_bucket_view=True)


def scaler_skips():
    return _poisoned(1, 2, float("inf"), torch.amp.GradScaler("cpu", init_scale=1024.0))


def continues():
    return _poisoned(0, 3, float("nan"), on_alarm="continue")


def say(value):
    """A line, by one write: ranks share the output."""
    sys.stdout.flush()
    line = (json.dumps(value) + "\n").encode()
    while line:
        line = line[os.write(1, line) :]


def _leaves(how, timeout):
    """Rank 2 leaves between the update and the vote; how long do the others wait?"""
    model = DistributedDataParallel(Net())
    optimizer = make_optimizer(model)

    def stepped(optimizer, args, kwargs):
        if optimizer.state[model.module.outer.bias]["step"] == 2 and dist.get_rank() == 2:
            say({"left": time.time()})
            how()

    optimizer.register_step_post_hook(stepped)
    folder = os.path.join(sys.argv[2], "ledger")
    guard = tocsin.Guard(model, optimizer, folder=folder, timeout=timeout)
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        try:
            guard.step(loss_of(model, batch(step, dist.get_rank())))
        except tocsin.GuardAlarm as alarm:
            say({"rank": guard.rank, "code": alarm.code, "at": time.time()})
            os._exit(alarm.code)


def killed():
    _leaves(lambda: os.kill(os.getpid(), signal.SIGKILL), 20.0)


def hangs():
    _leaves(lambda: time.sleep(600), 2.0)


def _ranks(world):
    port_file = os.path.join(sys.argv[2], "store")
    for rank in range(1, world):
        if os.fork() == 0:
            return rank, port_file
    return 0, port_file


def main(trainings):
    world = int(sys.argv[1])
    torch.set_num_threads(1)
    rank, store = _ranks(world)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    for name in sys.argv[3:]:
        seen = [None] * world
        dist.all_gather_object(seen, trainings[name]())
        if rank == 0:
            say({"name": name, "ranks": seen})
    gloo_end.leave()
    if rank == 0:
        for _ in range(world - 1):
            os.wait()
    else:
        os._exit(0)


if __name__ == "__main__":
    main(globals())
