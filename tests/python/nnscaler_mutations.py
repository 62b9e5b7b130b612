"""The fourteen mistakes that TrainVerify's authors injected into an nnScaler plan of Llama (dp2 pp2
tp2, two micro-batches, two layers; SOSP'25, section 6), and some that their verifier does not see,
as edits of the `.plan` text of that plan and of one of a mixture of experts. Operators have
nnScaler's names and cell numbers as labels."""

from mutation_bases import Mutation, near_label, on, set_attr, to_identity
from plan_edits import ALL, ONE, add_group, readers, sites

MODEL = {"model": "nnscaler"}


def first_op(plan, stage, wanted, tp=0):
    """The first operator of a stage for which wanted(op)."""
    for role in plan.roles:
        if role.coordinates["pp"] == stage and role.coordinates["tp"] == tp:
            return next(op for op in role.ops() if wanted(op))
    raise LookupError("no such operator")


def labelled(prefix, phase=""):
    return lambda op: op.label.startswith(prefix) and op.phase.startswith(phase)


def remove_op(site):
    """Its readers read a value that nothing writes."""
    site.ops.remove(site.op)


def to_gather(site):
    site.turn_into("all_gather", attrs={"dim": 0}, group=site.op.group)


def to_reduce(site):
    site.turn_into("all_reduce", attrs={"op": "sum"}, group=site.op.group)


def cross(label):
    """Both ends of the sends of one cell are crossed between the tensor-parallel ranks."""

    def edit(plan):
        for site in sites(plan, label):
            site.op.attrs["peer"] ^= 1

    return edit


def divide_by(value):
    return lambda site: site.op.attrs.update(divisor=value, factor=1 / value)


def duplicate_first(site):
    site.op.inputs.append(site.op.inputs[0])


def drop_turn(segment, batch):
    return lambda plan: plan.roles[0].schedule.remove((segment, batch))


def early_reducer(plan):
    for role in plan.roles[:2]:
        turns = role.schedule
        reducer = next(turn for turn in turns if turn[0].startswith("reducer"))
        last = max(k for k, turn in enumerate(turns) if turn[0].startswith("segment"))
        turns.remove(reducer)
        turns.insert(last, reducer)


def alone(site):
    members = [{axis: site.role.coordinates[axis] for axis in site.plan.device_axes()}]
    site.op.group = add_group(site.plan, site.op.group, f"self{site.tp}", members)


def reducers_alone(plan):
    for label in sorted({op.label for op in plan.ops() if op.label.startswith("IRWeightReducer")}):
        for site in sites(plan, label):
            alone(site)


def other_weight(plan):
    """wq <- wk on one rank."""
    site = sites(plan, "linear12", ONE)[0]
    name = "layers.0.attention.wk.weight"
    site.op.inputs[1] = next(item.value for item in site.role.inputs if item.name == name)


def weight_names(plan):
    """Who carries weight gradients out."""
    return {op.label or op.name for op in plan.ops() if op.name == "accumulate"
            or op.label.startswith("IRWeightReducer")} | {"accumulate"}  # fmt: skip


def nnscaler_mutations(plan):
    reduce = first_op(plan, 0, labelled("AllReduceIdentityPrim", "fw")).label
    back = first_op(plan, 1, labelled("IdentityAllreducePrim", "bw")).label
    gather = first_op(plan, 1, lambda op: op.name == "all_gather" and op.attrs["dim"] == 2).label
    move = "MovePrim" + gather.removeprefix("AllGatherPrim")
    sum2 = first_op(plan, 1, labelled("BW.multiref")).label
    rotary = first_op(plan, 1, labelled("BW.apply_rotary_emb")).label.split("#")[0]
    turns = plan.roles[0].schedule
    backward = [turn for turn in turns if turn[0].startswith("segment")][-1]

    def case(name, edit, names, ranks=ALL, phase="fw"):
        return Mutation(16, name, MODEL, edit, names, None, ranks, phase)

    def rotaries(plan):
        for op in plan.roles[2].ops():
            if op.label.split("#")[0] == rotary:
                op.inputs[0], op.inputs[1] = op.inputs[1], op.inputs[0]

    yield case("TV1-reduce-to-identity", on(reduce, ALL, to_identity), near_label(reduce))
    yield case("TV2-reduce-dropped", on(reduce, ALL, remove_op), near_label(reduce))
    yield case("TV3-reduce-to-gather", on(reduce, ALL, to_gather), near_label(reduce))
    yield case("TV4-gather-to-reduce", on(gather, ALL, to_reduce), near_label(gather))
    yield case("TV5-backward-reduce-to-identity", on(back, ALL, to_identity), near_label(back),
               phase="bw")  # fmt: skip
    yield case("TV6-moves-crossed", cross(move), lambda plan: {move} | readers(plan, move))
    yield case("TV7-constant-one-rank", on("add6", ONE, set_attr("value", 2.0)), {"add6"}, ONE)
    yield case("TV8-power-one-rank", on("pow36", ONE, set_attr("exponent", 1.0)), {"pow36"}, ONE)
    yield case("TV9-constant", on("add6", ALL, set_attr("value", 2.0)), {"add6"})
    yield case("TV10-gradient-twice", on(sum2, ONE, duplicate_first), {sum2}, ONE, "bw")
    yield case("TV11-gradients-swapped", rotaries, {rotary, rotary + "#0", rotary + "#1"}, ONE,
               "bw")  # fmt: skip
    for name, ranks in (("TV12-scale-one-rank", ONE), ("TV13-scale", ALL)):
        yield case(name, on("div24", ranks, divide_by(4.0)), {"div24"}, ranks)
    yield case("TV14-last-backward-missing", drop_turn(*backward), lambda plan: weight_names(plan)
               | {op.label for op in plan.roles[0].segments[backward[0]] if op.group}, ONE, "bw")
    yield case("group-of-self", on(reduce, ALL, alone), near_label(reduce))
    yield case("reducers-lack-replicas", reducers_alone, weight_names, phase="bw")
    yield case("reducer-too-early", early_reducer, weight_names, phase="bw")
    yield case("transpose-dropped", on("transpose22", ALL, to_identity), {"transpose22"})
    yield case("transpose-added", on("contiguous31", ALL, lambda s: s.turn_into(
        "permute", attrs={"dims": [1, 0, 2, 3]})), {"contiguous31"})  # fmt: skip
    yield case("other-weight", other_weight, {"linear12"}, ONE)


def expert_mutations(plan):
    """Gradients of the router and of the experts' input are not added up over the experts."""
    for name, operand in (("router-gradient", 2), ("expert-input-gradient", 0)):
        role = plan.roles[2]
        made = {op.outputs[0] for op in role.ops() if op.name == "nnscaler_moe_gmm.backward"
                and op.attrs["wrt"] == operand}  # fmt: skip
        label = next(op.label for op in role.ops() if op.group and op.inputs[0] in made)
        yield Mutation(16, name, MODEL, on(label, ALL, to_identity), near_label(label), phase="bw")
