"""Fifteen classes of mistakes in parallel plans, as edits of healthy plans.

Each mutation knows which operators count as named exactly: the wrong one, or for a collective that
is missing also the producer and the first readers of the value that is then wrong. Every one is
checked against numbers (test_plan_mutations.py): an edit that changes no output is no mistake.
"""

import dataclasses

from plan_edits import ALL, ONE, add_group, around, readers, sites, split_replicas
from plan_objects import Op

LAYERS = (0, 1, 2)
MLP = dict(model="mlp", layers=3, hidden=24, ffn=40, seq=6, dp=2, pp=2, tp=2, nm=2)
LLAMA = dict(model="llama", layers=3, hidden=48, heads=4, kv_heads=2, head_dim=10, ffn=56, vocab=72,
             seq=6, batch=3, dp=2, pp=2, tp=2, nm=2)  # fmt: skip
SEQUENCE = dict(LLAMA, sp=True, seq=8)
CONTEXT = dict(LLAMA, cp=2, pp=1, layers=3, seq=8)
SQUARE = dict(LLAMA, heads=4, kv_heads=4, head_dim=2, seq=2, batch=2)  # all four dims equal
EQUAL_HEADS = dict(LLAMA, kv_heads=4)
MOE = dict(LLAMA, model="moe", dense_layers=0, experts=6, hidden=32, batch=2)


@dataclasses.dataclass
class Mutation:
    number: int  # of the class
    name: str
    config: dict
    edit: object  # called with the parallel plan
    names: object  # labels, or called with the healthy plan
    layer: object = None
    ranks: str = ALL
    phase: str = "fw"
    numbers: bool = True  # shows in numbers (else only in the order of events)

    def __str__(self):
        model = self.config["model"]
        return f"{self.number:02d}-{model}-{self.name}-{self.layer}-{self.ranks}"


def place(model, index):
    return f"layers.{index}" + ("" if model == "mlp" else ".attention")


def each_place(ranks=(ONE, ALL), layers=LAYERS):
    return [(layer, rank) for layer in layers for rank in ranks]


def on(label, ranks, change):
    """An edit: change(site) at every site of the label."""

    def edit(plan):
        for site in sites(plan, label, ranks):
            change(site)

    return edit


def near_label(label):
    return lambda plan: around(plan, label)


# ---- 1, 2, 3: collectives missing or of another kind ------------------------------------------


def to_identity(site):
    site.turn_into("identity")


def keep_own_shard(site):
    """reduce_scatter without the reduction: the own part of the own partial sum."""
    op, size = site.op, site.op.outputs[0].shape[site.op.attrs["dim"]]
    first = site.tp * size
    attrs = {"dim": op.attrs["dim"], "start": first, "end": first + size, "step": 1}
    site.turn_into("slice", attrs=attrs)


def missing_forward():
    for model, config in (("mlp", MLP), ("llama", LLAMA)):
        labels = ["w2"] if model == "mlp" else ["attention.wo", "feed_forward.w2"]
        for short in labels:
            for layer, ranks in each_place():
                label = f"layers.{layer}.{short}.reduce"
                yield Mutation(1, f"{short}-identity", config, on(label, ranks, to_identity),
                               near_label(label), layer, ranks)  # fmt: skip
            for layer in LAYERS:
                label = f"layers.{layer}.{short}.reduce"
                yield Mutation(1, f"{short}-removed", config,
                               on(label, ALL, lambda s: s.remove()), near_label(label), layer)
    for layer in LAYERS:
        label = f"layers.{layer}.attention.wo.scatter"
        yield Mutation(1, "wo-scatter", SEQUENCE, on(label, ALL, keep_own_shard),
                       near_label(label), layer)  # fmt: skip


def copies_of_own(site):
    """all_gather that repeats the own shard."""
    dim, count = site.op.attrs["dim"], site.plan.axes["tp"]
    site.turn_into("cat", site.op.inputs * count, {"dim": dim})


def scatter_then_reduce(site):
    dim, out = site.op.attrs["dim"], site.op.outputs[0]
    size = out.shape[dim]
    attrs = {"dim": dim, "start": site.tp * size, "end": (site.tp + 1) * size, "step": 1}
    part = site.before("slice", site.op.inputs, out, "own", attrs=attrs)
    site.turn_into("all_reduce", [part], {"op": "sum"}, site.op.group)


