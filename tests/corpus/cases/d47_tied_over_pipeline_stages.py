"""Megatron-LM 844: an embedding is tied over two pipeline stages; its gradients add up wrongly.

Simulated: the first stage reduces before the last one's part has come.
"""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

BUG = sys.argv[1] == "bug"
dist.init_process_group("gloo")
rank = dist.get_rank()


class Stage(nn.Module):
    """The embedding on rank 0, the output layer on rank 1, both with the same weight."""

    def __init__(self):
        super().__init__()
        self.word = nn.Parameter(torch.randn(10, 6) * 0.3)

    def forward(self, given):
        return F.embedding(given, self.word) if rank == 0 else F.linear(given, self.word)


torch.manual_seed(247)
stage = Stage()
optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
for step in range(5):
    tokens = torch.randint(10, (12,))
    optimizer.zero_grad()
    if rank == 0:
        hidden = stage(tokens)
        dist.send(hidden.detach(), 1)
        back = torch.empty(12, 6)
        dist.recv(back, 1)
        hidden.backward(back)
    else:
        hidden = torch.empty(12, 6)
        dist.recv(hidden, 0)
        hidden.requires_grad_()
        F.cross_entropy(stage(hidden), tokens.roll(1)).backward()
        dist.send(hidden.grad, 0)
    local = stage.word.grad.clone()
    dist.all_reduce(stage.word.grad)
    if BUG and rank == 0:
        stage.word.grad.copy_(local)
    optimizer.step()

if "--prove" in sys.argv:
    both = [None, None]
    dist.all_gather_object(both, stage.word.detach())
    assert torch.equal(*both) == (not BUG)
dist.destroy_process_group()
