"""The Llama-style model in two pipeline stages, 1F1B over micro-batches, with or without data
parallelism.

    tocsin plan export examples/verify/pipeline.py:build --mesh pp=2 -o pp.plan --logical one.plan
"""

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn import functional as F

import llama
from mlp import average_gradients

STAGES, MICROBATCHES = 2, 2


class Stage(nn.Module):
    """The part of the model that one pipeline rank has; names are those of the whole."""

    def __init__(self, model, index):
        super().__init__()
        per_stage = len(model.layers) // STAGES
        if index == 0:
            self.embedding = model.embedding
        self.layers = nn.ModuleDict({
            str(k): layer for k, layer in enumerate(model.layers) if k // per_stage == index})
        if index == STAGES - 1:
            self.norm, self.output = model.norm, model.output
        self.register_buffer("cos", model.cos)
        self.register_buffer("sin", model.sin)

    def forward(self, x):
        if hasattr(self, "embedding"):
            x = self.embedding(x)
        for layer in self.layers.values():
            x = layer(x, self.cos, self.sin)
        return self.output(self.norm(x)) if hasattr(self, "output") else x


def token_loss(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def build(mesh):
    if mesh is None:
        return llama.build(None)
    index = mesh["pp"].get_local_rank()
    stage = Stage(llama.Llama(), index)
    batch = llama.local_batch(mesh)
    rows = batch["tokens"].shape[0] // MICROBATCHES
    hidden = torch.empty(rows, llama.LENGTH, llama.WIDTH, requires_grad=True)
    logits = torch.empty(rows, llama.LENGTH, llama.VOCABULARY, requires_grad=True)
    first, last = index == 0, index == STAGES - 1
    piped = PipelineStage(stage, index, STAGES, torch.device("cpu"), group=mesh["pp"].get_group(),
                          input_args=(batch["tokens"][:rows] if first else hidden,),
                          output_args=(logits if last else hidden,))
    schedule = Schedule1F1B(piped, MICROBATCHES, loss_fn=token_loss)
    if "dp" in mesh.mesh_dim_names:
        average_gradients(stage, mesh)

    def step(model, batch):
        losses = []
        inputs = (batch["tokens"],) if first else ()
        schedule.step(*inputs, target=batch["targets"] if last else None, losses=losses)
        return sum(losses) / MICROBATCHES if last else None

    return {"model": stage, "batch": batch, "step_fn": step}
