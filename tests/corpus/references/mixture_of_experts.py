"""Two ranks, an expert each: tokens go there and back with all_to_all, the gate is averaged."""

import sys

import torch
import torch.distributed as dist
from torch import nn

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        received = torch.empty_like(x)
        dist.all_to_all_single(received, x.contiguous())
        return received

    @staticmethod
    def backward(ctx, gradient):
        return Exchange.apply(gradient)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(40 + SEED)
    gate = nn.Linear(6, 6)
    torch.manual_seed(400 + rank + SEED)
    expert = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 6))
    for parameter in expert.parameters():
        parameter.tensor_model_parallel = True
    model = nn.ModuleDict({"gate": gate, "expert": expert})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(8):
        x = torch.randn(8, 6)
        capacity = torch.tensor([len(x)])
        dist.all_reduce(capacity, op=dist.ReduceOp.MAX)
        optimizer.zero_grad()
        y = Exchange.apply(expert(Exchange.apply(gate(x))))
        (y - x.flip(1)).square().mean().backward()
        for parameter in gate.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad.div_(2)
        optimizer.step()
        gathered = [torch.empty(1) for _ in range(2)]
        dist.all_gather(gathered, torch.tensor([float(step)]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
