"""Collectives, activations and weights under guard: `beyond_program.py RANKS FOLDER NAME...` runs
each as ranks of one job and prints one JSON line each: what every rank saw. The ranks are forks, so
that torch is imported once.
"""

import contextlib
import copy
import json
import os
import sys
import tempfile

import gloo_end
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import tocsin

COUNT = 40
WAIT = vars(dist.Work)["wait"]


def guarded(model=None, optimizer=None, **options):
    model = model or nn.Linear(2, 2)
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 0.1)
    options.setdefault("on_alarm", "continue")
    return tocsin.Guard(model, optimizer, folder=tempfile.mkdtemp(dir=sys.argv[2]), timeout=20,
                        **options)  # fmt: skip


def mine(count=COUNT, dtype=torch.float32):
    generator = torch.Generator().manual_seed(17 * dist.get_rank() + 3)
    return torch.randn(count, generator=generator).to(dtype)


def parts(count=COUNT):
    return [mine(count) + i for i in range(dist.get_world_size())]


def blank(count=COUNT):
    return [torch.empty(count) for _ in range(dist.get_world_size())]


# ---- every kind of collective -------------------------------------------------------------------


def all_gather():
    out = blank()
    dist.all_gather(out, mine())
    return torch.cat(out)


def all_gather_single():
    out = torch.empty(COUNT * dist.get_world_size())
    dist.all_gather_into_tensor(out, mine())
    return out


def broadcast():
    tensor = mine()
    dist.broadcast(tensor, 1)
    return tensor


def all_to_all():
    out = blank()
    dist.all_to_all(out, parts())
    return torch.cat(out)


def all_to_all_single():
    """Of unequal parts."""
    rank, world = dist.get_rank(), dist.get_world_size()
    sizes = [rank + to + 1 for to in range(world)]
    out = torch.empty(sum(rank + each + 1 for each in range(world)), 3)
    tensor = mine(3 * sum(sizes)).view(-1, 3)
    dist.all_to_all_single(out, tensor, [rank + each + 1 for each in range(world)], sizes)
    return out


def gather():
    out = blank() if dist.get_rank() == 1 else None
    dist.gather(mine(), out, 1)
    return torch.cat(out) if out else torch.zeros(1)


def scatter():
    tensor = torch.empty(COUNT)
    dist.scatter(tensor, parts() if dist.get_rank() == 0 else None, 0)
    return tensor


def message():
    if dist.get_rank() == 0:
        dist.send(mine(), 1)
        return mine()
    tensor = torch.empty(COUNT)
    if dist.get_rank() == 1:
        dist.recv(tensor, 0)
    return tensor if dist.get_rank() == 1 else mine()


def messages_around():
    rank, world = dist.get_rank(), dist.get_world_size()
    tensor = torch.empty(COUNT, dtype=torch.float64)
    work = dist.batch_isend_irecv([
        dist.P2POp(dist.isend, mine(dtype=torch.float64), (rank + 1) % world),
        dist.P2POp(dist.irecv, tensor, (rank - 1) % world),
    ])  # fmt: skip
    for each in work:
        each.wait()
    return tensor


def all_reduce():
    tensor = mine(5000)
    dist.all_reduce(tensor)
    return tensor


def all_reduce_later():
    """Asynchronously; what was waited for is overwritten at once."""
    tensor = mine(5000, torch.bfloat16)
    works = [dist.all_reduce(tensor, async_op=True)]
    whole = torch.empty(COUNT * dist.get_world_size())
    works.append(dist.all_gather_into_tensor(whole, mine(), async_op=True))
    for work in works if dist.get_rank() else reversed(works):
        work.wait()
    seen = torch.cat([tensor.float(), whole])
    tensor.zero_()
    whole.zero_()
    return seen


def all_reduce_future():
    tensor = mine(700)
    work = dist.all_reduce(tensor, op=dist.ReduceOp.AVG, async_op=True)
    return work.get_future().then(lambda future: future.value()[0] * 1).wait()


def all_reduce_maximum():
    tensor = mine(700)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return tensor


def reduce_scatter():
    tensor = torch.empty(COUNT)
    dist.reduce_scatter(tensor, parts())
    return tensor


def reduce_scatter_single():
    tensor = torch.empty(COUNT)
    dist.reduce_scatter_tensor(tensor, mine(COUNT * dist.get_world_size()))
    return tensor


def reduce():
    """The root's; what the others hold then is nobody's."""
    tensor = mine(700)
    dist.reduce(tensor, 1)
    return tensor if dist.get_rank() == 1 else mine()


