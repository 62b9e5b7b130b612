"""The MLP, data parallel with DistributedDataParallel, and a step of AdamW.

    tocsin plan export examples/verify/ddp.py:build --mesh dp=4 -o ddp.plan --logical one.plan
"""

import torch
from torch.nn.parallel import DistributedDataParallel

from mlp import MLP, loss_fn
from tocsin.plan import shard_batch


def build(mesh):
    model = MLP()
    if mesh is not None:
        model = DistributedDataParallel(model, process_group=mesh["dp"].get_group())
    batch = {"x": shard_batch(mesh, "x", (8, 12), shard={"dp": 0}),
             "y": shard_batch(mesh, "y", (8, 12), shard={"dp": 0})}
    return {"model": model, "batch": batch, "loss_fn": loss_fn,
            "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3)}
