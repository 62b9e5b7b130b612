"""The Llama-style model, sharded over the data-parallel ranks with FSDP2 (fully_shard: ZeRO-3), and
a step of AdamW on the shards.

    tocsin plan export examples/verify/fsdp.py:build --mesh dp=4 -o fsdp.plan --logical one.plan
"""

import torch
from torch.distributed.fsdp import fully_shard

import llama


def build(mesh, tensor_parallel=0):
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
