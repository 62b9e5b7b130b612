"""PyTorch 31771: set_epoch is never called, so every epoch has the same order."""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

BUG = sys.argv[1] == "bug"


class Blobs(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        order[-1].append(index)
        return points[index], index % 2


order = []
dist.init_process_group("gloo")
torch.manual_seed(254)
points = torch.randn(32, 4)
data = Blobs()
sampler = DistributedSampler(data, shuffle=True)
loader = DataLoader(data, batch_size=4, sampler=sampler)
ddp = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
for epoch in range(3):
    if not BUG:
        sampler.set_epoch(epoch)
    order.append([])
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(ddp(x), y).backward()
        optimizer.step()

if "--prove" in sys.argv:
    assert (order[0] == order[1] == order[2]) == BUG
dist.destroy_process_group()
