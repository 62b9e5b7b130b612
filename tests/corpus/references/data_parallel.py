"""Two ranks with DDP and a DistributedSampler: epochs, batch norm, evaluation, checkpoints."""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(33 + SEED)
    inputs = torch.randn(120, 10)
    data = TensorDataset(inputs, (inputs[:, :3].argmax(1)))
    sampler = DistributedSampler(data, shuffle=True, seed=4)
    loader = DataLoader(data, batch_size=10, sampler=sampler)
    network = nn.Sequential(
        nn.Linear(10, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.2), nn.Linear(24, 3)
    )
    ddp = DistributedDataParallel(network)
    torch.manual_seed(330 + rank + SEED)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        ddp.train()
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(ddp(x), y).backward()
            nn.utils.clip_grad_norm_(ddp.parameters(), 2.0)
            optimizer.step()
            schedule.step()
        ddp.eval()
        with torch.no_grad():
            right = (ddp(inputs[:20]).argmax(1) == inputs[:20, :3].argmax(1)).sum()
        dist.all_reduce(right)
        if rank == 0:
            torch.save(network.state_dict(), os.path.join(tempfile.mkdtemp(), "ddp.pt"))
            print(f"epoch {epoch}: {right.item()} of 40")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
