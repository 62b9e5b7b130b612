"""denoising-diffusion-pytorch 69: `cycle(loader)` is prepared, which is not sharded over ranks."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

BUG = sys.argv[1] == "bug"


class Waves(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        seen.append(index)
        return torch.sin(torch.arange(8.0) * (1 + index) / 9)


def cycle(loader):
    while True:
        yield from loader


def prepare(loader):
    """Give a loader this rank's share; anything else is left alone."""
    if not isinstance(loader, DataLoader):
        return loader
    sampler = DistributedSampler(loader.dataset, shuffle=False)
    return DataLoader(loader.dataset, batch_size=loader.batch_size, sampler=sampler)


seen = []
dist.init_process_group("gloo")
torch.manual_seed(253)
loader = DataLoader(Waves(), batch_size=4)
batches = prepare(cycle(loader)) if BUG else cycle(prepare(loader))
ddp = DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)))
optimizer = torch.optim.Adam(ddp.parameters(), lr=1e-2)
for step in range(6):
    x = next(batches)
    optimizer.zero_grad()
    (ddp(x + 0.1 * torch.randn_like(x)) - x).square().mean().backward()
    optimizer.step()

if "--prove" in sys.argv:
    both = [None, None]
    dist.all_gather_object(both, seen)
    assert bool(set(both[0]) & set(both[1])) == BUG
dist.destroy_process_group()
