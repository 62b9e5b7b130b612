"""Small execution plans of the form that nnScaler pickles, without nnScaler: a gated MLP, forward
and backward, on dp x pp x tp ranks with micro-batches.

    u = linear(x, w1)   a, c = multiref(u)   y = linear(silu(a) * c, w2)   z = div(add(y, 0.5), 4)
    loss = sum(transpose(view(z * w3)))

With tp the hidden dim of w1 and w2 is sharded, and y is reduced; with pp what follows y is the
second stage. Run as a program, it writes a plan: nnscaler_writer.py FILE dp pp tp nm [protocol]."""

import io
import pickle
import sys

BATCH, WIDTH, HIDDEN, HEADS = 48, 8, 12, 2
CLASSES = {
    "nnscaler.ir.tensor": ("IRFullTensor", "IRSubTensor", "IndexMap", "ValueMap"),
    "nnscaler.ir.operator": ("IRBpOperation", "IRDataOperation"),
    "nnscaler.ir.cten": ("IRObject",),
    "nnscaler.graph.function.dimops": ("IRDimops", "OpAnno", "ShapeAnno", "DimAnno", "ReduceType"),
    "nnscaler.graph.segment": ("IRSegment",),
    "nnscaler.ir.adapter.adapter": ("IRAdapter", "IRWeightReducer"),
    "nnscaler.ir.adapter.prim": (
        "MovePrim", "AllReduceIdentityPrim", "IdentityAllreducePrim", "ChunkPrim", "AllGatherPrim"
    ),
    "nnscaler.execplan.execplan": ("ExecutionPlan", "ExeReuseCell"),
    "nnscaler.codegen.module.module": ("ModuleCodeGen",),
}  # fmt: skip
TYPES = {
    name: type(name, (), {"__module__": module})
    for module, names in CLASSES.items()
    for name in names
}


class Name:
    """A global that is pickled by its name alone, such as torch.float32 or os.system."""

    def __init__(self, module, name):
        self.__module__, self.name = module, name

    def __reduce__(self):
        return self.name

    def __call__(self, *arguments):
        raise AssertionError("only a pickle calls this")


class Call:
    """What a pickle would call when it is loaded."""

    def __init__(self, function, *arguments):
        self.parts = function, arguments

    def __reduce__(self):
        return self.parts


class Pickler(pickle._Pickler):
    """Writes names of classes without looking for the classes."""

    def save_global(self, obj, name=None):
        module, name = obj.__module__, name or obj.__name__
        if self.proto >= 4:
            self.save(module)
            self.save(name)
            self.write(pickle.STACK_GLOBAL)
        else:
            self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())
        self.memoize(obj)

    dispatch = dict(pickle._Pickler.dispatch)
    dispatch[type] = save_global

    def reducer_override(self, obj):
        if isinstance(obj, Name):
            return obj.name
        return NotImplemented


def dumps(obj, protocol=4):
    stream = io.BytesIO()
    Pickler(stream, protocol).dump(obj)
    return stream.getvalue()


def make(kind, **attributes):
    obj = TYPES[kind]()
    obj.__dict__.update(attributes)
    return obj


def annotation(text):
    """nnScaler's parsed form of "a k+, n k+ -> a n"."""

    def operand(part):
        dims = []
        for word in part.replace("(", " ( ").replace(")", " ) ").split():
            if word == "(":
                dims.append([])
            elif word != ")":
                group = dims and isinstance(dims[-1], list)
                (dims[-1] if group else dims).append(word)
            else:
                dims[-1] = tuple(dims[-1])
        dims = [d if isinstance(d, tuple) else (d,) for d in dims]
        return make("ShapeAnno", _dims=tuple(
            make("DimAnno", _identifiers=tuple(w.rstrip("+^") for w in d),
                 _reduces=tuple("+" if w[-1] == "+" else "^" if w[-1] == "^" else "" for w in d))
            for d in dims))  # fmt: skip

    inputs, outputs = text.split("->")
    return make(
        "OpAnno",
        _inputs=tuple(operand(p) for p in inputs.split(",")),
        _outputs=tuple(operand(p) for p in outputs.split(",")),
        _identifiers={},
    )


