"""Checkpoints behind the gate: `guard_gate_program.py RANKS FOLDER NAME...` runs each as ranks of
one job and prints one JSON line each: what became of the save on every rank."""

import contextlib
import json
import os
import signal
import sys
import tempfile
import time

import gloo_end
import torch
import torch.distributed as dist
import torch.distributed.checkpoint
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import tocsin

FOLDER = sys.argv[2]


def path(name):
    return os.path.join(FOLDER, name)


class Training:
    """A small guarded training; `step` makes one step of it."""

    def __init__(self, shard=False, mesh=None, **options):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 5))
        if shard or mesh is not None:
            self.model = fully_shard(model, mesh=mesh)
        else:
            self.model = DistributedDataParallel(model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.guard = tocsin.Guard(self.model, self.optimizer, folder=tempfile.mkdtemp(dir=FOLDER),
                                  **{"timeout": 20, **options})  # fmt: skip

    def step(self, spoil=None):
        generator = torch.Generator().manual_seed(10 * self.guard.step_number + dist.get_rank())
        self.optimizer.zero_grad()
        self.guard.backward(self.model(torch.randn(4, 6, generator=generator)).square().sum())
        if spoil is not None:
            spoil()
        self.guard.step()
        return self

    def weight(self):
        return next(self.model.parameters()).data

    def state(self):
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                "epoch": 3, "rates": [0.1, float("nan")], "name": "a"}  # fmt: skip

    def save(self, name):
        """By rank 0."""
        try:
            saved = self.guard.save(self.state() if dist.get_rank() == 0 else None, path(name))
        except SystemExit as alarm:
            return {"code": alarm.code, "finding": alarm.finding}
        except (OSError, RuntimeError) as error:
            return {"error": f"{type(error).__name__}: {error}"}
        return {"state": saved.state, "reason": saved.reason}

    def save_distributed(self, name):
        try:
            state = {"model": self.model.state_dict(), "epoch": 3}
            saved = self.guard.save_distributed(state, path(name))
        except SystemExit as alarm:
            return {"code": alarm.code, "finding": alarm.finding}
        return {"state": saved.state, "reason": saved.reason}


@contextlib.contextmanager
def torch_save(replacement):
    """What a machine might make of torch.save."""
    original = torch.save
    torch.save = lambda state, file, *rest, **named: replacement(original, state, file)
    try:
        yield
    finally:
        torch.save = original


