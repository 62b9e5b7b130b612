"""The faults of bench/align.py: what is put in where, and which boundary has to be named."""

import dataclasses

# configuration -> (way of align_models.train, ranks, mode of recording)
CONFIGURATIONS = {
    "eager": ("plain", 1, "full"),
    "online": ("plain", 1, "online"),
    "ddp2": ("ddp", 2, "full"),
    "ddp3": ("ddp", 3, "full"),
    "ddp4": ("ddp", 4, "trusted"),
    "fsdp2": ("fsdp", 2, "trusted"),
    "compiled": ("eager", 1, "full"),
    "aot": ("aot_eager", 1, "full"),
}

# What each model has: a parameter with a leading axis, one without weights' shape, the module that
# is inside, the first dropout after the start, and what is cut by FSDP2.
PARTS = {
    "cnn": {"weight": "conv.weight", "other": "head.weight", "module": "norm", "inner": "head",
            "drop": "drop"},
    "gpt": {"weight": "blocks.1.up.weight", "other": "embed.weight", "module": "blocks.0",
            "inner": "blocks.1.qkv", "drop": "blocks.0.drop"},
    "moe": {"weight": "experts.2.up.weight", "other": "router.weight", "module": "router",
            "inner": "experts.1", "drop": "drop"},
    "rnn": {"weight": "cell.weight_hh", "other": "head.weight", "module": "drop",
            "inner": "head", "drop": "drop"},
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Case:
    model: str
    configuration: str
    kind: str
    fault: tuple  # (name, value) of TOCSIN_INJECT
    boundary: tuple  # (step, fqn, role) that has to be named, of the rank with the fault
    near: tuple = ()  # (fqn, role) of boundaries that count as one away
    everywhere: bool = False  # all ranks see it at once

    @property
    def name(self):
        return f"{self.model}/{self.configuration}/{self.kind}"


def _activation(part, pattern, step=2, **more):
    return lambda parts: (
        dict(place="activation", name=parts.get(part, ""), step=step, pattern=pattern, **more),
        (parts.get(part, ""), "output"), ())  # fmt: skip


def _gradient(part, pattern, step=2, **more):
    return lambda parts: (
        dict(place="gradient", name=parts[part], step=step, pattern=pattern, **more),
        (parts[part], "grad"), ())  # fmt: skip


def _weight(part, pattern, step=2):
    return lambda parts: (
        dict(place="weight", name=parts[part], step=step, pattern=pattern, late=1),
        (parts[part], "data"), ())  # fmt: skip


def _stored_weight(part, pattern, step=2):
    """Before the step: its owner's output is the first thing that is read of it."""
    return lambda parts: (
        dict(place="weight", name=parts[part], step=step, pattern=pattern),
        (parts[part], "data"),
        ((parts[part].rpartition(".")[0], "output"),))  # fmt: skip


def _state(part, pattern, step=2):
    """Optimizer state is not read each step: what it makes of the weight is."""
    return lambda parts: (
        dict(place="optimizer", name=parts[part] + "#exp_avg", step=step, pattern=pattern),
        (parts[part] + "#exp_avg", "data"), ((parts[part], "data"),))  # fmt: skip


def _batch(pattern, step=2, **more):
    return lambda parts: (dict(place="batch", step=step, pattern=pattern, **more),
                          ("loader0", "samples"), ())  # fmt: skip


def _seed(step=2):
    return lambda parts: (dict(place="generator", step=step), (parts["drop"], "output"), ())


BIT = {"bit": 21}
EVERY = {  # kind -> what makes it, of a single process
    "bit_activation": _activation("inner", "bit", **BIT),
    "bit_gradient": _gradient("weight", "bit", **BIT),
    "warp_gradient": _gradient("other", "warp", **BIT),
    "rows_gradient": _gradient("weight", "rows"),
    "rows_activation": _activation("module", "rows", step=3),
    "sign_weight": _weight("weight", "sign"),
    "constant_activation": _activation("module", "scale"),
    "stuck_gradient": _gradient("other", "stuck", persistent=1),
    "reorder_gradient": _gradient("weight", "reorder"),
    "dtype_activation": _activation("inner", "rounded", step=3),
    "seed": _seed(),
    "preprocessing": _batch("rescale"),
    "tile_activation": _activation("", "tile", **BIT),
    "nan_gradient": _gradient("weight", "nan", step=3),
}
ONLINE = {
    "bit_gradient": EVERY["bit_gradient"],
    "rows_weight": _weight("weight", "rows"),
    "warp_weight": _weight("other", "warp", step=3),
    "optimizer_state": _state("weight", "bit"),
    "preprocessing": _batch("roll"),
}
RANKS = {  # on the last rank alone
    "bit_activation": EVERY["bit_activation"],
    "bit_gradient_averaged": _gradient("weight", "bit", late=1, **BIT),
    "bit_gradient": EVERY["bit_gradient"],
    "rows_gradient": EVERY["rows_gradient"],
    "warp_activation": _activation("", "warp", **BIT),
    "constant_weight": _weight("other", "scale"),
    "preprocessing": _batch("roll"),
    "seed": _seed(),
}
SHARDED = {
    "bit_activation": EVERY["bit_activation"],
    "bit_gradient": _gradient("weight", "bit", late=1, **BIT),
    "rows_gradient": _gradient("weight", "rows", late=1),
    "sign_weight": _weight("other", "sign"),
    "dtype_activation": _activation("", "rounded"),
    "preprocessing": _batch("roll"),
}
COMPILED = {  # inside, only parameters are seen
    "bit_activation": _activation("", "bit", **BIT),
    "bit_gradient": EVERY["bit_gradient"],
    "rows_gradient": EVERY["rows_gradient"],
    "sign_weight": _weight("other", "sign"),
    "reorder_activation": _activation("", "reorder", step=3),
}
KINDS = {"eager": EVERY, "online": ONLINE, "ddp2": RANKS, "ddp3": RANKS, "ddp4": RANKS,
         "fsdp2": SHARDED, "compiled": COMPILED, "aot": COMPILED}  # fmt: skip
USED = {  # the numbers of ranks are shared out
    "cnn": ("eager", "online", "ddp2", "fsdp2", "compiled", "aot"),
    "gpt": ("eager", "online", "ddp3", "fsdp2", "compiled", "aot"),
    "moe": ("eager", "online", "ddp2", "fsdp2", "compiled"),
    "rnn": ("eager", "online", "ddp4", "fsdp2", "compiled", "aot"),
}


def cases():
    """All of them; the seed of a fault is its number."""
    found = []
    for model, configurations in USED.items():
        for configuration in configurations:
            ranks = CONFIGURATIONS[configuration][1]
            for kind, make in KINDS[configuration].items():
                fault, boundary, near = make(PARTS[model])
                if model == "gpt" and fault.get("pattern") == "rescale":
                    fault["pattern"] = "roll"  # of tokens
                fault["seed"] = len(found)
                if ranks > 1:
                    fault["rank"] = ranks - 1
                everywhere = False
                if configuration.startswith("ddp") and fault["place"] == "gradient":
                    local = not fault.get("late")
                    if CONFIGURATIONS[configuration][2] == "full":  # reads both
                        boundary = (boundary[0], "grad_local" if local else "grad_reduced")
                    else:
                        everywhere = local
                found.append(Case(model, configuration, kind, tuple(fault.items()),
                                  (fault["step"], *boundary), near, everywhere))  # fmt: skip
    return found
