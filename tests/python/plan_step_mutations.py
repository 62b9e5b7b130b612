"""Mistakes in what happens to gradients and in the order of events: accumulation, scale, optimizer,
waits (classes 9, 10, 14 and 15 of plan_mutations.py)."""

from mutation_bases import (CONTEXT, LAYERS, LLAMA, MLP, MOE, SEQUENCE, Mutation, each_place,
                            near_label, on, rescale, reverse_group, set_attr, swap_inputs,
                            to_identity)  # fmt: skip
from plan_edits import ALL, ONE, around, sites
from plan_objects import Op

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


# ---- 14: the optimizer


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


def one_buffer(first, second):
    """The second collective begins before the first one's result, in the same memory, is read."""

    def edit(plan):
        for label in (second, first):
            make_async(label)(plan)
        for a, b in zip(sites(plan, first), sites(plan, second)):
            a.op.attrs["buffer"] = b.op.attrs["buffer"] = "grads"
            a.ops.remove(b.op)
            a.ops.insert(a.index + 1, b.op)

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
        for layer in LAYERS:
            weights = ("w1", "w2") if config is MLP else ("attention.wq", "attention.wk")
            pair = [f"layers.{layer}.{weight}.weight.grad.dp" for weight in weights]
            yield Mutation(15, "one-buffer", config, one_buffer(*pair), {*pair, pair[0] + ".wait"},
                           layer, phase="opt", numbers=False)  # fmt: skip
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