def swapped_kind():
    for layer in LAYERS:
        mlp, llama = f"layers.{layer}.w2.reduce", f"layers.{layer}.attention.wo.reduce"
        for config, label in ((MLP, mlp), (LLAMA, llama)):
            yield Mutation(2, "reduce-to-max", config, on(label, ALL, lambda s: s.turn_into(
                "all_reduce", attrs={"op": "max"}, group=s.op.group)), near_label(label), layer)
            yield Mutation(2, "reduce-to-broadcast", config, on(label, ALL, lambda s: s.turn_into(
                "broadcast", attrs={"root": 0}, group=s.op.group)), near_label(label), layer)
        scatter = f"layers.{layer}.feed_forward.w2.scatter"
        yield Mutation(2, "scatter-to-reduce-of-part", SEQUENCE, on(scatter, ALL,
                       scatter_then_reduce), near_label(scatter), layer)
        gather = f"layers.{layer}.attention.qkv.gather"
        yield Mutation(2, "gather-to-copies", SEQUENCE, on(gather, ALL, copies_of_own),
                       near_label(gather), layer)
        back = f"layers.{layer}.attention.wo.bw.gather"
        yield Mutation(2, "gather-to-copies", SEQUENCE, on(back, ALL, copies_of_own),
                       near_label(back), layer, phase="bw")
        down = f"layers.{layer}.feed_forward.up.bw.reduce"
        yield Mutation(2, "reduce-to-max", LLAMA, on(down, ALL, lambda s: s.turn_into(
            "all_reduce", attrs={"op": "max"}, group=s.op.group)), near_label(down), layer,
            phase="bw")


def missing_backward():
    for config, short in ((MLP, "in"), (LLAMA, "attention.qkv"), (LLAMA, "feed_forward.up")):
        for layer, ranks in each_place():
            label = f"layers.{layer}.{short}.bw.reduce"
            yield Mutation(3, f"{short}-identity", config, on(label, ranks, to_identity),
                           near_label(label), layer, ranks, "bw")  # fmt: skip
    for layer in LAYERS:
        label = f"layers.{layer}.feed_forward.up.bw.scatter"
        yield Mutation(3, "up-scatter", SEQUENCE, on(label, ALL, keep_own_shard),
                       near_label(label), layer, phase="bw")  # fmt: skip
    label = "output.logits.bw.reduce"
    yield Mutation(3, "logits-identity", LLAMA, on(label, ALL, to_identity), near_label(label),
                   "head", phase="bw")  # fmt: skip


# ---- 4, 5: groups -----------------------------------------------------------------------------


def own_tuple(site):
    return {axis: site.role.coordinates[axis] for axis in site.plan.device_axes()}


def tp_group_for_replicas(site):
    """The gradient is averaged over the tensor-parallel ranks, which are as many."""
    rest = [str(site.role.coordinates[a]) for a in site.plan.device_axes() if a != "tp"]
    site.op.group = ".".join(["tp", *rest])


def group_of_self(site):
    site.op.group = add_group(site.plan, site.op.group, f"self{site.tp}", [own_tuple(site)])


def half_groups(site):
    """Two groups of half the tensor-parallel ranks instead of one of all."""
    half = site.plan.axes["tp"] // 2
    first = site.tp // half * half
    members = [dict(own_tuple(site), tp=first + k) for k in range(half)]
    site.op.group = add_group(site.plan, site.op.group, f"half{first}", members)


def half_replicas(label):
    """Gradients are averaged over half of the replicas."""

    def edit(plan):
        split_replicas(plan, 2)
        for site in sites(plan, label):
            first, count = site.role.coordinates["dp"]
            members = [dict(own_tuple(site), dp=first + k) for k in range(count)]
            site.op.group = add_group(plan, site.op.group, f"from{first}", members)

    return edit


def wrong_group():
    for config, weight in ((MLP, "w1.weight"), (LLAMA, "attention.wq.weight")):
        for layer in LAYERS:
            label = f"layers.{layer}.{weight}.grad.dp"
            yield Mutation(4, "tp-for-dp", config, on(label, ALL, tp_group_for_replicas),
                           near_label(label), layer, phase="opt")  # fmt: skip
            wide = dict(config, dp=4)
            yield Mutation(4, "half-of-the-replicas", wide, half_replicas(label),
                           near_label(label), layer, phase="opt")  # fmt: skip
            wide = dict(config, tp=4, heads=4, kv_heads=4)
            for short, phase in ((("w2.reduce", "fw"), ("in.bw.reduce", "bw"))
                                 if config is MLP else
                                 (("attention.wo.reduce", "fw"),
                                  ("attention.qkv.bw.reduce", "bw"))):  # fmt: skip
                label = f"layers.{layer}.{short}"
                yield Mutation(4, "half-groups", wide, on(label, ALL, half_groups),
                               near_label(label), layer, phase=phase)  # fmt: skip
                yield Mutation(4, "self", config, on(label, ALL, group_of_self),
                               near_label(label), layer, phase=phase)  # fmt: skip
                yield Mutation(4, "self", config, on(label, ONE, group_of_self),
                               near_label(label), layer, ONE, phase)  # fmt: skip


