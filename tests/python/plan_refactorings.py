"""Correct changes of parallel plans, at least three for each class of plan_mutations.py: the
verifier must not report any. Each is checked against numbers like the mutations."""

import dataclasses

from mutation_bases import (CONTEXT, EQUAL_HEADS, LLAMA, MLP, MOE, SEQUENCE, on, own_tuple,
                            rescale, reverse_group)  # fmt: skip
from plan_edits import ALL, add_group, sites
from plan_objects import Op
from plan_step_mutations import make_async


@dataclasses.dataclass
class Refactoring:
    number: int  # of the class of mistakes that it resembles
    name: str
    config: dict
    edit: object

    def __str__(self):
        return f"{self.number:02d}-{self.config['model']}-{self.name}"


def keep(plan):
    """Another configuration is the refactoring: nothing to edit."""


def reduce_as_scatter_and_gather(dim, backwards=False):
    """all_reduce = reduce_scatter, then all_gather in the same order of ranks, whichever."""

    def change(site):
        if backwards:
            reverse_group(site)
        out, group = site.op.outputs[0], site.op.group
        shape = list(out.shape)
        shape[dim] //= site.plan.axes["tp"]
        part = site.before("reduce_scatter", site.op.inputs, out, "part", shape=shape,
                           attrs={"dim": dim, "op": "sum"}, group=group)  # fmt: skip
        site.turn_into("all_gather", [part], {"dim": dim}, group)

    return change


def average_as_scaled_sum(count):
    def change(site):
        out = site.op.outputs[0]
        total = site.before("all_reduce", site.op.inputs, out, "total", attrs={"op": "sum"},
                            group=site.op.group)  # fmt: skip
        site.turn_into("scale", [total], {"factor": 1.0 / count})

    return change


def scale_around(site):
    """(x / 4) summed, times 4."""
    out = site.op.outputs[0]
    small = site.before("scale", site.op.inputs, out, "small", attrs={"factor": 0.25},
                        shape=site.op.inputs[0].shape)  # fmt: skip
    total = site.before(site.op.name, [small], out, "total", attrs=site.op.attrs,
                        group=site.op.group)  # fmt: skip
    site.turn_into("scale", [total], {"factor": 4.0})


def turned_collective(site):
    """Transposed before and back behind an all_reduce."""
    out = site.op.outputs[0]
    dims = list(range(len(out.shape)))
    dims[0], dims[1] = 1, 0
    shape = [out.shape[d] for d in dims]
    turned = site.before("permute", site.op.inputs, out, "turned", shape=shape,
                         attrs={"dims": dims})  # fmt: skip
    total = site.before("all_reduce", [turned], out, "total", shape=shape, attrs=site.op.attrs,
                        group=site.op.group)  # fmt: skip
    site.turn_into("permute", [total], {"dims": dims})


def sum_of_reduced(site):
    """all_reduce(a + b) = all_reduce(a) + all_reduce(b)."""
    out, group, attrs = site.op.outputs[0], site.op.group, site.op.attrs
    total = site.op.inputs[0]
    maker = next(op for op in site.ops if total in op.outputs)
    parts = [site.before("all_reduce", [value], out, f"part{k}", attrs=attrs, group=group)
             for k, value in enumerate(maker.inputs)]  # fmt: skip
    site.turn_into("add", parts)
    site.ops.remove(maker)


def reverse_inputs(site):
    site.op.inputs.reverse()


def flat_sum(site):
    """(a + b) + c = a + (b + c)."""
    inner = next(op for op in site.ops if site.op.inputs[0] in op.outputs)
    a, b = inner.inputs
    tail = site.before("add", [b, site.op.inputs[1]], site.op.outputs[0], "tail")
    site.op.inputs = [a, tail]


def recompute(label):
    """Backward works on an operator's result computed anew."""

    def edit(plan):
        for site in sites(plan, label, phase="fw"):
            old = site.op.outputs[0]
            new = site.fresh(old, "again")
            twin = Op(site.op.name, site.op.inputs, [new], site.op.attrs, "re", site.op.fqn,
                      site.op.source, site.op.label + ".again", site.op.group, site.op.sig)
            backward = site.role.segments["bw"]
            backward.insert(sum(op.name == "recv" for op in backward[:1]), twin)
            for op in backward:
                if op is not twin:
                    op.inputs = [new if value is old else value for value in op.inputs]

    return edit


