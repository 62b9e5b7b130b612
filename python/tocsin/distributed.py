"""Where this process stands in a distributed job, and what its process groups are. No communication
of our own."""

import gc
import os
import sys


def _environment_int(name):
    try:
        return int(os.environ[name])
    except (KeyError, ValueError):
        return None


def placement():
    """{"rank", "world_size", "local_rank"} once the process group exists, else {}."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return {}
    found = {
        "rank": distributed.get_rank(),
        "world_size": distributed.get_world_size(),
        "local_rank": _environment_int("LOCAL_RANK"),
    }
    return {key: value for key, value in found.items() if value is not None}


def is_data_parallel():
    """Does a DistributedDataParallel over all ranks live in this process? Also one that the script
    has made and does not call."""
    distributed = _module()
    if distributed is None or not distributed.is_initialized() or distributed.get_world_size() == 1:
        return False
    wrapper = sys.modules["torch"].nn.parallel.DistributedDataParallel
    size = distributed.get_world_size()
    return any(
        issubclass(type(thing), wrapper) and vars(thing)["process_group"].size() == size
        for thing in gc.get_objects()
    )


def _module():
    distributed = sys.modules.get("torch.distributed")
    return distributed if distributed is not None and distributed.is_available() else None


def tensor_parallel_place():
    """(rank, size) in the tensor-parallel group: Megatron's, or the world's if there is no other
    group and no DistributedDataParallel, so that whatever is cut is cut over the world. Else
    None."""
    megatron = sys.modules.get("megatron.core.parallel_state")
    if megatron is not None and megatron.model_parallel_is_initialized():
        return (megatron.get_tensor_model_parallel_rank(),
                megatron.get_tensor_model_parallel_world_size())  # fmt: skip
    distributed = _module()
    if distributed is None or not distributed.is_initialized() or is_data_parallel():
        return None
    if len(distributed.distributed_c10d._world.pg_map) != 1:
        return None
    return distributed.get_rank(), distributed.get_world_size()


def reduction_types():
    """Types of what collectives do with the operands: their str() names it."""
    distributed = _module()
    return () if distributed is None else (distributed.ReduceOp.RedOpType,)


def group_types():
    """Types that stand for a set of ranks."""
    distributed = _module()
    if distributed is None:
        return ()
    mesh = getattr(distributed, "device_mesh", None)
    meshes = () if mesh is None else (mesh.DeviceMesh,)
    return (distributed.ProcessGroup, *meshes)


def ranks_text(ranks):
    """The ranks of a group in order: "group:3:0,2,5"; "group:4:0+2" for 0, 2, 4, 6. What is cut off
    leaves the number of ranks."""
    stride = ranks[1] - ranks[0] if len(ranks) > 2 else 0
    if stride > 0 and all(b - a == stride for a, b in zip(ranks, ranks[1:])):
        return f"group:{len(ranks)}:{ranks[0]}+{stride}"
    return f"group:{len(ranks)}:{','.join(map(str, ranks))}"


def describe_group(group):
    """ranks_text() of a process group, of a mesh of one dimension, or of (mesh, dim); None when it
    has no group."""
    distributed = sys.modules["torch.distributed"]
    if isinstance(group, tuple):
        group = group[0].get_group(group[1])
    elif not isinstance(group, distributed.ProcessGroup):
        group = group.get_group()
    return ranks_text(distributed.get_process_group_ranks(group))