def reverse_group(site):
    members = list(reversed(site.plan.groups[site.op.group].members))
    site.op.group = add_group(site.plan, site.op.group, "reversed", members)


def gather_wrong_dim(site):
    """Gathered along dim 0 and reshaped to fit."""
    op, out = site.op, site.op.outputs[0]
    shape = list(op.inputs[0].shape)
    shape[0] *= site.plan.axes["tp"]
    part = site.before("all_gather", op.inputs, out, "dim0", shape=shape, attrs={"dim": 0},
                       group=op.group)  # fmt: skip
    site.turn_into("view", [part], {"shape": list(out.shape)})


def wrong_slice(site):
    """The part of the next rank."""
    attrs, count = site.op.attrs, site.plan.axes["tp"]
    size = attrs["end"] - attrs["start"]
    first = (site.tp + 1) % count * size
    attrs.update(start=first, end=first + size)


def wrong_order():
    for layer in LAYERS:
        for short, phase in (("attention.qkv.gather", "fw"), ("feed_forward.w2.scatter", "fw"),
                             ("attention.wo.bw.gather", "bw"),
                             ("feed_forward.up.bw.scatter", "bw")):  # fmt: skip
            label = f"layers.{layer}.{short}"
            yield Mutation(5, f"reversed-{short}", SEQUENCE, on(label, ALL, reverse_group),
                           near_label(label), layer, phase=phase)  # fmt: skip
        label = f"layers.{layer}.attention.qkv.gather"
        yield Mutation(5, "gather-dim", SEQUENCE, on(label, ALL, gather_wrong_dim),
                       lambda plan, label=label: around(plan, label) | {label + ".dim0"}, layer)
        label = f"layers.{layer}.moe.gates.own"
        for ranks in (ONE, ALL):
            yield Mutation(5, "expert-slice", MOE, on(label, ranks, wrong_slice),
                           {label, f"layers.{layer}.moe.e.weighted"}, layer, ranks)  # fmt: skip
        label = f"layers.{layer}.moe.gates.gather"
        yield Mutation(5, "reversed-gates", MOE, on(label, ALL, reverse_group), near_label(label),
                       layer, phase="bw")  # fmt: skip
        label = f"layers.{layer}.w2.weight.gather.fw"
        both = dict(MLP, zero=3, cp=2, pp=1, seq=6)
        yield Mutation(5, "reversed-parameter", both, on(label, ALL, reverse_group),
                       near_label(label), layer)  # fmt: skip


# ---- 6: pipeline ------------------------------------------------------------------------------


def cross_peers(site):
    """The peer of the neighbouring tensor-parallel rank."""
    site.op.attrs["peer"] += 1 if site.tp == 0 else -1


def swap_first_turns(segment):
    def edit(plan):
        for role in plan.roles:
            if role.coordinates["pp"] == 0:
                turns = role.schedule
                a, b = turns.index((segment, 0)), turns.index((segment, 1))
                turns[a], turns[b] = turns[b], turns[a]

    return edit


def send_other(label):
    """Send what the operator of that label made instead."""
    return lambda site: setattr(site.op, "inputs", [site.value(label)])


def pair_names(send, receive):
    return lambda plan: {send, receive} | readers(plan, receive)


def pipeline():
    for config in (dict(MLP, sp=True), SEQUENCE):
        for kind, phase in (("fw", "fw"), ("bw", "bw")):
            first = "pipeline.send.fw.0" if kind == "fw" else "pipeline.send.bw.1"
            second = "pipeline.recv.fw.1" if kind == "fw" else "pipeline.recv.bw.0"

            def crossed(plan, first=first, second=second):
                for label in (first, second):
                    for site in sites(plan, label):
                        cross_peers(site)

            yield Mutation(6, "crossed", config, crossed, pair_names(first, second), "boundary",
                           phase=phase)  # fmt: skip
            yield Mutation(6, "send-missing", config,
                           on(first, ONE, lambda s: s.ops.remove(s.op)), {first, second},
                           "boundary", ONE, phase)  # fmt: skip
            yield Mutation(6, "wrong-tag", config,
                           on(first, ALL, lambda s: s.op.attrs.update(tag=7)), {first, second},
                           "boundary", phase=phase)  # fmt: skip
        names = pair_names("pipeline.send.fw.0", "pipeline.recv.fw.1")
        yield Mutation(6, "wrong-microbatch", dict(config, nm=3), swap_first_turns("fw"), names,
                       "boundary")  # fmt: skip
        other = "layers.0.residual" if config["model"] == "mlp" else "layers.0.ffn.residual"
        yield Mutation(6, "stale-value", config, on("pipeline.send.fw.0", ALL, send_other(other)),
                       names, "boundary")  # fmt: skip
        back = "layers.2.residual.dx" if config["model"] == "mlp" else "layers.2.ffn.residual.dx"
        names = pair_names("pipeline.send.bw.1", "pipeline.recv.bw.0")
        if config["model"] == "llama":
            yield Mutation(6, "stale-value", config, on("pipeline.send.bw.1", ALL,
                           send_other(back)), names, "boundary", phase="bw")  # fmt: skip