def linear_as_matmul(site):
    x, weight = site.op.inputs
    turned = site.before("permute", [weight], weight, "wt", shape=weight.shape[::-1],
                         attrs={"dims": [1, 0]})  # fmt: skip
    site.turn_into("matmul", [x, turned])


def linear_in_halves(site):
    """Two linears over the halves of the output, joined."""
    x, weight = site.op.inputs
    out, half = site.op.outputs[0], weight.shape[0] // 2
    parts = []
    for k in range(2):
        rows = site.before("slice", [weight], weight, f"rows{k}", shape=(half, weight.shape[1]),
                           attrs={"dim": 0, "start": k * half, "end": (k + 1) * half, "step": 1})
        parts.append(site.before("linear", [x, rows], out, f"half{k}",
                                 shape=(*out.shape[:-1], half)))  # fmt: skip
    site.turn_into("cat", parts, {"dim": len(out.shape) - 1})


def contraction_in_halves(site):
    """Two linears over the halves of the contraction, added."""
    x, weight = site.op.inputs
    out, half = site.op.outputs[0], weight.shape[1] // 2
    parts = []
    for k in range(2):
        cut = {"start": k * half, "end": (k + 1) * half, "step": 1}
        columns = site.before("slice", [weight], weight, f"columns{k}",
                              shape=(weight.shape[0], half), attrs={"dim": 1, **cut})  # fmt: skip
        seen = site.before("slice", [x], x, f"x{k}{site.op.label}", shape=(*x.shape[:-1], half),
                           attrs={"dim": len(x.shape) - 1, **cut})  # fmt: skip
        parts.append(site.before("linear", [seen, columns], out, f"half{k}"))
    site.turn_into("add", parts)


def mean_as_scaled_sum(site):
    out, dims = site.op.outputs[0], site.op.attrs["dims"]
    count = 1
    for d in dims:
        count *= site.op.inputs[0].shape[d]
    total = site.before("sum", site.op.inputs, out, "total", attrs=site.op.attrs)
    site.turn_into("scale", [total], {"factor": 1.0 / count})


def divide_as_multiply(site):
    a, b = site.op.inputs
    inverse = site.before("reciprocal", [b], b, "inverse")
    site.turn_into("mul", [a, inverse])


def subtract_as_add(site):
    a, b = site.op.inputs
    minus = site.before("neg", [b], b, "minus")
    site.turn_into("add", [a, minus])


def turn_there_and_back(site):
    value = site.op.outputs[0]
    dims = list(range(len(value.shape)))
    dims[-1], dims[-2] = dims[-2], dims[-1]
    shape = [value.shape[d] for d in dims]
    there = site.insert(1, "permute", [value], value, "there", shape=shape, attrs={"dims": dims})
    back = site.insert(2, "permute", [there], value, "back", attrs={"dims": dims})
    for ops in site.role.segments.values():
        for op in ops:
            if back not in op.outputs and there not in op.outputs:
                op.inputs = [back if v is value else v for v in op.inputs]


def unused_copy(site):
    value = site.op.outputs[0]
    site.insert(1, "scale", [value], value, "unused", attrs={"factor": 3.0})


def identity_and_cast(site):
    value = site.op.outputs[0]
    first = site.insert(1, "identity", [value], value, "same")
    second = site.insert(2, "cast", [first], value, "cast")
    for ops in site.role.segments.values():
        for op in ops:
            if second not in op.outputs and first not in op.outputs:
                op.inputs = [second if v is value else v for v in op.inputs]


def cross_replicated_sends(plan):
    """Values that all tensor-parallel ranks have alike may come from any of them."""
    for label in ("pipeline.send.fw.0", "pipeline.recv.fw.1"):
        for site in sites(plan, label):
            site.op.attrs["peer"] += 1 if site.tp == 0 else -1


