"""Two models whose gradients DistributedDataParallel averages, one of them by a hook of the user's:
averaged_program.py [bit]. Prints losses and weights, bit by bit. With `bit` rank 1 has another
gradient in one element, before it is averaged. Collectives of three kinds around it.
"""

import hashlib
import json
import os
import sys

import gloo_end
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks


def flip(gradient):
    changed = gradient.clone()
    changed.view(torch.int32)[2, 3] ^= 1 << 20
    return changed


def train(rank, hook):
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))
    model = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.0001)
    if hook is not None:
        model.register_comm_hook(None, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(3):
        generator = torch.Generator().manual_seed(10 * step + rank)
        x, y = torch.randn(6, 5, generator=generator), torch.randint(3, (6,), generator=generator)
        optimizer.zero_grad()
        flips = sys.argv[1:] == ["bit"] and (rank, step) == (1, 1) and hook is None
        handle = net[2].weight.register_hook(flip) if flips else None
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        if handle is not None:
            handle.remove()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total, async_op=True).wait()
        gathered = torch.empty(dist.get_world_size())
        dist.all_gather_into_tensor(gathered, loss.detach().reshape(1))
        assert float(functional.all_reduce(loss.detach(), "sum", dist.group.WORLD)) == total
        losses.append([float(value).hex() for value in (total, *gathered)])
    digest = hashlib.sha256()
    for parameter in net.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return [losses, digest.hexdigest()]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    found = [train(rank, hook) for hook in (None, default_hooks.fp16_compress_hook)]
    if rank == 0:
        print(json.dumps(found))
    gloo_end.leave()


assert os.environ["WORLD_SIZE"]
main()