# ---- 7, 8: constants and gradients ------------------------------------------------------------


def set_attr(key, value):
    return lambda site: site.op.attrs.__setitem__(key, value)


def swap_inputs(site):
    site.op.inputs.reverse()


def constants():
    for layer, ranks in each_place():
        for short, key, value, phase in (
                ("attention_norm.eps", "value", 1e-3, "fw"),
                ("ffn_norm.square", "exponent", 3.0, "fw"),
                ("attention.scores.scale", "factor", 0.5, "fw"),
                ("attention.scores.dscale", "factor", 0.25, "bw"),
                ("attention.scores.mask", "value", -1.0, "fw"),
                ("feed_forward.silu.one", "value", 2.0, "bw")):  # fmt: skip
            label = f"layers.{layer}.{short}"
            yield Mutation(7, f"{short}", LLAMA, on(label, ranks, set_attr(key, value)), {label},
                           layer, ranks, phase)  # fmt: skip
        label = f"layers.{layer}.tanh.slope"
        yield Mutation(7, "tanh.slope", MLP, on(label, ranks, set_attr("value", 2.0)), {label},
                       layer, ranks, "bw")  # fmt: skip
        label = f"layers.{layer}.attention.rope.q.cos"
        yield Mutation(7, "rope-table", LLAMA, on(label, ranks, lambda s: s.op.inputs.__setitem__(
            1, next(i.value for i in s.role.inputs if i.name == "rope.sin"))), {label}, layer,
            ranks)
    yield Mutation(7, "loss.square", MLP, on("loss.square", ALL, set_attr("exponent", 3.0)),
                   {"loss.square"}, "head")  # fmt: skip


def read_instead(position, label):
    return lambda site: site.op.inputs.__setitem__(position, site.value(label))


def gradients():
    for layer, ranks in each_place():
        at = f"layers.{layer}.attention"
        feed = f"layers.{layer}.feed_forward"
        cases = (
            (LLAMA, f"{at}.qkv.dx", read_instead(1, f"{at}.qk.dx"), "duplicate"),
            (LLAMA, f"{at}.qkv.dx", lambda s: s.turn_into("identity", s.op.inputs[:1]), "dropped"),
            (LLAMA, f"layers.{layer}.ffn.residual.dx",
             lambda s: s.turn_into("identity", s.op.inputs[:1]), "residual-dropped"),
            (LLAMA, f"{feed}.product.dup", read_instead(1, f"{feed}.w3"), "gate-for-up"),
            (LLAMA, f"{feed}.w3.dw", read_instead(0, f"{feed}.w1.dw.t"), "other-weight"),
            (EQUAL_HEADS, f"{at}.rope.q.dcos", read_instead(0, f"{at}.scores.dk"), "q-k-swapped"),
            (LLAMA, f"{at}.softmax.sub", lambda s: s.turn_into("identity", s.op.inputs[:1]),
             "softmax-share"),
            (MLP, f"layers.{layer}.residual.dx",
             lambda s: s.turn_into("identity", s.op.inputs[:1]), "residual-dropped"),
            (MLP, f"layers.{layer}.residual.dx", lambda s: s.op.inputs.append(s.op.inputs[1]),
             "duplicate"),
            (MLP, f"layers.{layer}.tanh.dx", read_instead(1, f"layers.{layer}.tanh"),
             "other-slope"),
        )  # fmt: skip
        for config, label, change, name in cases:
            yield Mutation(8, name, config, on(label, ranks, change), {label}, layer, ranks, "bw")


# ---- 9, 10: accumulation and scale ------------------------------------------------------------


def early_step(plan):
    for role in plan.roles:
        if role.coordinates["pp"] == 0:
            role.schedule[-1], role.schedule[-2] = role.schedule[-2], role.schedule[-1]


def drop_last_backward(plan):
    """The first stage never runs its last backward: one micro-batch's gradients are not added."""
    plan.roles[0].schedule.remove(("bw", plan.microbatches - 1))


