"""An independent look at nnScaler plans, for tests: an unpickler that makes inert objects, and what
it counts in them. Written from the pickles, not from the C reader."""

import collections
import pickle
import threading

CONTAINERS = {
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("collections", "OrderedDict"): dict,
}
INSERTED = {"multiref", "identity"}
FUSED = {
    "AllReduceIdentityPrim": ("all_reduce", None),
    "IdentityAllreducePrim": (None, "all_reduce"),
    "AllGatherSplitPrim": ("all_gather", "slice"),
    "SplitAllGatherPrim": ("slice", "all_gather"),
    "AllToAllAllToAllPrim": ("all_to_all", "all_to_all"),
}
PLAIN = {"AllReducePrim": "all_reduce", "AllGatherPrim": "all_gather", "ChunkPrim": "slice",
         "BroadcastPrim": "broadcast"}  # fmt: skip


class Inert:
    """Stands for an object of any class; remembers its arguments and state."""

    def __init__(self, *arguments, **keywords):
        self.arguments = arguments

    def __setstate__(self, state):
        parts = state if isinstance(state, tuple) else (state,)
        for part in parts:
            if isinstance(part, dict):
                self.__dict__.update(part)

    def append(self, item):
        pass

    def extend(self, items):
        pass

    def __setitem__(self, key, value):
        pass

    def __call__(self, *arguments):
        return Inert(*arguments)


class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        if (module, name) in CONTAINERS:
            return CONTAINERS[module, name]
        return type(name, (Inert,), {})


def load(stream):
    """The root object. Real plans are nested more deeply than the usual stack."""
    found = []
    thread = threading.Thread(target=lambda: found.append(Unpickler(stream).load()))
    old = threading.stack_size(512 << 20)
    thread.start()
    thread.join()
    threading.stack_size(old)
    return found[0]


def kind(obj):
    return type(obj).__name__


def is_tensor(obj):
    return kind(obj) == "IRSubTensor"


def integer(obj):
    return obj if isinstance(obj, int) else int.from_bytes(obj.arguments[1], "little", signed=True)


def bounds(tensor):
    return [(integer(a), integer(b)) for a, b in tensor._indmap._indices]


def logical_id(op):
    """The number of the operator before it was partitioned (see tocsin's nnscaler_attributes.c)."""
    for tensor in filter(is_tensor, op._inputs):
        cell = tensor._full_tensor._cell
        if kind(cell) == "IRDimops" and cell.name == op.name:
            if cell._outputs[0]._full_tensor._id == op._outputs[0]._full_tensor._id:
                return cell._id
    return op._id


def inner(cell):
    return cell._cell if kind(cell) == "ExeReuseCell" else cell


def nodes_of(cell):
    return cell._nodes if kind(cell) == "IRSegment" else [cell]


def collectives(adapter):
    """What an adapter does, by the names of Tocsin's operators."""
    for prim in adapter._prims:
        if kind(prim) in FUSED:
            name = FUSED[kind(prim)][0 if adapter._forward else 1]
            moved = adapter._inputs[0]._id != adapter._outputs[0]._id
            if name or moved:
                yield name or "identity"
        elif kind(prim) == "MovePrim":
            yield "send" if prim._inputs else "recv"
        else:
            yield PLAIN[kind(prim)]


class Device:
    """What one device of the plan must show."""

    def __init__(self, sequence):
        self.labels = collections.Counter()
        self.communication = collections.Counter()
        self.gradients, self.turns = {}, []
        used, seen = collections.Counter(), set()
        for cell in map(inner, sequence):
            batch = used[cell._id]
            used[cell._id] += 1
            if kind(cell) == "IRDataOperation":
                continue
            does_something = any(
                kind(n) != "IRAdapter" or list(collectives(n)) for n in nodes_of(cell)
            )
            if does_something:
                self.turns.append((cell._id, -1 if kind(cell) == "IRWeightReducer" else batch))
            if cell._id not in seen:
                seen.add(cell._id)
                for node in nodes_of(cell):
                    self.take(node)

    def take(self, node):
        if kind(node) == "IRAdapter":
            self.communication.update(collectives(node))
        elif kind(node) == "IRWeightReducer":
            self.communication["reducer"] += sum(t._grad is not None for t in node._inputs)
        elif kind(node) == "IRBpOperation":
            op = node._mirror
            if op.name not in INSERTED:
                self.labels[f"BW.{op.name}{logical_id(op)}"] = len(node._outputs)
        else:
            if node.name not in INSERTED:
                self.labels[f"{node.name}{logical_id(node)}"] = 1
            for t in filter(is_tensor, node._inputs):
                if t._full_tensor._is_attr and not t._full_tensor._is_grad and t._grad is not None:
                    self.gradients[t._id] = (t._full_tensor.name, bounds(t))


def devices(root):
    return [Device(root.execplan._seq[d]) for d in range(len(root.devices))]
