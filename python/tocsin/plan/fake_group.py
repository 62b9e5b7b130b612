"""A process group that talks to nobody, and what must be said on behalf of the missing ranks.

torch's "fake" backend accepts every collective and does nothing, which is all that a trace needs,
but for the few places where torch itself looks at an answer.
"""

from __future__ import annotations

import math
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore


def start(axes: dict[str, int], rank: int):
    """The group as `rank` sees it, and the device mesh over all of it."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank,
                            world_size=math.prod(axes.values()))
    return dist.init_device_mesh("cpu", tuple(axes.values()), mesh_dim_names=tuple(axes))


def answer_for(model) -> list[str]:
    """Replace what waits for answers; what the plan then takes for granted."""
    notes = []
    for module in model.modules():
        if isinstance(module, DistributedDataParallel) and not module._comm_hooks:
            module.register_comm_hook(module.process_group, _average_bucket)
            notes.append("DistributedDataParallel divides a bucket by the group's size and sums "
                         "it over the group")
    schedules = sys.modules.get("torch.distributed.pipelining.schedules")
    if schedules is not None:
        schedules._PipelineSchedule._warmup_p2p = _vote_static
    return notes


def _average_bucket(group, bucket):
    """What DDP's reducer does in C++, where it wants the result of a real group."""
    buffer = bucket.buffer().div_(group.size())
    dist.all_reduce(buffer, group=group)
    future = torch.futures.Future()
    future.set_result(buffer)
    return future


def _vote_static(schedule, stages, has_backward, done) -> None:
    """The stages of a pipeline vote whether all know their shapes; the stages say so here by
    input_args and output_args."""
    from torch.distributed.pipelining._utils import InferenceMode

    for stage in stages:
        stage._inference_mode = InferenceMode.STATIC