def flip_bit(file, content, bit):
    """Flip a bit of the first place that holds these bytes."""
    with open(file, "r+b") as opened:
        data = bytearray(opened.read())
        data[data.index(content) + bit // 8] ^= 1 << bit % 8
        opened.seek(0)
        opened.write(data)


# ---- what happens ------------------------------------------------------------------------------


def healthy():
    return Training().step().step().save("healthy.pt")


def before_the_first_step():
    return Training().save("first.pt")


def audited():
    """A replay of the last batch, with the weights that are saved."""

    def rebuild(step, rank):
        return torch.randn(4, 6, generator=torch.Generator().manual_seed(10 * step + rank))

    def loss_of(model, batch):
        return model(batch).square().sum()

    training = Training(gate="audit", rebuild_batch=rebuild, compute_loss=loss_of)
    guard = training.guard
    for _ in range(2):
        training.optimizer.zero_grad()
        guard.step(guard.compute_loss(rebuild(guard.step_number, guard.rank)))
    return training.save("audited.pt")


def poisoned_weight():
    training = Training().step()
    first = training.save("poisoned.pt")
    training.step()
    if dist.get_rank() == 1:
        training.weight().view(torch.int32)[3, 2] ^= 1
    return [first, training.save("poisoned.pt")]


def staged_byte_flipped():
    training = Training().step()
    first = training.save("staged.pt")
    training.step()

    def save(original, state, file):
        original(state, file)
        flip_bit(file, training.weight().numpy().tobytes(), 32 * 9 + 30)

    with torch_save(save):
        return [first, training.save("staged.pt")]


def changed_on_its_way():
    training = Training().step()

    def save(original, state, file):
        copy = dict(state["model"])
        copy["module.1.running_mean"] = copy["module.1.running_mean"] * 2  # nobody votes on it
        original({**state, "model": copy, "epoch": 4}, file)

    with torch_save(save):
        return training.save("changed.pt")


def disk_full():
    training = Training().step()

    def save(original, state, file):
        with open(file, "wb") as part:
            part.write(b"PK")
        raise OSError(28, "No space left on device")

    with torch_save(save):
        return training.save("full.pt")


def one_of_several_fails():
    """Each rank writes a file of its own."""
    training, rank = Training().step(), dist.get_rank()

    def save(original, state, file):
        if rank == 0:
            raise OSError(28, "No space left on device")
        original(state, file)

    with torch_save(save):
        try:
            training.guard.save(training.state(), path(f"own-{rank}.pt"))
        except (OSError, RuntimeError) as error:
            return {"error": f"{type(error).__name__}: {error}"}


def slow_disk():
    training = Training(timeout=1.0).step()

    def save(original, state, file):
        time.sleep(2.5)
        original(state, file)

    with torch_save(save):
        return training.save("slow.pt")


def killed():
    """The writer dies in the middle; to be run last."""
    training = Training(timeout=3.0).step()
    first = training.save("killed.pt")
    training.step()

    def save(original, state, file):
        original(state, file)
        os.kill(os.getpid(), signal.SIGKILL)

    with torch_save(save):
        second = training.save("killed.pt")
    if dist.get_rank() == 1:
        print(json.dumps({"name": "killed", "ranks": [[first, second]]}), flush=True)
    os._exit(0)


def went_on():
    def spoil():
        if dist.get_rank() == 2:
            next(training.model.parameters()).grad[0, 0] = float("nan")

    training = Training(on_alarm="continue")
    return training.step(spoil).save("went_on.pt")


def copies():
    """Tensors that are no aliases of what was voted on are saved, too."""
    training = Training().step()
    own = {key: tensor.clone() for key, tensor in training.model.state_dict().items()}
    training.state = lambda: {"model": own, "set": {1, 2}, "kind": torch.float16}
    return training.save("copies.pt")


def own_class():
    training = Training().step()
    training.state = lambda: {"guard": training.guard.exchange}
    try:
        return training.save("class.pt")
    except ValueError as error:
        return {"error": str(error)}


def sharded():
    return Training(shard=True).step().save_distributed("sharded")


def sharded_again():
    training = Training(shard=True).step()
    first = training.save_distributed("again")
    return [first, training.step().save_distributed("again")]


def sharded_piece_flipped():
    """Between the write and the reading back, on the disk of rank 1."""
    training = Training(shard=True).step()
    original = torch.distributed.checkpoint.save

    def save(state, checkpoint_id):
        original(state, checkpoint_id=checkpoint_id)
        if dist.get_rank() == 1:
            local = state["model"]["0.weight"].to_local()
            flip_bit(os.path.join(checkpoint_id, "__1_0.distcp"), local.numpy().tobytes(), 5)

    torch.distributed.checkpoint.save = save
    try:
        return training.save_distributed("flipped")
    finally:
        torch.distributed.checkpoint.save = original


def hybrid():
    """Shards with replicas: all is voted on."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))
    training = Training(mesh=mesh).step()
    first = training.save_distributed("hybrid")
    training.step()
    if dist.get_rank() == 3:
        training.weight().to_local().view(torch.int32)[1, 1] ^= 1
    return [first, training.save_distributed("hybrid")]


def resumed():
    training = Training(first_step=11)
    return [training.save("resumed.pt"), training.step().save("resumed.pt")]


def tried_again():
    training = Training(on_alarm="continue").step()

    def save(original, state, file):
        original({**state, "epoch": 4}, file)

    with torch_save(save):
        first = training.save("again.pt")
    return [first, training.save("again.pt")]


def replicated():
    return Training().step().save_distributed("replicated")


# ---- ranks -------------------------------------------------------------------------------------


def run(rank, size, names, rendezvous):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=size)
    for name in names:
        seen = globals()[name]()
        ranks = [None] * size
        dist.all_gather_object(ranks, seen)
        if rank == 0:
            print(json.dumps({"name": name, "ranks": ranks}), flush=True)
    gloo_end.leave()


def main():
    size, names = int(sys.argv[1]), sys.argv[3:]
    rendezvous = path("rendezvous")
    children = []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                run(rank, size, names, rendezvous)
                code = 0
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                if code:
                    import traceback

                    traceback.print_exc()
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    sys.exit(max(codes))


if __name__ == "__main__":
    main()