def gradient_names(plan):
    """Whoever carries a gradient out of the accumulators."""
    names = set()
    for op in plan.ops():
        if op.name == "accumulate" or op.phase == "opt":
            names.add(op.label)
    return names


def accumulate_twice(site):
    op = site.op
    site.ops.insert(site.index, Op("accumulate", op.inputs, op.outputs, op.attrs, op.phase, op.fqn,
                                   op.source, op.label + ".again"))  # fmt: skip


def accumulation():
    for config, weights in ((MLP, ("w1.weight", "w2.bias")),
                            (LLAMA, ("attention.wo.weight", "ffn_norm.weight"))):  # fmt: skip
        yield Mutation(9, "step-too-early", config, early_step, gradient_names, "stage", phase="bw")
        for layer, ranks in each_place():
            for weight in weights:
                label = f"layers.{layer}.{weight}.grad"
                yield Mutation(9, f"overwrite-{weight}", config, on(label, ranks, to_identity),
                               near_label(label), layer, ranks, "bw")  # fmt: skip
            yield Mutation(9, "twice", config, on(label, ranks, accumulate_twice),
                           lambda plan, label=label: around(plan, label) | {label + ".again"},
                           layer, ranks, "bw")  # fmt: skip
    yield Mutation(9, "last-backward-missing", dict(MLP, tp=1), drop_last_backward,
                   lambda plan: gradient_names(plan) | {"pipeline.send.bw.1", "pipeline.recv.bw.0"},
                   "stage", phase="bw")  # fmt: skip


def rescale(factor):
    def change(site):
        site.op.attrs["factor"] *= factor

    return change


def insert_scale(label, factor):
    def change(site):
        value = site.op.outputs[0]
        new = site.insert(1, "scale", [value], value, "rescaled", attrs={"factor": factor})
        maker = next(op for op in site.ops if new in op.outputs)
        site.replace_uses(value, new, maker)

    return on(label, ALL, change)


def scaled_names(*labels):
    """A wrong factor is decided where gradients meet the optimizer, or where it arises."""
    return lambda plan: set(labels) | {op.label for op in plan.ops() if op.phase == "opt"}


def scaling():
    for config, label in ((MLP, "loss.dx"), (LLAMA, "loss.dscale")):
        for name, factor in (("1/dp", 0.5), ("1/nm-missing", 2.0)):
            for ranks in (ONE, ALL):
                yield Mutation(10, f"loss-{name}", config, on(label, ranks, rescale(factor)),
                               scaled_names(label), "head", ranks, "bw")  # fmt: skip
        short = "w1.weight" if config is MLP else "feed_forward.w1.weight"
        for layer in LAYERS:
            sync = f"layers.{layer}.{short}.grad.dp"
            yield Mutation(10, "avg-to-sum", config, on(sync, ALL, set_attr("op", "sum")),
                           near_label(sync), layer, phase="opt")  # fmt: skip
            yield Mutation(10, "averaged-twice", config, insert_scale(sync, 0.5),
                           lambda plan, sync=sync: around(plan, sync) | {sync + ".rescaled"},
                           layer, phase="opt")  # fmt: skip
    yield Mutation(10, "per-token-loss-cp", CONTEXT, on("loss.dscale", ALL, rescale(2.0)),
                   scaled_names("loss.dscale"), "head", phase="bw")  # fmt: skip
    yield Mutation(10, "cp-loss-sum", CONTEXT, on("loss.cp", ALL, set_attr("op", "sum")),
                   {"loss.cp"}, "head")  # fmt: skip
    for layer in LAYERS:
        sync = f"layers.{layer}.moe.w1.grad.dp"
        yield Mutation(10, "expert-average", MOE, insert_scale(sync, 0.5),
                       lambda plan, sync=sync: around(plan, sync) | {sync + ".rescaled"}, layer,
                       phase="opt")  # fmt: skip


# ---- 11, 12: unreduced gradients, layout ------------------------------------------------------


def own_experts_only(site):
    """The router's gradient of the own experts alone, in the width of all."""
    op, out = site.op, site.op.outputs[0]
    size = op.inputs[0].shape[2]
    site.turn_into("pad", attrs={"dim": 2, "before": site.tp * size,
                                 "after": out.shape[2] - (site.tp + 1) * size})  # fmt: skip


