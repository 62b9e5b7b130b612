"""Fifteen classes of mistakes in parallel plans, as edits of healthy plans.

Each mutation knows which operators count as named exactly: the wrong one, or for a collective that
is missing also the producer and the first readers of the value that is then wrong. Every one is
checked against numbers (test_plan_mutations.py): an edit that changes no output is no mistake.
"""

from mutation_bases import (CONTEXT, EQUAL_HEADS, LAYERS, LLAMA, MLP, MOE, SEQUENCE, SQUARE,
                            Mutation, each_place, near_label, on, own_tuple, reverse_group,
                            set_attr, to_identity)  # fmt: skip
from plan_edits import ALL, ONE, add_group, around, readers, sites, split_replicas
from plan_step_mutations import accumulation, events, optimizer, scaling

# ---- 1, 2, 3: collectives missing or of another kind ------------------------------------------


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


def crossed_names(send, receive, phase):
    """Also the first gather behind the receive: only there the shards' order matters."""

    def names(plan):
        role = next(role for role in plan.roles if any(op.label == receive for op in role.ops()))
        ops = role.segments[phase]
        gather = next(op.label for op in ops if op.name == "all_gather")
        return pair_names(send, receive)(plan) | {gather}

    return names


def pipeline():
    for config in (dict(MLP, sp=True), SEQUENCE):
        for kind, phase in (("fw", "fw"), ("bw", "bw")):
            first = "pipeline.send.fw.0" if kind == "fw" else "pipeline.send.bw.1"
            second = "pipeline.recv.fw.1" if kind == "fw" else "pipeline.recv.bw.0"

            def crossed(plan, first=first, second=second):
                for label in (first, second):
                    for site in sites(plan, label):
                        cross_peers(site)

            yield Mutation(6, "crossed", config, crossed, crossed_names(first, second, phase),
                           "boundary", phase=phase)  # fmt: skip
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


CLASSES = (missing_forward, swapped_kind, missing_backward, wrong_group, wrong_order, pipeline,
           constants, gradients, accumulation, scaling, unreduced, layout, indices, optimizer,
           events)  # fmt: skip


def mutations():
    for make in CLASSES:
        yield from make()
