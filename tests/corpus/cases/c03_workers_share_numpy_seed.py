"""Stack Overflow 67180955: every DataLoader worker draws from its own copy of one generator."""

import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

BUG = sys.argv[1] == "bug"


class Synthetic(Dataset):
    """Scenes that are drawn when they are asked for."""

    def __init__(self):
        self.random = np.random.default_rng(0)

    def __len__(self):
        return 48

    def __getitem__(self, index):
        return torch.tensor(self.random.normal(size=5), dtype=torch.float32)


def seed_worker(worker):
    get_worker_info().dataset.random = np.random.default_rng([7, worker])


if __name__ == "__main__":
    torch.manual_seed(3)
    loader = DataLoader(
        Synthetic(), batch_size=6, num_workers=2, worker_init_fn=None if BUG else seed_worker
    )
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    batches = []
    for x in loader:
        optimizer.zero_grad()
        (model(x) - x).square().mean().backward()
        optimizer.step()
        batches.append(x)

    if "--prove" in sys.argv:
        assert all(torch.equal(a, b) == BUG for a, b in zip(batches[::2], batches[1::2]))
