"""The Llama-style model, sharded over the data-parallel ranks with FSDP2 (fully_shard: ZeRO-3),
gradients clipped by their norm over all ranks, and a step of AdamW on the shards.

    tocsin plan export examples/verify/fsdp.py:build --mesh dp=4 -o fsdp.plan --logical one.plan
    tocsin plan export examples/verify/fsdp.py:build_2d --mesh dp=2,tp=2 -o 2d.plan --logical 1.plan
"""

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

import llama


def clipped_step(model, batch):
    loss = llama.loss_fn(model, batch)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return loss


def sharded(mesh, tensor_parallel):
    job = llama.build(None)
    model = job["model"]
    if mesh is not None:
        if tensor_parallel:
            llama.tensor_parallel(model, mesh["tp"])
        for layer in model.layers:
            fully_shard(layer, mesh=mesh["dp"])
        fully_shard(model, mesh=mesh["dp"])
        job["batch"] = llama.local_batch(mesh)
    job["optimizer"] = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return job


def build(mesh):
    return sharded(mesh, False) | {"step_fn": clipped_step}


def build_2d(mesh):
    """Sharded over "dp" what is tensor-parallel over "tp"; clip_grad_norm_ does not take both."""
    return sharded(mesh, True)
