"""A CNN on two ranks: DDP with batch norm, sampler by epoch, rank 0 saves, all load the best."""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def setup():
    dist.init_process_group("gloo")
    return dist.get_rank(), dist.get_world_size()


def make_data(seed):
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(4, (160,), generator=generator)
    kinds = torch.randn(4, 1, 8, 8, generator=generator)
    x = kinds[y] + 0.5 * torch.randn(160, 1, 8, 8, generator=generator)
    return TensorDataset(x[:128], y[:128]), TensorDataset(x[128:], y[128:])


def make_model():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2),
        nn.ReLU(), nn.Flatten(), nn.Linear(32, 4),
    )  # fmt: skip


@torch.no_grad()
def validate(ddp, loader):
    """The mean loss over all ranks."""
    ddp.eval()
    sums = torch.zeros(2)
    for x, y in loader:
        loss = nn.functional.cross_entropy(ddp.module(x), y, reduction="sum").item()
        sums += torch.tensor([loss, len(y)])
    dist.all_reduce(sums)
    return (sums[0] / sums[1]).item()


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    rank, world = setup()
    torch.manual_seed(170 + seed + rank)
    train_set, val_set = make_data(seed)
    sampler = DistributedSampler(train_set, num_replicas=world, rank=rank, shuffle=True)
    train_loader = DataLoader(train_set, batch_size=16, sampler=sampler)
    val_loader = DataLoader(
        val_set, batch_size=16, sampler=DistributedSampler(val_set, shuffle=False)
    )
    ddp = DistributedDataParallel(make_model())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3)
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    path = os.path.join(folder[0], "best.pt")
    history = [validate(ddp, val_loader)]
    for epoch in range(3):
        sampler.set_epoch(epoch)
        ddp.train()
        for x, y in train_loader:
            optimizer.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(ddp(x), y).backward()
            optimizer.step()
        scheduler.step()
        history.append(validate(ddp, val_loader))
        if rank == 0 and history[-1] <= min(history):
            torch.save(ddp.module.state_dict(), path)
        dist.barrier()
    ddp.module.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    history.append(validate(ddp, val_loader))
    if rank == 0:
        print([round(value, 3) for value in history])
    dist.barrier()
    dist.destroy_process_group()
    assert history[-1] < history[0]


if __name__ == "__main__":
    main()
