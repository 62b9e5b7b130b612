"""Plans of real PyTorch training steps: `tocsin plan export` (docs/plan-export.md).

A script defines build(mesh), which returns the model (parallelised for that mesh; mesh None: the
logical model), its batch and its loss; shard_batch() says which slice of the global batch a rank
has. Nothing here imports torch until it is used.
"""


def shard_batch(mesh, name, shape, *, shard=None, dtype=None, high=None):
    """This rank's slice of the global batch tensor `name` (placements.shard_batch)."""
    import torch

    from . import placements

    return placements.shard_batch(mesh, name, shape, shard=shard, dtype=dtype or torch.float32,
                                  high=high)


__all__ = ["shard_batch"]
