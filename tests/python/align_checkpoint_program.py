"""Two steps of two micro-batches through checkpointed blocks: align_checkpoint_program.py HOW.

HOW: kept (dropout draws again what it drew), fresh (it draws anew: gradients of another forward
pass), plain (nothing is recomputed), shared (one block, called twice).
"""

import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


HOW = sys.argv[1]  # no attribute of a module: those are compared


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.drop = nn.Dropout(0.5)
        self.second = nn.Linear(16, 8)

    def forward(self, x):
        return x + self.second(self.drop(torch.relu(self.first(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(1 if HOW == "shared" else 2)])
        self.head = nn.Linear(8, 1)

    def run(self, block, x):
        if HOW == "plain":
            return block(x)
        kept = HOW != "fresh"
        return checkpoint(block, x, use_reentrant=False, preserve_rng_state=kept)

    def forward(self, x):
        for block in [*self.blocks, *self.blocks] if HOW == "shared" else self.blocks:
            x = self.run(block, x)
        return self.head(x)


def main():
    torch.manual_seed(3)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        for _ in range(2):
            model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()


main()
