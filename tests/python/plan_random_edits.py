"""Random single edits of a plan, legal in form: most are mistakes, some change nothing."""

import random


def same_type(a, b):
    return a is not b and a.shape == b.shape and a.dtype == b.dtype


def swap_operands(choice, plan, role, segment, op):
    if len(op.inputs) < 2 or not same_type(op.inputs[0], op.inputs[-1]):
        return False
    op.inputs.reverse()
    return True


def read_another(choice, plan, role, segment, op):
    """Another value of the same type that is there already."""
    if not op.inputs:
        return False
    ops = role.segments[segment]
    place = choice.randrange(len(op.inputs))
    known = [item.value for item in role.inputs]
    known += [value for other in ops[: ops.index(op)] for value in other.outputs]
    if segment == "bw":
        known += [value for other in role.segments["fw"] for value in other.outputs]
    others = [value for value in known if same_type(value, op.inputs[place])]
    if others:
        op.inputs[place] = choice.choice(others)
    return bool(others)


def change_constant(choice, plan, role, segment, op):
    for key in ("factor", "value", "exponent"):
        if key in op.attrs:
            op.attrs[key] = 2.0 * op.attrs[key] + 1.0
            return True
    if op.name == "arange":
        op.attrs["start"] += 1
        op.attrs["end"] += 1
    return op.name == "arange"


def skip_operator(choice, plan, role, segment, op):
    like = [value for value in op.inputs if op.outputs and same_type(value, op.outputs[0])]
    if op.name in ("identity", "accumulate") or len(op.outputs) != 1 or not like:
        return False
    op.name, op.inputs, op.attrs, op.group, op.sig = "identity", [choice.choice(like)], {}, "", ""
    return True


def group_size(plan, group):
    every = any(member.get(plan.replica_axis) == "all" for member in group.members)
    return len(group.members) * (plan.replicas if every else 1)


def change_group(choice, plan, role, segment, op):
    if not op.group:
        return False
    own = role.coordinates
    size = group_size(plan, plan.groups[op.group])
    others = [group.name for group in plan.groups.values() if group.name != op.group
              and (op.name == "all_reduce" or group_size(plan, group) == size)
              and any(all(member.get(axis) == own[axis] for axis in own)
                      for member in group.members)]  # fmt: skip
    if others:
        op.group = choice.choice(others)
    return bool(others)


def change_reduction(choice, plan, role, segment, op):
    if op.attrs.get("op") not in ("sum", "avg"):
        return False
    op.attrs["op"] = "avg" if op.attrs["op"] == "sum" else "sum"
    return True


def swap_equal_dims(choice, plan, role, segment, op):
    shape = op.outputs[0].shape if op.outputs else ()
    pairs = [(a, b) for a in range(len(shape)) for b in range(a) if shape[a] == shape[b] > 1]
    if op.name != "permute" or not pairs:
        return False
    a, b = choice.choice(pairs)
    dims = op.attrs["dims"] = list(op.attrs["dims"])
    dims[a], dims[b] = dims[b], dims[a]
    return True


def shift_slice(choice, plan, role, segment, op):
    if op.name != "slice":
        return False
    attrs, size = op.attrs, op.inputs[0].shape[op.attrs["dim"]]
    length = attrs["end"] - attrs["start"]
    start = choice.randrange(size - length + 1)
    if start == attrs["start"]:
        return False
    attrs.update(start=start, end=start + length)
    return True


def shift_input(choice, plan, role, segment, op):
    item = choice.choice(role.inputs)
    dims = [d for d, start in enumerate(item.starts) if any(start)]
    if not dims:
        return False
    d = choice.choice(dims)
    base, replica, batch = item.starts[d]
    item.starts[d] = choice.choice([(0, replica, batch), (base, 0, batch), (base, replica, 0)])
    return item.starts[d] != (base, replica, batch)


EDITS = (swap_operands, read_another, change_constant, skip_operator, change_group,
         change_reduction, swap_equal_dims, shift_slice, shift_input)  # fmt: skip


def edit_plan(plan, seed):
    """Edit in place at one operator, in one role or in all roles alike; what was done."""
    choice = random.Random(seed)
    while True:
        role = choice.choice(plan.roles)
        segment = choice.choice(sorted(role.segments))
        label = choice.choice(role.segments[segment]).label
        change, again = choice.choice(EDITS), choice.random()
        roles = [role] if choice.random() < 0.4 else plan.roles
        done = []
        for each in roles:
            ops = [op for op in each.segments.get(segment, ()) if op.label == label]
            done += [change(random.Random(again), plan, each, segment, op) for op in ops[:1]]
        if any(done):
            return f"{change.__name__} at {label} in {len(roles)} roles"
