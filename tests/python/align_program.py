"""A training whose second run may go wrong in one place: align_program.py CHANGE [RANK].

CHANGE: none, or where what is done: bit (of one weight's gradient, step 3), weight (one of the
second layer's, between steps 2 and 3), seed (dropout's, from step 3), data (one pixel of the batch
of step 4), rows (two of a gradient swapped), warp (a bit of each 32nd word of it), dtype (of a
buffer), wrapped (only names change), extra (one more parameter, whose gradient is None), short (a
step less). With ranks, RANK does it alone.
"""

import os
import sys

import gloo_end
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.norm = nn.BatchNorm1d(16)
        self.second = nn.Linear(16, 4)

    def forward(self, x):
        return self.second(F.dropout(F.relu(self.norm(self.first(x))), 0.1, self.training))


def flip(tensor, index, bit):
    """One bit of an fp32 element, in place."""
    tensor.detach().view(torch.int32)[index] ^= 1 << bit


def swap(tensor, i, j):
    with torch.no_grad():
        tensor[[i, j]] = tensor[[j, i]]


def main():
    change = sys.argv[1]
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        dist.init_process_group("gloo")
        if dist.get_rank() != int(sys.argv[2]):
            change = "none"
    torch.manual_seed(5)
    model = Net()
    if change == "extra":
        model.unused = nn.Parameter(torch.zeros(3))
    if change == "dtype":
        model.norm.num_batches_tracked = model.norm.num_batches_tracked.int()
    data = TensorDataset(torch.randn(64, 8), torch.randint(4, (64,)))
    if change == "data":
        flip(data.tensors[0], (51, 2), 22)
    called = torch.compile(model, backend="eager") if change == "wrapped" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step, (x, y) in enumerate(DataLoader(data, 16), 1):
        if change == "short" and step == 4:
            break
        if step == 3 and change == "seed":
            torch.manual_seed(6)
        optimizer.zero_grad()
        F.cross_entropy(called(x), y).backward()
        if step == 3 and change == "bit":
            flip(model.first.weight.grad, (11, 5), 19)
        if step == 3 and change == "rows":
            swap(model.second.weight.grad, 1, 2)
        if step == 3 and change == "warp":
            for row in (0, 2):
                flip(model.second.weight.grad, (row, 5), 21)
        if step == 3 and change == "weight":
            flip(model.second.weight, (3, 7), 30)
        for parameter in model.parameters():
            if ranks > 1 and parameter.grad is not None:
                dist.all_reduce(parameter.grad)
        optimizer.step()
    if ranks > 1:
        gloo_end.leave()


main()