def all_forward_first(plan):
    """GPipe's schedule."""
    for role in plan.roles:
        role.schedule.sort(key=lambda turn: ("fw", "bw", "step").index(turn[0]))


def last_backward_first(plan):
    all_forward_first(plan)
    for role in plan.roles:
        backward = [turn for turn in role.schedule if turn[0] == "bw"]
        forward = [turn for turn in role.schedule if turn[0] == "fw"]
        role.schedule = forward + backward[::-1] + [("step", None)]


def scale_at_the_step(label, factor):
    """The loss is not divided by the micro-batches, but the gradients are."""

    def edit(plan):
        on(label, ALL, rescale(factor))(plan)
        for role in plan.roles:
            for op in list(role.segments["step"]):
                if op.label.endswith(".grad.dp"):
                    site = next(s for s in sites(plan, op.label) if s.op is op)
                    value = op.inputs[0]
                    small = site.before("scale", [value], value, "scaled",
                                        attrs={"factor": 1.0 / factor})  # fmt: skip
                    op.inputs = [small]

    return edit


def sum_instead_of_average(label, replicas):
    """The loss is divided by the replicas, and their gradients added."""

    def edit(plan):
        on(label, ALL, rescale(1.0 / replicas))(plan)
        for op in plan.ops():
            if op.label.endswith(".grad.dp"):
                op.attrs["op"] = "sum"

    return edit


def two_level_average(plan):
    """Over cp within a replica, then over the replicas."""
    for role in plan.roles:
        for op in list(role.segments["step"]):
            if not op.label.endswith(".grad.dp"):
                continue
            site = next(s for s in sites(plan, op.label) if s.op is op)
            rest = [str(role.coordinates[a]) for a in plan.device_axes() if a != "cp"]
            value = op.inputs[0]
            near = site.before("all_reduce", [value], value, "cp", attrs={"op": "avg"},
                               group=".".join(["cp", *rest]))  # fmt: skip
            op.inputs = [near]
            op.group = add_group(plan, op.group, f"own{role.coordinates['cp']}",
                                 [dict(own_tuple(site), dp="all")])  # fmt: skip


def gather_as_padded_sum(site):
    """all_gather = all_reduce of the own part among zeros."""
    out, dim = site.op.outputs[0], site.op.attrs["dim"]
    size = site.op.inputs[0].shape[dim]
    wide = site.before("pad", site.op.inputs, out, "wide",
                       attrs={"dim": dim, "before": site.tp * size,
                              "after": out.shape[dim] - (site.tp + 1) * size})  # fmt: skip
    site.turn_into("all_reduce", [wide], {"op": "sum"}, site.op.group)


def arange_by_addition(site):
    """0 ... n - 1, and the rank's offset added."""
    first, end = site.op.attrs["start"], site.op.attrs["end"]
    out = site.op.outputs[0]
    zero = site.before("arange", [], out, "zero",
                       attrs={"start": 0, "end": end - first, "step": 1})  # fmt: skip
    site.turn_into("add_scalar", [zero], {"value": float(first)})


def everywhere(suffix, change, phase=""):
    """At every operator whose label ends so."""

    def edit(plan):
        for label in sorted({op.label for op in plan.ops() if op.label.endswith(suffix)}):
            for site in sites(plan, label, phase=phase):
                change(site)

    return edit


