"""transformers 34365: a DistributedSampler and the wrapper both shard; half the data is unused."""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, Dataset, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

BUG = sys.argv[1] == "bug"


class Points(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        seen.append(index)
        return features[index], labels[index]


class BatchShard(BatchSampler):
    """Every second batch, as a wrapper deals them out to two ranks."""

    def __iter__(self):
        batches = list(super().__iter__())
        return iter(batches[rank::2])

    def __len__(self):
        return super().__len__() // 2


seen = []
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(2530)
features, labels = torch.randn(40, 6), torch.randint(3, (40,))
data = Points()
sampler = DistributedSampler(data, shuffle=False) if BUG else SequentialSampler(data)
loader = DataLoader(data, batch_sampler=BatchShard(sampler, 5, drop_last=False))
ddp = DistributedDataParallel(nn.Linear(6, 3))
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(ddp(x), y).backward()
        optimizer.step()

if "--prove" in sys.argv:
    both = [None, None]
    dist.all_gather_object(both, seen)
    assert (len(set(both[0]) | set(both[1])) < 40) == BUG
dist.destroy_process_group()