def unreduced():
    for layer, ranks in each_place():
        label = f"layers.{layer}.attention_norm.weight.grad.tp"
        yield Mutation(11, "norm", SEQUENCE, on(label, ranks, to_identity), near_label(label),
                       layer, ranks, "opt")  # fmt: skip
        label = f"layers.{layer}.w2.bias.grad.tp"
        yield Mutation(11, "bias", dict(MLP, sp=True), on(label, ranks, to_identity),
                       near_label(label), layer, ranks, "opt")  # fmt: skip
    for layer in LAYERS:
        label = f"layers.{layer}.moe.gates.gather"
        yield Mutation(11, "router", MOE, on(label, ALL, own_experts_only), near_label(label),
                       layer, phase="bw")  # fmt: skip
        label = f"layers.{layer}.moe.moe.dx.reduce"
        yield Mutation(11, "expert-input", MOE, on(label, ALL, to_identity), near_label(label),
                       layer, phase="bw")  # fmt: skip
    tied = dict(LLAMA, tied=True, vocab_embedding=True)
    label = "tok_embeddings.weight.grad.tied"
    yield Mutation(11, "tied-embedding", tied, on(label, ALL, to_identity), near_label(label),
                   "ends", phase="opt")  # fmt: skip


def drop_permute(site):
    site.turn_into("identity")


def swap_dims(a, b):
    """A transpose too many behind the operator."""

    def change(site):
        value = site.op.outputs[0]
        dims = list(range(len(value.shape)))
        dims[a], dims[b] = dims[b], dims[a]
        new = site.insert(1, "permute", [value], value, "turned", attrs={"dims": dims})
        maker = next(op for op in site.ops if new in op.outputs)
        for ops in site.role.segments.values():
            for op in ops:
                if op is not maker:
                    op.inputs = [new if v is value else v for v in op.inputs]

    return change


def interleave(site):
    """Heads as the inner part of the width instead of the outer."""
    op, out = site.op, site.op.outputs[0]
    batch, tokens, heads, size = out.shape
    shape = [batch, tokens, size, heads]
    apart = site.before("view", op.inputs, out, "inner", shape=shape, attrs={"shape": shape})
    site.turn_into("permute", [apart], {"dims": [0, 1, 3, 2]})


def swap_parameter(name):
    """The parameter's shards are in reverse order."""

    def edit(plan):
        for role in plan.roles:
            for item in role.inputs:
                if item.name == name:
                    size = item.value.shape[0]
                    last = plan.axes["tp"] - 1
                    base, *weights = item.starts[0]
                    item.starts[0] = (last * size - base, *weights)

    return edit


def layout():
    for layer, ranks in each_place():
        at = f"layers.{layer}.attention"
        for short, phase in (("q.bhsd", "fw"), ("o.bshd", "fw"), ("kt", "fw"), ("q.dbshd", "bw"),
                             ("scores.dt", "bw")):  # fmt: skip
            label = f"{at}.{short}"
            yield Mutation(12, f"dropped-{short}", SQUARE, on(label, ranks, drop_permute), {label},
                           layer, ranks, phase)  # fmt: skip
        label = f"{at}.v.bhsd"
        yield Mutation(12, "spurious-v", SQUARE, on(label, ranks, swap_dims(1, 2)),
                       lambda plan, label=label: readers(plan, label) | {label + ".turned"},
                       layer, ranks)  # fmt: skip
        label = f"{at}.q.heads"
        yield Mutation(12, "interleaved-q", LLAMA, on(label, ranks, interleave),
                       {label, label + ".inner"}, layer, ranks)  # fmt: skip
    for layer in LAYERS:
        name = f"layers.{layer}.feed_forward.w1.weight"
        yield Mutation(12, "shards-swapped", LLAMA, swap_parameter(name),
                       lambda plan, layer=layer: around(plan, f"layers.{layer}.feed_forward.w1") |
                       {f"layers.{layer}.feed_forward.product"}, layer)  # fmt: skip
        name = f"layers.{layer}.w1.weight"
        yield Mutation(12, "shards-swapped", MLP, swap_parameter(name),
                       lambda plan, layer=layer: around(plan, f"layers.{layer}.w1"), layer)


# ---- 13, 14: index semantics, optimizer shards ------------------------------------------------


def shift_range(by):
    def change(site):
        site.op.attrs["start"] += by
        site.op.attrs["end"] += by

    return change


def start_at_zero(site):
    attrs = site.op.attrs
    attrs.update(start=0, end=attrs["end"] - attrs["start"])


def shift_input(name, dim, to_zero=False, weights=None):
    """Read from another place of the logical input."""

    def edit(plan):
        for role in plan.roles:
            for item in role.inputs:
                if item.name == name:
                    base, *rest = item.starts[dim]
                    item.starts[dim] = (0 if to_zero else base, *(weights or rest))

    return edit