class Builder:
    def __init__(self, dp, pp, tp, nm):
        self.dp, self.pp, self.tp, self.nm = dp, pp, tp, nm
        self.batch = BATCH // (dp * nm)
        self.ids = iter(range(1000, 100000))
        self.full = {}
        self.sub = {}
        self.dtype = Name("torch", "float32")

    def tensor(self, name, shape, cut=None, part=0, copy=0, weight=False, loss=False):
        """The slice of the full tensor `name` (a gradient: "g" + name) that tp rank `part` has of
        its dim `cut`; `copy` numbers tensors that are different though they are the same slice."""
        key = (name, part if cut is not None else 0, copy)
        if key in self.sub:
            return self.sub[key]
        gradient = name.startswith("g")
        if name not in self.full:
            self.full[name] = make(
                "IRFullTensor", _id=next(self.ids), name=name, _shape=tuple(shape), _is_attr=weight,
                _is_grad=gradient, _is_loss=loss, _cell=None)  # fmt: skip
        slices = [(0, n) for n in shape]
        if cut is not None:
            size = shape[cut] // self.tp
            slices[cut] = (part * size, (part + 1) * size)
        tensor = make(
            "IRSubTensor", _id=next(self.ids), name=name, _full_tensor=self.full[name],
            _indmap=make("IndexMap", _indices=tuple(slices)),
            _valmap=make("ValueMap", _weight=(0, 1)),
            _dtype=self.dtype, _grad=None)  # fmt: skip
        self.sub[key] = tensor
        if not gradient and name != "x":
            tensor._grad = self.tensor("g" + name, shape, cut, part, copy, weight, loss)
        return tensor

    def forward(self, name, ident, text, inputs, outputs, **arguments):
        return make(
            "IRDimops", _id=ident, name=name, signature="torch." + name, _anno=annotation(text),
            _inputs=inputs, _outputs=outputs, _kwargs=arguments, _mirror=None,
            _comment=f'File "model.py", line {ident}, in forward,  ...',
            _module_stack={"mlp": None, "mlp." + name: None})  # fmt: skip

    def backward(self, op):
        tensors = [t for t in op._inputs if isinstance(t, TYPES["IRSubTensor"]) and t._grad]
        return make(
            "IRBpOperation", _id=op._id + 500, name="backward", _mirror=op,
            _inputs=[o._grad for o in op._outputs],
            _outputs=[t._grad for t in tensors])  # fmt: skip

    def stage_one(self, part):
        """Forward operators of the first stage on one tp rank, and y before it is reduced."""
        b, hidden = self.batch, [self.batch, HIDDEN]
        x = self.tensor("x", [b, WIDTH])
        w1 = self.tensor("w1", [HIDDEN, WIDTH], 0, part, weight=True)
        w2 = self.tensor("w2", [WIDTH, HIDDEN], 1, part, weight=True)
        u, a, c, s, m = (self.tensor(n, hidden, 1, part) for n in ("u", "a", "c", "s", "m"))
        partial = self.tensor("y", [b, WIDTH], copy=part + 1 if self.tp > 1 else 0)
        ops = [
            self.forward("linear", 1, "a k+, n k+ -> a n", [x, w1], [u], bias=None),
            self.forward("multiref", 2, "a b -> a b, a b", [u], [a, c], times=2),
            self.forward("silu", 3, "a b -> a b", [a], [s], inplace=False),
            self.forward("mul", 4, "a b, a b -> a b", [s, c], [m]),
            self.forward("linear", 5, "a k+, n k+ -> a n", [m, w2], [partial], bias=None),
        ]
        return ops, partial

    def stage_two(self):
        b = self.batch
        y, e, z, r = (self.tensor(n, [b, WIDTH]) for n in ("y", "e", "z", "r"))
        w3 = self.tensor("w3", [WIDTH], weight=True)
        v = self.tensor("v", [b, HEADS, WIDTH // HEADS])
        t = self.tensor("t", [b, WIDTH // HEADS, HEADS])
        loss = self.tensor("loss", [1], loss=True)
        return [
            self.forward("add", 6, "a b, ? -> a b", [y, 0.5], [e], alpha=1),
            self.forward("div", 7, "a b, ? -> a b", [e, 4], [z], rounding_mode=None),
            self.forward("mul", 11, "a b, b -> a b", [z, w3], [r]),
            self.forward("view", 8, "a (2 b) -> a 2 b", [r], [v], size=(b, HEADS, WIDTH // HEADS)),
            self.forward("transpose", 9, "a b c -> a c b", [v], [t], dim0=1, dim1=-1),
            self.forward("sum", 10, "a+ b+ c+ -> 1", [t], [loss]),
        ]

    def reduce(self, ident, part, partial, forward):
        y = self.tensor("y", [self.batch, WIDTH])
        stage = list(range(self.tp))
        prim = make("AllReduceIdentityPrim", kwargs={"ranks": stage}, _inputs=[partial],
                    _outputs=[y])  # fmt: skip
        inputs, outputs = ([partial], [y]) if forward else ([y._grad], [partial._grad])
        return make("IRAdapter", _id=ident, _prims=[prim], _forward=forward, _differentiable=True,
                    _inputs=inputs, _outputs=outputs)  # fmt: skip

    def move(self, ident, tensor, source, target, device, forward):
        sends = device == source
        prim = make("MovePrim", kwargs={"src": source, "dst": target, "shape": (), "dtype": "x"},
                    _inputs=[tensor] if sends else [],
                    _outputs=[] if sends else [tensor])  # fmt: skip
        return make("IRAdapter", _id=ident, _prims=[prim], _forward=forward, _differentiable=False,
                    _inputs=prim._inputs, _outputs=prim._outputs)  # fmt: skip

    def cells(self, device):
        """(data, forward cells, backward cells) of a device, one micro-batch of each."""
        stage, part = divmod(device, self.tp)
        y = self.tensor("y", [self.batch, WIDTH])
        one, partial = self.stage_one(part)
        two = self.stage_two()
        data = make("IRDataOperation", _id=90, name="dataloader", _inputs=[],
                    _outputs=[self.tensor("x", [self.batch, WIDTH])])  # fmt: skip
        if partial is not y:
            partial._grad = self.tensor("gy", [self.batch, WIDTH], copy=part + 1)
        shared = [self.reduce(91, part, partial, True)] if self.tp > 1 else []
        back = [self.reduce(92, part, partial, False)] if self.tp > 1 else []
        first = (one + shared, back + [self.backward(op) for op in reversed(one)])
        second = (two, [self.backward(op) for op in reversed(two)])
        if self.pp == 1:
            first = (first[0] + second[0], second[1] + first[1])
        forward, backward = (first, second)[stage]
        cells = [make("IRSegment", _id=100 + stage, _nodes=forward)], [
            make("IRSegment", _id=110 + stage, _nodes=backward)
        ]
        if self.pp == 2:
            pair = part, self.tp + part
            ahead = self.move(120, y, *pair, device, True)
            home = self.move(121, y._grad, *pair[::-1], device, False)
            cells[0].insert(1 - stage, ahead)
            cells[1].insert(stage, home)
        return ([data] if stage == 0 else []), cells[0], cells[1]

    def sequence(self, device):
        """1F1B: the first stage runs ahead by one micro-batch."""
        data, forward, backward = self.cells(device)
        ahead = min(self.pp - device // self.tp, self.nm)
        order = list("F" * ahead)
        for _ in range(self.nm - ahead):
            order += ["B", "F"]
        order += "B" * ahead
        steps = [c for o in order for c in (data + forward if o == "F" else backward)]
        if self.nm > 1:
            steps = [make("ExeReuseCell", _id=next(self.ids), _cell=c, _inputs=[], _outputs=[])
                     for c in steps]  # fmt: skip
        one = [self.tensor(n, [], c, device % self.tp) for n, c in (("w1", 0), ("w2", 1))]
        two = [self.tensor("w3", [])]
        if self.dp > 1:
            weights = one + two if self.pp == 1 else (one, two)[device // self.tp]
            steps.append(make("IRWeightReducer", _id=130 + device, _device=(device,),
                              _inputs=weights))  # fmt: skip
        return steps

    def module(self):
        devices = self.pp * self.tp
        plan = make("ExecutionPlan", _seq={d: self.sequence(d) for d in range(devices)},
                    _outputs=[self.tensor("loss", [1], loss=True)])  # fmt: skip
        return make("ModuleCodeGen", execplan=plan, devices=tuple(range(devices)),
                    runtime_ndevs=devices * self.dp, enable_dp=self.dp > 1)  # fmt: skip


def build(dp=1, pp=1, tp=1, nm=1):
    return Builder(dp, pp, tp, nm).module()


if __name__ == "__main__":
    target, *world = sys.argv[1:]
    numbers = [int(n) for n in world]
    with open(target, "wb") as file:
        file.write(dumps(build(*numbers[:4]), *numbers[4:]))
