"""Collectives and point-to-point, in the operators of a plan.

Two families reach the tape. Functional ones (`_c10d_functional`, what DTensor and FSDP issue) make
a new tensor, which is ready after wait_tensor. Those of torch.distributed (`c10d`) write to memory
of the caller; whether Work.wait is called is not seen by a dispatch mode, so they are taken as
synchronous, and a plan makes no claim about their waits.
"""

from __future__ import annotations

import math

import torch
from torch.utils._pytree import tree_leaves

from .capture import ExportError

_NAMED = {"sum": "sum", "avg": "avg", "mean": "avg", "max": "max", "min": "min"}
_NUMBERED = {0: "sum", 1: "avg", 3: "min", 4: "max"}  # c10d::ReduceOp::RedOpType


def _reduction(op) -> str:
    if isinstance(op, torch.ScriptObject):
        op = op.op()
    name = _NAMED.get(op.lower()) if isinstance(op, str) else _NUMBERED.get(op)
    if name is None:
        raise ExportError(f"a collective reduces with {op}, which a plan cannot say")
    return name


def _ranks(group) -> tuple[int, ...]:
    from torch.distributed import distributed_c10d as c10d

    if isinstance(group, str):
        group = c10d._resolve_process_group(group)
    elif isinstance(group, torch.ScriptObject):
        group = torch.distributed.ProcessGroup.unbox(group)
    return tuple(c10d.get_process_group_ranks(group))


def _gather(tape, value, ranks, asynchronous=False):
    """Along dimension 0. A flat bucket is gathered as rows, one for each rank: that is the same
    memory, and in the rows the tensors that the bucket holds stay visible."""
    shape = value.shape if len(value.shape) > 1 else (1, math.prod(value.shape))
    made = _collective(tape, "all_gather", tape.view(value, shape),
                       (len(ranks) * shape[0], *shape[1:]), ranks, {"dim": 0}, asynchronous)
    return made


def _reduce_scatter(tape, value, ranks, op, asynchronous=False):
    """Along dimension 0; flat buckets as rows, too."""
    size = len(ranks)
    shape = value.shape if len(value.shape) > 1 else (size, value.shape[0] // size)
    return _collective(tape, "reduce_scatter", tape.view(value, shape),
                       (shape[0] // size, *shape[1:]), ranks,
                       {"dim": 0, "op": _reduction(op)}, asynchronous)


def _collective(tape, name, value, shape, group, attributes=None, asynchronous=False):
    attributes = dict(attributes or {})
    if asynchronous:
        attributes["async"] = 1
    inputs = [value] if value is not None else []
    return tape.emit(name, inputs, [tuple(shape)], value.dtype, attributes, group=group)[0]


def functional(tape, name, args, kwargs, result) -> bool:
    """`_c10d_functional`. False: not one that is known here."""
    in_place = name.endswith("_") or name.endswith("_inplace")
    name = name.rstrip("_").removesuffix("_out")
    many = name.endswith("_coalesced")
    name = name.removesuffix("_coalesced")
    if name == "wait_tensor":
        value = tape.read(args[0])
        tape.write(args[0], tape.emit("wait", [value], [value.shape], value.dtype)[0])
        return True
    if name == "_wrap_tensor_autograd":
        return True
    if name not in ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor",
                    "all_to_all_single", "broadcast"):
        return False
    out = kwargs.get("out", args[0] if in_place else result)
    sources = args[0] if many else [args[0]]
    targets = out if many else [out]
    for source, target in zip(sources, targets, strict=True):
        value = tape.read(source)
        if name == "all_reduce":
            made = _collective(tape, "all_reduce", value, value.shape, _ranks(args[2]),
                               {"op": _reduction(args[1])}, True)
        elif name == "all_gather_into_tensor":
            made = tape.view(_gather(tape, value, _ranks(args[2]), True), target.shape)
        elif name == "reduce_scatter_tensor":
            made = tape.view(_reduce_scatter(tape, value, _ranks(args[3]), args[1], True),
                             target.shape)
        elif name == "all_to_all_single":
            if len(set(args[1])) > 1 or len(set(args[2])) > 1:
                return False
            made = _collective(tape, "all_to_all", value, target.shape, _ranks(args[3]),
                               {"split_dim": 0, "join_dim": 0}, True)
        else:
            ranks = _ranks(args[2])
            made = _collective(tape, "broadcast", value, value.shape, ranks, {"root": args[1]},
                               True)
        tape.bind(target, made)
    return True


def classic(tape, name, args, kwargs, result) -> bool:
    """`c10d`: written into memory that the caller gave."""

    def flat(values):
        return [x for x in tree_leaves(values) if isinstance(x, torch.Tensor)]

    group = next((a for a in args if isinstance(a, torch.ScriptObject) and
                  "ProcessGroup" in str(a._type())), None)
    if group is None:
        return False
    ranks = _ranks(group)
    op = next((a for a in args if isinstance(a, torch.ScriptObject) and
               "ReduceOp" in str(a._type())), None)
    if name in ("allreduce_", "allreduce_coalesced_"):
        for tensor in flat(args[0]):
            value = tape.read(tensor)
            tape.write(tensor, _collective(tape, "all_reduce", value, value.shape, ranks,
                                           {"op": _reduction(op)}))
    elif name == "broadcast_":
        for tensor in flat(args[0]):
            value = tape.read(tensor)
            tape.write(tensor, _collective(tape, "broadcast", value, value.shape, ranks,
                                           {"root": args[2]}))
    elif name in ("_allgather_base_", "allgather_into_tensor_coalesced_"):
        for target, source in zip(flat(args[0]), flat(args[1]), strict=True):
            made = _gather(tape, tape.read(source), ranks)
            tape.write(target, tape.view(made, target.shape))
    elif name == "allgather_":
        targets, sources = args[0], flat(args[1])
        for outs, source in zip(targets, sources, strict=True):
            made = _gather(tape, tape.read(source), ranks)
            rows = made.shape[0] // len(ranks)
            for k, target in enumerate(outs):
                part = tape.slice(made, 0, k * rows, (k + 1) * rows, 1)
                tape.write(target, tape.view(part, target.shape))
    elif name in ("_reduce_scatter_base_", "reduce_scatter_tensor_coalesced_"):
        for target, source in zip(flat(args[0]), flat(args[1]), strict=True):
            made = _reduce_scatter(tape, tape.read(source), ranks, op)
            tape.write(target, tape.view(made, target.shape))
    elif name == "alltoall_base_":
        if len(set(args[3])) > 1 or len(set(args[4])) > 1:
            return False
        value = tape.read(args[1])
        made = _collective(tape, "all_to_all", value, args[0].shape, ranks,
                           {"split_dim": 0, "join_dim": 0})
        tape.write(args[0], made)
    elif name == "send":
        for tensor in flat(args[0]):
            value = tape.read(tensor)
            tape.emit("send", [value], [], value.dtype, {"peer": ranks[args[2]], "tag": args[3]})
    elif name == "recv_":
        for tensor in flat(args[0]):
            made, = tape.emit("recv", [], [tuple(tensor.shape)], tensor.dtype,
                              {"peer": ranks[args[2]], "tag": args[3]})
            tape.bind(tensor, made)
    elif name == "barrier":
        tape.emit("barrier", [], [], torch.float32, group=ranks)
    else:
        return False
    return True