def indices():
    vocab = dict(LLAMA, vocab_embedding=True)
    for ranks in (ONE, ALL):
        for at, use in (("tok_embeddings.embed", "tok_embeddings.embed"), ("loss", "loss.pick")):
            names = {f"{at}.hot.names", f"{at}.hot.eq", use}
            yield Mutation(13, f"vocabulary-{use}", vocab,
                           on(f"{at}.hot.names", ranks, shift_range(1)), names, "ends", ranks)
    for layer in LAYERS:
        at = f"layers.{layer}.attention"
        label = f"{at}.mask.rows"
        yield Mutation(13, "mask-offset", CONTEXT, on(label, ALL, start_at_zero), lambda plan,
                       at=at: around(plan, f"{at}.mask.rows") | around(plan, f"{at}.mask.row")
                       | {f"{at}.mask.masked", f"{at}.mask.kept", f"{at}.scores.mask"},
                       layer)  # fmt: skip
        for ranks in (ONE, ALL):
            yield Mutation(13, "mask-shifted", LLAMA, on(label, ranks, shift_range(1)),
                           lambda plan, at=at: around(plan, f"{at}.mask.rows") |
                           {f"{at}.mask.masked", f"{at}.mask.kept", f"{at}.scores.mask"},
                           layer, ranks)  # fmt: skip
    rope = {f"layers.0.attention.rope.{x}.{t}" for x in "qk" for t in ("cos", "sin")}
    yield Mutation(13, "rope-offset-cos", CONTEXT, shift_input("rope.cos", 0, True), rope, 0)
    yield Mutation(13, "rope-offset-sin", CONTEXT, shift_input("rope.sin", 0, True), rope, 0)
    loss = {"loss.hot.eq", "loss.hot", "loss.hot.ids", "loss.pick", "loss.right", "loss.tokens",
            "loss.dlogits", "loss.right.reduce"}  # fmt: skip
    yield Mutation(13, "targets-context", CONTEXT, shift_input("targets", 1, True), loss, "head")
    yield Mutation(13, "targets-replica", LLAMA, shift_input("targets", 0, False, (0, 3)), loss,
                   "head")  # fmt: skip
    yield Mutation(13, "targets-microbatch", LLAMA, shift_input("targets", 0, False, (6, 0)), loss,
                   "head")  # fmt: skip
    yield Mutation(13, "target-replica", MLP, shift_input("target", 0, False, (0, 2)),
                   {"loss.delta", "loss.square", "loss.mean"}, "head")  # fmt: skip


def unreduced_shard(site):
    """The optimizer's shard of the own gradient: no reduction over replicas."""
    op, out = site.op, site.op.outputs[0]
    size = out.shape[0]
    attrs = {"dim": 0, "start": 0, "end": size, "step": 1}
    site.turn_into("slice", op.inputs, attrs)


def gather_old(site):
    """The parameter is gathered before the update."""
    name = site.op.label.removesuffix(".param.gather")
    held = [i.value for i in site.role.inputs if i.name == name][-1]
    site.op.inputs = [held]


def swap_states(plan, weight):
    for role in plan.roles:
        pair = [i for i in role.inputs if i.name in (weight + ".exp_avg", weight + ".exp_avg_sq")]
        if pair:
            pair[0].name, pair[1].name = pair[1].name, pair[0].name


def shard_offset(weight):
    """The optimizer's shard of the parameter begins one shard late, wrapping."""

    def edit(plan):
        for role in plan.roles:
            held = [i for i in role.inputs if i.name == weight]
            if held:
                base, replica, batch = held[-1].starts[0]
                held[-1].starts[0] = (base + replica * (plan.replicas - 1), -replica, batch)

    return edit


def optimizer():
    for config, short in ((dict(MLP, zero=1), "w1.weight"),
                          (dict(LLAMA, zero=1), "attention.wq.weight")):  # fmt: skip
        for layer in LAYERS:
            weight = f"layers.{layer}.{short}"
            own = f"{weight}.adamw."
            late = {own + "decay", own + "update", weight + ".param.gather"}
            yield Mutation(14, "shard-offset", config, shard_offset(weight), late, layer,
                           phase="opt")  # fmt: skip
            for name, label, change in (
                    ("unreduced", weight + ".grad.dp", unreduced_shard),
                    ("old-parameter", weight + ".param.gather", gather_old),
                    ("bias-correction", own + "v.hat", rescale(1.5)),
                    ("beta", own + "m.keep", set_attr("factor", 0.95)),
                    ("eps", own + "eps", set_attr("value", 1e-2)),
                    ("decay", own + "decay", set_attr("factor", 1.0)),
                    ("operands", own + "quotient", swap_inputs)):  # fmt: skip
                names = near_label(label) if name == "unreduced" else {label}
                yield Mutation(14, name, config, on(label, ALL, change), names, layer, phase="opt")
                if name in ("bias-correction", "beta"):
                    yield Mutation(14, name, config, on(label, ONE, change), names, layer, ONE,
                                   "opt")  # fmt: skip
            states = {own + k for k in ("m.keep", "v.keep", "m", "v")}
            yield Mutation(14, "states-swapped", config,
                           lambda plan, weight=weight: swap_states(plan, weight), states, layer,
                           phase="opt")  # fmt: skip
    zero3 = dict(LLAMA, zero=3, cp=2, pp=1, seq=8, head_dim=12)
    for layer in LAYERS:
        label = f"layers.{layer}.attention.wo.weight.grad.dp"
        yield Mutation(14, "scatter-order", zero3, on(label, ALL, reverse_group),
                       near_label(label), layer, phase="opt")  # fmt: skip


