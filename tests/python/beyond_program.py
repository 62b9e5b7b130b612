"""Collectives, activations and weights under guard: `beyond_program.py RANKS FOLDER NAME...` runs
each as ranks of one job and prints one JSON line each: what every rank saw. The ranks are forks, so
that torch is imported once.
"""

import json
import os
import sys
import tempfile

import gloo_end
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tocsin

COUNT = 40
WAIT = vars(dist.Work)["wait"]


def guarded(model=None, **options):
    model = model or nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
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


KINDS = (all_gather, all_gather_single, broadcast, all_to_all, all_to_all_single, gather, scatter,
         message, messages_around, all_reduce, all_reduce_later, all_reduce_future,
         all_reduce_maximum, reduce_scatter, reduce_scatter_single)  # fmt: skip


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
    "all_reduce_maximum": "allreduce", "reduce_scatter": "reduce_scatter",
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
    else:
        os._exit(0)


if __name__ == "__main__":
    main()
