"""Where this process stands in a distributed job. No communication of our own."""

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
