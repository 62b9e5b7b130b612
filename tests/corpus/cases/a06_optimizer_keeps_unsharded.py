"""ColossalAI 5539: the optimizer keeps the unsharded parameters after sharding has replaced them.

Simulated on two ranks, each with half of a layer's rows.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn

BUG = sys.argv[1] == "bug"
dist.init_process_group("gloo")
rank = dist.get_rank()


class RowShards(nn.Linear):
    def shard(self):
        for name, parameter in list(self.named_parameters()):
            half = parameter.detach().chunk(2)[rank].clone()
            setattr(self, name, nn.Parameter(half))
            getattr(self, name).tensor_model_parallel = True


torch.manual_seed(206)
model = nn.Sequential(RowShards(6, 8), nn.ReLU())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
model[0].shard()
if not BUG:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
before = model[0].weight.detach().clone()
for step in range(5):
    x = torch.randn(16, 6)
    parts = [torch.empty(16, 4) for _ in range(2)]
    output = model(x)
    dist.all_gather(parts, output.detach())
    parts[rank] = output
    model.zero_grad()
    (torch.cat(parts, 1)[:, :6] - x).square().mean().backward()
    optimizer.step()

if "--prove" in sys.argv:
    assert torch.equal(before, model[0].weight) == BUG
dist.destroy_process_group()
