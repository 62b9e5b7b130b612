"""A training that repeats, or does not: repeat_program.py KIND [bit].

KIND: stable; threads (a sum over many elements, whose bits depend on the number of threads); race
(two Python threads read, change and write one tensor without a lock). With "bit" one bit of a
gradient is flipped in step 2.
"""

import sys
import threading

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.second = nn.Linear(32, 4)
        self.kind = kind
        self.register_buffer("many", torch.randn(1000003))
        self.register_buffer("counts", torch.zeros(1))

    def forward(self, x):
        scale = self.many.sum() if self.kind == "threads" else torch.ones(())
        return self.second(torch.tanh(self.first(x)) * scale)


def count(model, times):
    """Read, change, write."""
    for _ in range(times):
        model.counts.copy_(torch.add(model.counts, 1))


def main():
    torch.manual_seed(5)
    model = Net(sys.argv[1])
    x, y = torch.randn(16, 16), torch.randint(4, (16,))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(1, 4):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        if step == 2 and "bit" in sys.argv:
            model.first.weight.grad.view(torch.int32)[9, 3] ^= 1 << 20
        if model.kind == "race":
            threads = [threading.Thread(target=count, args=(model, 50)) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        optimizer.step()


main()
