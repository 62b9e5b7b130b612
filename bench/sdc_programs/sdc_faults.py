"""The faults of bench/sdc.py: place x pattern x duration, for each of three models."""

import dataclasses

STEPS = 8
AUDIT_EVERY = 4
SAVE_STEP = 6  # no audit is due between a fault that begins in step 5 and this save
PATTERNS = ("bit", "warp", "tile", "rows", "sign", "stuck", "scale", "nan")
BYTE_PATTERNS = ("bit", "warp", "tile", "sign", "stuck")

# What each model has: a matrix, another tensor, a module inside, and what its optimizer keeps.
PARTS = {
    "cnn": {"matrix": "conv.weight", "other": "head.bias", "module": "conv",
            "state": "momentum_buffer"},
    "gpt": {"matrix": "blocks.1.up.weight", "other": "embed.weight", "module": "blocks.0.qkv",
            "state": "exp_avg_sq"},
    "moe": {"matrix": "experts.2.up.weight", "other": "router.weight", "module": "embed",
            "state": "exp_avg"},
}  # fmt: skip

# place -> (what tocsin.inject is told, of which part, durations). "device": whatever this rank
# computes there is wrong, also when it computes another rank's batch once more.
PLACES = {
    "weight": ({"place": "weight"}, "matrix", ("once", "persistent")),
    "weight, before the update": ({"place": "weight", "late": True}, "other", ("once",)),
    "optimizer state": ({"place": "optimizer"}, "state", ("once", "persistent")),
    "averaged gradient": ({"place": "gradient", "late": True}, "matrix", ("once", "persistent")),
    "gradient": ({"place": "gradient"}, "matrix", ("once", "device")),
    "activation": ({"place": "activation"}, "module", ("once", "device")),
    "output": ({"place": "activation"}, "", ("once", "device")),
    "all-reduce, given": ({"place": "collective", "name": "all_reduce"}, None,
                          ("once", "persistent")),
    "all-reduce, received": ({"place": "collective", "name": "all_reduce", "late": True}, None,
                             ("once", "persistent")),
    "staged tensor": ({"place": "checkpoint"}, "matrix", ("once",)),
    "staged bytes": ({"place": "checkpoint", "late": True}, None, ("once",)),
}  # fmt: skip
WEIGHTS = ("weight", "weight, before the update", "optimizer state")
COMPUTE = ("gradient", "activation", "output")
STAGED = ("staged tensor", "staged bytes")
FORKED = (*WEIGHTS, "averaged gradient", "all-reduce, received")  # one replica becomes another


@dataclasses.dataclass(frozen=True)
class Case:
    number: int  # seeds the fault
    model: str
    place: str
    pattern: str
    duration: str
    rank: int
    step: int
    gate: str

    @property
    def name(self):
        return f"{self.model}/{self.place}/{self.pattern}/{self.duration}"

    def arguments(self):
        """Of tocsin.inject."""
        arguments, part, _ = PLACES[self.place]
        arguments = dict(arguments)
        parts = PARTS[self.model]
        if part == "state":
            arguments["name"] = f"{parts['matrix']}#{parts['state']}"
        elif part is not None:
            arguments["name"] = parts.get(part, "")
        if self.duration == "device":
            arguments["calls"] = "all"
        return {**arguments, "step": self.step, "pattern": self.pattern, "rank": self.rank,
                "seed": self.number, "persistent": self.duration != "once"}  # fmt: skip


def cases(world, only=()):
    """All of them, or those in whose name one of `only` is."""
    found = []
    for model in PARTS:
        for place, (_, _, durations) in PLACES.items():
            for pattern in BYTE_PATTERNS if place == "staged bytes" else PATTERNS:
                for duration in durations:
                    found.append(_case(len(found), model, place, pattern, duration, world))
    return [case for case in found if not only or any(word in case.name for word in only)]


def _case(number, model, place, pattern, duration, world):
    staged = place in STAGED
    rank = 0 if staged else number * 7 % world  # rank 0 writes
    step = SAVE_STEP if staged else 2 + number * 5 % 4
    gate = "audit" if number // 2 % 2 else "vote"
    return Case(number, model, place, pattern, duration, rank, step, gate)