# ---- 15: order of events ----------------------------------------------------------------------


def make_async(label):
    """The collective returns at once; its result may be read after the wait."""

    def edit(plan):
        for site in sites(plan, label):
            value = site.op.outputs[0]
            site.op.attrs["async"] = 1
            new = site.insert(1, "wait", [value], value, "wait", label=label + ".wait")
            maker = next(op for op in site.ops if new in op.outputs)
            for ops in site.role.segments.values():
                for op in ops:
                    if op is not maker:
                        op.inputs = [new if v is value else v for v in op.inputs]
            for output in site.role.outputs:
                if output.value is value:
                    output.value = new

    return edit


def missing_wait(label, ranks):
    def edit(plan):
        make_async(label)(plan)
        for site in sites(plan, label + ".wait", ranks):
            site.remove()

    return edit


def swap_collectives(first, second, later):
    """One rank calls two collectives of a group in the other order: the first behind the second
    (`later`), or the second before the first, where nobody reads it in between."""

    def edit(plan):
        a, b = sites(plan, first, ONE)[0], sites(plan, second, ONE)[0]
        ops, i, j = a.ops, a.index, b.index
        ops.insert(*((j, ops.pop(i)) if later else (i, ops.pop(j))))

    return edit


def circle(plan):
    """The first stage waits for a backward that needs a later forward."""
    for role in plan.roles:
        turns = []
        for batch in range(plan.microbatches):
            turns += [("fw", batch), ("bw", batch)]
        if role.coordinates["pp"] == 0:
            role.schedule = turns + [("step", None)]
        else:
            role.schedule = ([("fw", k) for k in range(plan.microbatches)] +
                             [("bw", k) for k in range(plan.microbatches)] + [("step", None)])


def events():
    for config, short in ((MLP, "w2.reduce"), (LLAMA, "attention.wo.reduce")):
        for layer, ranks in each_place():
            label = f"layers.{layer}.{short}"
            yield Mutation(15, "missing-wait", config, missing_wait(label, ranks),
                           near_label(label), layer, ranks, numbers=False)  # fmt: skip
        for layer in LAYERS:
            label = f"layers.{layer}." + ("in" if config is MLP else "attention.qkv") + ".bw.reduce"
            yield Mutation(15, "missing-wait", config, missing_wait(label, ALL),
                           near_label(label), layer, phase="bw", numbers=False)  # fmt: skip
        talk = {"pipeline.send.fw.0", "pipeline.recv.fw.1", "pipeline.send.bw.1",
                "pipeline.recv.bw.0"}  # fmt: skip
        yield Mutation(15, "circle", config, circle, talk, "stage")
    pair = ("loss.sum.reduce", "loss.right.reduce")
    chain = lambda plan: around(plan, pair[0]) | around(plan, pair[1])  # noqa: E731
    yield Mutation(15, "order-of-collectives", LLAMA, swap_collectives(*pair, True), chain, "head",
                   ONE)  # fmt: skip
    for layer in LAYERS:
        pair = (f"layers.{layer}.attention_norm.weight.grad.tp",
                f"layers.{layer}.ffn_norm.weight.grad.tp")
        yield Mutation(15, "order-of-collectives", SEQUENCE, swap_collectives(*pair, False),
                       lambda plan, pair=pair: around(plan, pair[0]) | around(plan, pair[1]),
                       layer, ONE, "opt")  # fmt: skip


CLASSES = (missing_forward, swapped_kind, missing_backward, wrong_group, wrong_order, pipeline,
           constants, gradients, accumulation, scaling, unreduced, layout, indices, optimizer,
           events)  # fmt: skip


def mutations():
    for make in CLASSES:
        yield from make()