KINDS = (all_gather, all_gather_single, broadcast, all_to_all, all_to_all_single, gather, scatter,
         message, messages_around, all_reduce, all_reduce_later, all_reduce_future,
         all_reduce_maximum, reduce, reduce_scatter, reduce_scatter_single)  # fmt: skip


def healthy():
    """Each kind three times, with and without a guard: the same bits, nothing found."""
    plain = [kind().tolist() for kind in KINDS]
    guard = guarded(collectives=True)
    same = True
    for _ in range(3):
        same &= plain == [kind().tolist() for kind in KINDS]
        guard.step()
    check = guard.collective_check
    guard.close()
    return {"same": same, "findings": guard.findings, "verified": check.verified,
            "uncovered": check.uncovered, "left": len(check.done),
            "restored": vars(dist.Work)["wait"] is WAIT}  # fmt: skip


METHODS = {
    "all_gather": "allgather", "all_gather_single": "all_gather_single", "broadcast": "broadcast",
    "all_to_all": "alltoall", "all_to_all_single": "all_to_all_single", "gather": "gather",
    "scatter": "scatter", "message": "send", "messages_around": "send", "all_reduce": "allreduce",
    "all_reduce_later": "allreduce", "all_reduce_future": "allreduce",
    "all_reduce_maximum": "allreduce", "reduce": "reduce", "reduce_scatter": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter_single",
}  # fmt: skip


def _tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)


def _flip(tensor):
    bits = torch.int16 if tensor.element_size() == 2 else torch.int32
    tensor.view(-1).view(bits)[0] ^= 1 << 13


class Fault:
    """On these ranks what the method fills is wrong in one bit of its last tensor's first element,
    below where the guard looks, so this is made before the guard. A message and a reduce-scatter
    go wrong on their way out: they do not stay as they are when they are waited for again."""

    def __init__(self, name, ranks, on=True):
        self.method, self.ranks, self.on = METHODS[name], ranks, on
        self.original = vars(dist.ProcessGroup)[self.method]
        self.kept = []
        fault = self

        def spoilt(group, tensors, *arguments):
            return fault.call(group, tensors, *arguments)

        setattr(dist.ProcessGroup, self.method, spoilt)

    def call(self, group, tensors, *arguments):
        spared = group.group_desc.startswith("tocsin-guard")
        if spared or not self.on or dist.get_rank() not in self.ranks:
            return self.original(group, tensors, *arguments)
        if self.method == "send":
            return self.original(group, [self.copy(tensors[0])], *arguments)
        if self.method == "reduce_scatter_single":
            return self.original(group, tensors, self.copy(arguments[0]), *arguments[1:])
        work = self.original(group, tensors, *arguments)
        work.wait()
        _flip(list(_tensors(tensors))[-1])
        return work

    def copy(self, tensor):
        self.kept.append(tensor.clone())
        _flip(self.kept[-1])
        return self.kept[-1]

    def end(self):
        setattr(dist.ProcessGroup, self.method, self.original)


FAULTY = {"broadcast": 2, "message": 0}  # elsewhere rank 1


def faults():
    """What is found of a wrong buffer on one rank, in each kind; and that nothing is, after."""
    seen = {}
    for kind in KINDS:
        fault = Fault(kind.__name__, [FAULTY.get(kind.__name__, 1)])
        guard = guarded(collectives=True)
        kind()
        guard.step()
        seen[kind.__name__] = [
            {key: finding[key] for key in ("check", "cause", "ranks", "index", "text", "evidence")}
            for finding in guard.findings
        ]
        guard.close()
        fault.end()
    return seen


def everywhere():
    """A wrong sum that all ranks got: in a bit, and in all bits."""
    fault = Fault("all_reduce", range(dist.get_world_size()))
    guard = guarded(collectives=True)
    all_reduce_maximum()
    tensor = mine(700)
    dist.all_reduce(tensor)
    guard.step()
    guard.close()
    fault.end()
    return [[each["ranks"], each["text"]] for each in guard.findings]


def in_ddp():
    """The buckets of DistributedDataParallel, and groups of some ranks."""
    rank = dist.get_rank()
    pair = dist.new_group([0, 1])
    fault = Fault("all_reduce", [1], on=False)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)))
    guard = guarded(model, collectives=True)
    for step in range(3):
        if rank < 2:
            dist.all_reduce(mine(), group=pair)
        loss = model(mine(24).view(4, 6)).square().mean()
        guard.step(loss)
    first = guard.collective_check.verified
    fault.on = True
    guard.step(model(mine(24).view(4, 6)).square().mean())
    fault.end()
    guard.close()
    findings = [[each["check"], each["ranks"]] for each in guard.findings]
    return {"verified": first, "findings": findings}


