"""What the mistakes of plan_mutations.py and plan_step_mutations.py are made of: the healthy plans
that they begin from, and changes of one operator."""

import dataclasses

from plan_edits import ALL, ONE, add_group, around, sites

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
        place = "" if self.layer is None else f"-{self.layer}"
        return f"{self.number:02d}-{self.config['model']}-{self.name}{place}-{self.ranks}"


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


def to_identity(site):
    site.turn_into("identity")


def set_attr(key, value):
    return lambda site: site.op.attrs.__setitem__(key, value)


def swap_inputs(site):
    site.op.inputs.reverse()


def rescale(factor):
    def change(site):
        site.op.attrs["factor"] *= factor

    return change


def own_tuple(site):
    return {axis: site.role.coordinates[axis] for axis in site.plan.device_axes()}


def reverse_group(site):
    members = list(reversed(site.plan.groups[site.op.group].members))
    site.op.group = add_group(site.plan, site.op.group, "reversed", members)
