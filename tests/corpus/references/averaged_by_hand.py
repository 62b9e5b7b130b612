"""Two ranks average their gradients with all_reduce; parameters are broadcast at the start."""

import sys

import torch
import torch.distributed as dist
from torch import nn

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.memory = nn.LSTM(3, 12, batch_first=True)
        self.readout = nn.Linear(12, 3)

    def forward(self, series):
        return self.readout(self.memory(series)[0])


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(35 + rank + SEED)
    model = Forecaster()
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 0)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(10):
        series = torch.randn(6, 9, 3).cumsum(1)
        optimizer.zero_grad()
        (model(series[:, :-1]) - series[:, 1:]).abs().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad.div_(world)
        optimizer.step()
    loss = torch.zeros(1)
    dist.all_reduce(loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