def from_anyone():
    """Messages whose sender is not known are not compared, and neither are later ones."""
    guard = guarded(collectives=True)
    tensor = torch.empty(COUNT)
    for _ in range(2):
        if dist.get_rank() == 0:
            dist.recv(tensor)
            dist.recv(tensor)
        else:
            dist.send(mine(), 0)
        guard.step()
    guard.close()
    return {"findings": guard.findings, "uncovered": guard.collective_check.uncovered}


def stops():
    fault = Fault("all_gather", [2])
    guard = guarded(collectives=True, on_alarm="stop")
    all_gather()
    try:
        guard.step()
    except tocsin.GuardAlarm as alarm:
        return alarm.code
    finally:
        guard.close()
        fault.end()


# ---- reductions as a whole ----------------------------------------------------------------------


def sums():
    """Of many types, in large and small groups, some of them longer than gloo's pieces."""
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32):
        yield "all_reduce", dist.ReduceOp.SUM, dtype, 70001, None
    for root in range(2):
        yield "reduce", dist.ReduceOp.AVG, torch.float32, 2000003, root
    yield "all_reduce", dist.ReduceOp.AVG, torch.float32, 2000003, None
    yield "all_reduce", dist.ReduceOp.MAX, torch.float32, 3001, None
    yield "reduce_scatter", dist.ReduceOp.SUM, torch.float32, 3001, None
    yield "reduce_scatter_tensor", dist.ReduceOp.SUM, torch.float32, 300001, None


def add_up(kind, operation, dtype, count, root, group):
    if kind.startswith("reduce_scatter"):
        inputs = [each.to(dtype) for each in parts(count)][: dist.get_world_size(group)]
        tensor = torch.empty(count, dtype=dtype)
        inputs = torch.cat(inputs) if kind.endswith("tensor") else inputs
        getattr(dist, kind)(tensor, inputs, operation, group=group)
        return
    tensor = (mine(count) * 100).to(dtype)
    if kind == "reduce":
        dist.reduce(tensor, root, operation, group=group)
    else:
        dist.all_reduce(tensor, operation, group=group)


def healthy_whole():
    """Every element of each sum is computed again, in one piece or in many."""
    from tocsin.guard import whole_reductions

    pair = dist.new_group([0, 1])
    guard = guarded(collectives=True, audit_every=2)
    plain = whole_reductions._PIECE
    for piece in (plain, plain, plain, 1 << 16):
        whole_reductions._PIECE = piece
        for what in sums():
            if what[3] > 1 << 20 and piece != plain:
                continue
            add_up(*what, None)
            if dist.get_rank() < 2:
                add_up(*what, pair)
        guard.step()
    whole_reductions._PIECE = plain
    check = guard.collective_check
    guard.step()
    seen = [check.whole, check._passed_whole]
    whole_reductions.HELD_MAX >>= 12 if dist.get_rank() == 0 else 0  # one rank keeps less
    dist.all_reduce(mine(300001))
    guard.step()
    guard.close()
    seen += [check.whole, check._passed_whole]
    whole_reductions.HELD_MAX = 1 << 32
    return {"findings": guard.findings, "whole": seen, "verified": check.verified,
            "uncovered": check.uncovered, "held": check._held,
            "rings": [group.ring for group in check._groups.values() if group.watched]}  # fmt: skip


class Given(Fault):
    """What this rank gives to an all-reduce is wrong in one bit of one element, each time."""

    def __init__(self, rank, element):
        super().__init__("all_reduce", [rank])
        self.element = element

    def call(self, group, tensors, *arguments):
        spared = group.group_desc.startswith("tocsin-guard")
        if not spared and self.on and dist.get_rank() in self.ranks:
            tensors[0].view(-1)[self.element].mul_(1.5)
        return self.original(group, tensors, *arguments)