def refactorings():
    r, tied = Refactoring, dict(LLAMA, tied=True, vocab_embedding=True)
    zero1, zero3 = dict(LLAMA, zero=1), dict(LLAMA, zero=3, optimizer="sgd")
    wo, w2 = "attention.wo.reduce", "feed_forward.w2.reduce"
    yield r(1, "scatter-and-gather", LLAMA, everywhere(wo, reduce_as_scatter_and_gather(1)))
    yield r(1, "scale-around", LLAMA, everywhere(w2, scale_around))
    yield r(1, "scale-around", MLP, everywhere(".w2.reduce", scale_around))
    yield r(2, "scatter-and-gather", MLP, everywhere(".w2.reduce", reduce_as_scatter_and_gather(2)))
    yield r(2, "gather-as-sum", SEQUENCE, everywhere("attention.qkv.gather", gather_as_padded_sum))
    yield r(2, "turned-collective", LLAMA, everywhere(w2, turned_collective))
    yield r(3, "separate-reductions", LLAMA, everywhere("attention.qkv.bw.reduce", sum_of_reduced))
    yield r(3, "scale-around", MLP, everywhere(".in.bw.reduce", scale_around))
    yield r(3, "scatter-and-gather", LLAMA,
            everywhere("feed_forward.up.bw.reduce", reduce_as_scatter_and_gather(2)))
    yield r(4, "order-of-reduction", LLAMA, everywhere(wo, reverse_group))
    yield r(4, "order-of-reduction", MLP, everywhere(".w2.reduce", reverse_group))
    yield r(4, "two-levels", CONTEXT, two_level_average)
    yield r(5, "reversed-pair", LLAMA, everywhere(wo, reduce_as_scatter_and_gather(1, True)))
    yield r(5, "gather-as-sum", MOE, everywhere("gates.gather", gather_as_padded_sum))
    yield r(5, "zero3", zero3, keep)
    yield r(6, "crossed-replicated", LLAMA, cross_replicated_sends)
    yield r(6, "gpipe", LLAMA, all_forward_first)
    yield r(6, "four-stages", dict(MLP, layers=4, pp=4), keep)
    yield r(7, "mean-as-sum", LLAMA, everywhere("attention_norm.mean", mean_as_scaled_sum))
    yield r(7, "divide", LLAMA, everywhere("loss.p", divide_as_multiply))
    yield r(7, "linear-as-matmul", MLP, everywhere(".w1", linear_as_matmul))
    yield r(8, "other-order", LLAMA, everywhere("attention.qkv.dx", reverse_inputs))
    yield r(8, "other-grouping", LLAMA, everywhere("attention.qkv.dx", flat_sum))
    yield r(8, "recompute", LLAMA, recompute("layers.1.feed_forward.silu"))
    yield r(8, "subtract-as-add", LLAMA, everywhere("softmax.sub", subtract_as_add))
    yield r(9, "last-first", MLP, last_backward_first)
    yield r(9, "gpipe", MLP, all_forward_first)
    yield r(9, "one-microbatch", dict(LLAMA, nm=1), keep)
    yield r(10, "sum-and-scale", LLAMA, everywhere(".grad.dp", average_as_scaled_sum(2)))
    yield r(10, "scale-at-the-step", LLAMA, scale_at_the_step("loss.dscale", 2.0))
    yield r(10, "sum-of-replicas", MLP, sum_instead_of_average("loss.dx", 2))
    yield r(11, "tied", tied, keep)
    yield r(11, "sum-and-scale", dict(SEQUENCE, cp=1), everywhere(".grad.tp", scale_around))
    yield r(11, "moe-sequence", dict(MOE, sp=True), keep)
    yield r(12, "there-and-back", LLAMA, everywhere("attention.v.bhsd", turn_there_and_back))
    yield r(12, "halves", LLAMA, everywhere("feed_forward.w1", linear_in_halves))
    yield r(12, "contraction-halves", MLP, everywhere(".w2", contraction_in_halves))
    yield r(13, "offset-added", CONTEXT, everywhere("mask.rows", arange_by_addition))
    yield r(13, "vocabulary", dict(LLAMA, vocab_embedding=True), keep)
    yield r(13, "context", CONTEXT, keep)
    yield r(14, "zero1", zero1, keep)
    yield r(14, "zero1-sum", zero1, everywhere(".adamw.m", reverse_inputs))
    yield r(14, "zero1-decay", dict(MLP, zero=1), everywhere("adamw.update", subtract_as_add))
    yield r(15, "waits", LLAMA, make_async("layers.1.attention.wo.reduce"))
    yield r(15, "waits", MLP, make_async("layers.1.w2.reduce"))
    yield r(15, "unused", LLAMA, everywhere("feed_forward.product", unused_copy))
    yield r(15, "identities", EQUAL_HEADS, everywhere("attention.wq", identity_and_cast))
