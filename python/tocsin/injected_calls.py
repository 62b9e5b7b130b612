"""Faults in what is called: a collective on its way, a checkpoint as it is written (tocsin.inject).

What is called is replaced when the first such fault is asked for, and lets all pass that no fault
is due for: of collectives the methods of ProcessGroup, below whatever watches the functions of
torch.distributed, of checkpoints torch.save and torch.distributed.checkpoint.save. A collective
with a fault is waited for at once. Groups whose description begins with "tocsin" are a guard's own,
and are spared.
"""

import functools
import glob
import os

from tocsin import buckets

# method of ProcessGroup -> (the function it is for, where it is given what it contributes, and
# where what it receives goes)
METHODS = {
    "allreduce": ("all_reduce", 0, 0),
    "broadcast": ("broadcast", 0, 0),
    "allgather": ("all_gather", 1, 0),
    "all_gather_single": ("all_gather_into_tensor", 1, 0),
    "_allgather_base": ("all_gather_into_tensor", 1, 0),
    "reduce_scatter": ("reduce_scatter", 1, 0),
    "reduce_scatter_single": ("reduce_scatter_tensor", 1, 0),
    "_reduce_scatter_base": ("reduce_scatter_tensor", 1, 0),
    "alltoall": ("all_to_all", 1, 0),
    "all_to_all_single": ("all_to_all_single", 1, 0),
    "alltoall_base": ("all_to_all_single", 1, 0),
    "send": ("send", 0, None),
}
COLLECTIVES = tuple(dict.fromkeys(name for name, _, _ in METHODS.values()))
BYTE_PATTERNS = ("bit", "warp", "tile", "sign", "stuck")  # that make sense in a file

_waiting = []  # injections of these places


def begin(injection):
    import torch

    _waiting.append(injection)
    if injection.fault.place == "checkpoint":
        import torch.distributed.checkpoint as checkpoint

        _replace(_saving, "save", torch, torch.serialization)
        _replace(_saving_parts, "save", checkpoint, checkpoint.state_dict_saver)
        return
    from torch.distributed import ProcessGroup

    for name in METHODS:
        if hasattr(ProcessGroup, name):
            _replace(_collective, name, ProcessGroup)


def end(injection):
    if injection in _waiting:
        _waiting.remove(injection)


def _replace(make, name, *owners):
    """Put ours in front of what stands there, unless it is behind it already."""
    original = function = getattr(owners[0], name)
    while function is not None:
        if hasattr(function, "_tocsin_injected"):
            return
        function = getattr(function, "__wrapped__", None)
    replacement = make(original, name)
    replacement._tocsin_injected = True
    for owner in owners:
        if getattr(owner, name, None) is original:
            setattr(owner, name, replacement)


# ---- collectives -------------------------------------------------------------------------------


def _due(group, name):
    if str(getattr(group, "group_desc", "")).startswith("tocsin"):
        return []
    return [each for each in _waiting if each.fault.place == "collective"
            and each.fault.name in ("", name) and each.due()]  # fmt: skip


def _is_root(group, args):
    root = getattr(args[1], "rootRank", args[1]) if len(args) > 1 else None
    return root == group.rank()


def _collective(original, method):
    name, given, received = METHODS[method]

    @functools.wraps(original)
    def call(self, *args, **kwargs):
        faults = _due(self, name) if _waiting else ()
        if not faults:
            return original(self, *args, **kwargs)
        args = list(args)
        for injection in faults:
            contributes = name != "broadcast" or _is_root(self, args)
            if not injection.fault.late and contributes:
                if name != "all_reduce":  # there the result takes its place
                    args[given] = injection.held = injection.copied(args[given])
                injection.strike(args[given], "input", "collective", name)
        work = original(self, *args, **kwargs)
        for injection in faults:
            if injection.fault.late and received is not None and injection.due():
                if work is not None:
                    work.wait()
                injection.strike(args[received], "output", "collective", name)
        return work

    return call


def watch_buckets(module):
    """DistributedDataParallel reduces its buckets out of Python's sight, unless it has a hook."""
    from torch.nn.parallel import DistributedDataParallel

    if isinstance(module, DistributedDataParallel):
        buckets.set_hook(module, module.process_group, _average)


def _average(group, bucket):
    return buckets.averaged(bucket.buffer(), group)


# ---- checkpoints -------------------------------------------------------------------------------

_in_parts = 0  # calls of torch.distributed.checkpoint.save: each of its tensors goes by torch.save


def _saving(original, name):
    @functools.wraps(original)
    def save(obj, f, *args, **kwargs):
        for injection in _waiting:
            if injection.fault.place == "checkpoint" and not injection.fault.late:
                obj = injection.struck_copy(obj)
        result = original(obj, f, *args, **kwargs)
        path = f if isinstance(f, (str, os.PathLike)) else getattr(f, "name", None)
        if _waiting and not _in_parts and isinstance(path, (str, os.PathLike)):
            if hasattr(f, "flush"):
                f.flush()
            _strike_file(os.fspath(path))
        return result

    return save


def _saving_parts(original, name):
    @functools.wraps(original)
    def save(*args, **kwargs):
        global _in_parts
        _in_parts += 1
        try:
            result = original(*args, **kwargs)
        finally:
            _in_parts -= 1
        folder = kwargs.get("checkpoint_id")
        if _waiting and folder is not None:
            parts = glob.glob(f"{glob.escape(os.fspath(folder))}/**/*.distcp", recursive=True)
            if parts:
                _strike_file(max(sorted(parts), key=os.path.getsize))
        return result

    return save


def _strike_file(path):
    """Its bytes, as they lie on the disk."""
    import torch

    for injection in list(_waiting):
        fault = injection.fault
        if fault.place == "checkpoint" and fault.late and os.path.getsize(path) and injection.due():
            size = os.path.getsize(path)
            content = torch.from_file(path, shared=True, size=size, dtype=torch.uint8)
            injection.strike(content, "data", "checkpoint", os.path.basename(path))