def out_of_sight(count, steps):
    """An element that no slice of these steps has."""
    from tocsin import _core
    from tocsin.guard.collective_calls import Group

    key = Group(dist.group.WORLD, dist).key
    seen = set()
    for step in steps:
        first, length = _core.guard_reduction_slice(key, step, 1, count)
        seen.update(range(first, first + length))
    return next(each for each in range(count // 2, count) if each not in seen)


def given_fault():
    """Found in the next audited step, wherever it is, and no step since the last is trusted."""
    count = 100000
    element = out_of_sight(count, range(1, 6))
    fault = Given(1, element)
    guard = guarded(collectives=True, audit_every=2)
    for step in range(1, 6):
        fault.on = step > 2
        dist.all_reduce(mine(count))
        guard.step()
    guard.close()
    fault.end()
    return {"element": element, "findings": _found(guard),
            "index": [each["index"] for each in guard.findings],
            "window": [each["suspect_window"] for each in guard.findings]}  # fmt: skip


def given_before_a_save():
    """No step is audited, but the save is. Once healthy, once not."""
    model = DistributedDataParallel(nn.Linear(300, 20))
    element = out_of_sight(6020, range(1, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    seen = []
    for on in (False, True):
        fault = Given(2, element)
        guard = guarded(
            model, optimizer, rebuild_batch=lambda step, rank: torch.ones(4, 300) * step,
            compute_loss=lambda model, x: model(x).square().mean(), gate="audit",
            audit_every=1000, collectives=True,
        )  # fmt: skip
        fault.on = on
        for step in (1, 2):
            optimizer.zero_grad()
            guard.step(guard.compute_loss(torch.ones(4, 300) * step))
        path = os.path.join(guard.folder, "model.pt")
        state = model.module.state_dict() if dist.get_rank() == 0 else None
        generator = torch.get_rng_state()
        saved = guard.save(state, path).state
        seen.append([saved, os.path.exists(path), guard.collective_check.whole,
                     torch.equal(generator, torch.get_rng_state()),
                     [[each["check"], each["index"], each["step"]] for each in guard.findings]])
        guard.close()
        fault.end()
    return {"element": element, "seen": seen}


# ---- activations and weights --------------------------------------------------------------------


class Net(nn.Module):
    """Three blocks whose forward may be recomputed."""

    def __init__(self, recompute, dropout=0.0, norm=False, keep_random=True):
        super().__init__()
        torch.manual_seed(5)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6) if norm else nn.Tanh(),
                          nn.Dropout(dropout), nn.Linear(6, 6), nn.GELU())
            for _ in range(3)
        )  # fmt: skip
        self.recompute, self.keep_random = recompute, keep_random

    def forward(self, x):
        for block in self.blocks:
            if self.recompute is None:
                x = block(x)
            else:
                x = checkpoint(block, x, use_reentrant=self.recompute,
                               preserve_rng_state=self.keep_random)  # fmt: skip
        return x


def train(model, watch, steps=4, accumulate=1, before_forward=None, copies=False, **options):
    """(bits of all that was trained, the guard): watched or not."""
    rank = dist.get_rank()
    model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    guard = None
    if watch:
        options.setdefault("on_alarm", "continue")
        guard = tocsin.Guard(model, optimizer, folder=tempfile.mkdtemp(dir=sys.argv[2]), timeout=20,
                             recompute=True, memory=True, collectives=True, **options)  # fmt: skip
    torch.manual_seed(9 + rank)
    losses = []
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        if before_forward is not None:
            before_forward(model.module, step, guard)
        for micro in range(accumulate):
            generator = torch.Generator().manual_seed(100 * step + 10 * rank + micro)
            x = torch.randn(8, 6, generator=generator, requires_grad=True)
            with guard.forward() if watch else contextlib.nullcontext():
                if copies:  # of it all, hooks too; what it computes is its own affair
                    losses.append(copy.deepcopy(model)(x + step).detach())
                loss = model(x).square().mean()
            losses.append(loss.detach().clone())
            loss.backward()
        if watch:
            guard.step()
        else:
            optimizer.step()
    if watch:
        guard.close()
    tensors = [*losses, *model.state_dict().values()]
    return [each.detach().reshape(-1).view(torch.uint8).tolist() for each in tensors], guard


def _twice(make, **options):
    (plain, _), (watched, guard) = train(make(), False, **options), train(make(), True, **options)
    check = guard.recompute_check
    return {"same": plain == watched, "findings": guard.findings, "saved": check.saved.total,
            "recomputed": check.recomputed.total, "uncompared": check.uncompared,
            "memory": guard.memory_check.comparison.total}  # fmt: skip


def healthy_activations():
    return {
        "plain": _twice(lambda: Net(None)),
        "statistics": _twice(lambda: Net(None, norm=True)),
        "recomputed": _twice(lambda: Net(False)),
        "reentrant": _twice(lambda: Net(True)),
        "dropout": _twice(lambda: Net(False, 0.3)),
        "other_random": _twice(lambda: Net(False, 0.3, keep_random=False)),
        "norm": _twice(lambda: Net(False, norm=True)),
        "accumulated": _twice(lambda: Net(False, 0.3), accumulate=2),
        "copied": _twice(lambda: Net(False), copies=True),
        "compiled": _twice(lambda: torch.compile(Net(None), backend="aot_eager")),
    }


def healthy_shards(recompute=False, **options):
    """FSDP: parameters gathered and gradients scattered by its own collectives."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    options["mp_policy"] = MixedPrecisionPolicy(**options.pop("precision", {}))
    seen = []
    for watch in (False, True):
        model = Net(recompute, 0.2)
        for block in model.blocks:
            fully_shard(block, **options)
        fully_shard(model, **options)
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)
        guard = None
        if watch:
            guard = guarded(model, optimizer, collectives=True, recompute=True, memory=True)
        torch.manual_seed(dist.get_rank())
        for step in range(3):
            optimizer.zero_grad()
            with guard.forward() if watch else contextlib.nullcontext():
                loss = model(mine(48).view(8, 6)).square().mean()
            loss.backward()
            if watch:
                guard.step()
            else:
                optimizer.step()
        seen.append([each.to_local().tolist() for each in model.parameters()])
    guard.close()
    return {"same": seen[0] == seen[1], "findings": guard.findings,
            "verified": guard.collective_check.verified,
            "recomputed": guard.recompute_check.recomputed.total,
            "memory": guard.memory_check.comparison.total}  # fmt: skip


def healthy_shards_in_bfloat16():
    return healthy_shards(None, precision={"param_dtype": torch.bfloat16,
                                           "reduce_dtype": torch.float32})  # fmt: skip


def _found(guard):
    names = ("check", "cause", "ranks", "tensor", "step")
    return [{name: each[name] for name in names} for each in guard.findings]


def saved_fault():
    """A kept activation changes on rank 1, between forward and backward of step 3."""
    now = {"step": 0}

    def hook(module, arguments, output):
        if now["step"] == 3 and dist.get_rank() == 1:
            output.register_hook(lambda gradient: _flip(output.data))

    model = Net(None)
    model.blocks[1][1].register_forward_hook(hook)
    model.blocks[0].register_forward_pre_hook(lambda *_: now.update(step=now["step"] + 1))
    return _found(train(model, True)[1])


def recompute_fault(deterministic=True):
    """A recomputed output is another one on rank 2 in step 3."""
    now = {"calls": 0}

    def hook(module, arguments, output):
        now["calls"] += 1
        if now["calls"] == 6 and dist.get_rank() == 2:
            _flip(output.data)

    model = Net(False)
    model.blocks[2][1].register_forward_hook(hook)
    torch.use_deterministic_algorithms(deterministic)
    try:
        return _found(train(model, True)[1])
    finally:
        torch.use_deterministic_algorithms(False)


def recompute_fault_unrepeatable():
    return recompute_fault(False)


def memory_fault():
    """A weight changes on rank 1 before step 3, unseen by torch."""

    def before(model, step, guard):
        if step == 3 and dist.get_rank() == 1:
            _flip(model.blocks[1][3].weight.data)

    return _found(train(Net(None), True, before_forward=before)[1])


def memory_stops():
    def before(model, step, guard):
        if step == 3 and dist.get_rank() == 1:
            _flip(model.blocks[1][3].weight.data)

    try:
        train(Net(None), True, before_forward=before, on_alarm="skip_update")
    except tocsin.GuardAlarm as alarm:
        return alarm.code


def written_by_the_program():
    """What torch counts, what is said, and what is neither, on all ranks."""

    def before(model, step, guard):
        weight = model.blocks[0][0].weight
        if step == 2:
            with torch.no_grad():
                weight.mul_(0.5)
        elif step == 3:
            weight.data.mul_(0.5)
            guard.weights_changed()
        elif step == 4:
            weight.data = weight.data * 2
        elif step == 5:
            weight.data.mul_(0.5)

    return _found(train(Net(None), True, steps=5, before_forward=before)[1])


def written_in_place():
    """Torch's own error stays."""
    guard = guarded(recompute=True)
    x = torch.ones(3, requires_grad=True)
    with guard.forward():
        y = x.exp()
        loss = y.sum()
    y.detach().add_(1)
    try:
        loss.backward()
    except RuntimeError as error:
        return "modified by an inplace operation" in str(error)
    finally:
        guard.close()


def main():
    world, store = int(sys.argv[1]), os.path.join(sys.argv[2], "store")
    torch.set_num_threads(1)
    rank = next((rank for rank in range(1, world) if os.fork() == 0), 0)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    for name in sys.argv[3:]:
        seen = [None] * world
        dist.all_gather_object(seen, globals()[name]())
        if rank == 0:
            print(json.dumps({"name": name, "ranks": seen}), flush=True)
    gloo_end.leave()
    if rank == 0:
        for _ in range(world - 1):
            os.wait()
    os._exit(0)  # no thread of gloo finds the interpreter gone, however busy the machine is


if __name__ == "__main__":
    main()
