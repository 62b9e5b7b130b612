"""Small trainings on two ranks for test_ranks.py: `python rank_programs.py NAME`.

The second rank is a fork of the first, so that torch is imported once.
"""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler

RANKS = 2


def network(seed=1, dropout=0.0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 3))


def points(count=48):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(count, 6, generator=generator)
    return TensorDataset(x, x[:, :3].argmax(1))


def own_points(rank):
    return torch.randn(8, 6, generator=torch.Generator().manual_seed(100 + rank))


def descend(model, optimizer, loader, limit=None):
    for i, (x, y) in enumerate(loader):
        if i == limit:
            break
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def evaluate(model, x, y):
    model.eval()
    with torch.no_grad():
        loss = F.cross_entropy(model(x), y)
    model.train()
    return loss


def replicated(rank, seed, sampler, epochs=2, limit=None):
    """Data-parallel training; seed: of the masks."""
    data = points()
    model = DistributedDataParallel(network(dropout=0.2))
    torch.manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(data, batch_sampler=sampler(data))
    for epoch in range(epochs):
        loader.batch_sampler.sampler.set_epoch(epoch)
        descend(model, optimizer, loader, limit)
        evaluate(model.module, *data[:8])


def shards(data):
    return BatchSampler(DistributedSampler(data), 4, drop_last=True)


def averaged(model, divide=True):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        if divide:
            parameter.grad.div_(RANKS)


# ---- healthy --------------------------------------------------------------------------------


def data_parallel(rank):
    """What the others are compared with."""
    replicated(rank, 7 + rank, shards)


def seeded_alike(rank):
    """Most scripts are: the masks of the ranks are the same."""
    replicated(rank, 7, shards)


def epochs_broken_off(rank):
    replicated(rank, 9 + rank, shards, epochs=3, limit=2)


def averaged_by_hand(rank):
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    x = own_points(rank)
    for _ in range(5):
        optimizer.zero_grad()
        (model(x) - x[:, :3]).square().mean().backward()
        averaged(model)
        optimizer.step()


def averaged_now_and_then(rank):
    """The ranks start alike, train apart, and average their weights after every third step."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x = own_points(rank)
    for step in range(7):
        optimizer.zero_grad()
        loss = (model(x) - x[:, :3]).square().mean()
        loss.backward()
        total = loss.detach().clone()
        dist.all_reduce(total)  # for a log
        optimizer.step()
        if step % 3 == 2:
            for parameter in model.parameters():
                dist.all_reduce(parameter.data)
                parameter.data.div_(RANKS)


def side_by_side(rank):
    """Two trainings that have nothing to do with each other, but the gradient of their bias."""
    critic = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    optimizer = torch.optim.SGD(critic.parameters(), lr=0.05)
    x = own_points(rank)
    for _ in range(4):
        optimizer.zero_grad()
        critic(x).mean().backward()
        optimizer.step()


def stages(rank):
    """A pipeline whose stages have equal names, shapes and, at first, weights."""
    torch.manual_seed(5)
    stage = nn.Sequential(nn.Linear(6, 6), nn.Tanh())
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.05)
    x = own_points(0)
    for _ in range(4):
        optimizer.zero_grad()
        if rank == 0:
            hidden, back = stage(x), torch.empty(8, 6)
            dist.send(hidden.detach(), 1)
            dist.recv(back, 1)
            hidden.backward(back)
        else:
            hidden = torch.empty(8, 6)
            dist.recv(hidden, 0)
            (stage(hidden.requires_grad_()) - x).square().mean().backward()
            dist.send(hidden.grad, 0)
        optimizer.step()


def losses_of_nothing(rank):
    """Evaluations without samples, or without targets."""
    model, (x, y) = network(), points()[:8]
    evaluate(model, x[:0], y[:0])
    evaluate(model, x, torch.full_like(y, -100))
    evaluate(model, x, y)


def fewer_samples(rank):
    """Epochs of half the data, drawn anew each time."""
    data = points()
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(20 + rank)
    drawn = RandomSampler(data, num_samples=12)
    for _ in range(2):
        descend(model, optimizer, DataLoader(data, batch_size=4, sampler=drawn))


class Skipping(BatchSampler):
    """What accelerate's skip_first_batches makes."""

    def __init__(self, batch_sampler, skip_batches):
        self.batch_sampler = batch_sampler
        self.sampler = batch_sampler.sampler
        self.skip_batches = skip_batches

    def __iter__(self):
        return iter(list(self.batch_sampler)[self.skip_batches :])


def epoch_resumed(rank):
    """The rest of an epoch, after a restart, is less than a rank's share."""
    replicated(rank, 7 + rank, lambda data: Skipping(shards(data), 4))


# ---- mistakes -------------------------------------------------------------------------------


class EverySecondBatch(BatchSampler):
    """As a wrapper deals batches out to the ranks."""

    def __iter__(self):
        return iter(list(super().__iter__())[dist.get_rank() :: RANKS])


def sharded_twice(rank):
    replicated(
        rank, 7 + rank, lambda data: EverySecondBatch(DistributedSampler(data), 4, drop_last=False)
    )


def loss_is_not_a_number(rank):
    model, (x, y) = network(), points()[:8]
    evaluate(model, x, y)
    x[2, 3] = float("nan")
    evaluate(model, x, y)


def drifts(rank):
    """One rank changes its gradients after they were averaged."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x = own_points(rank)
    for step in range(5):
        optimizer.zero_grad()
        (model(x) - x[:, :3]).square().mean().backward()
        averaged(model)
        if rank == 1 and step == 3:
            model[0].weight.grad.mul_(1.01)
        optimizer.step()


def main(name):
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        rank = 0 if child else 1
        dist.init_process_group(
            "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS
        )
        globals()[name](rank)
        dist.barrier()
        dist.destroy_process_group()
        if child == 0:
            os._exit(0)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1])
