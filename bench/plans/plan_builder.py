"""Builds one role of a plan: operators with labels and sources, tensor-, sequence- and context-
parallel boundaries, parameters, gradient synchronisation, optimizer, pipeline schedule.

One model text serves both sides: the logical model is the same calls in a world of size one, where
every boundary is the identity and emits nothing. So the operators that both sides share carry the
same labels, and whatever parallelism adds is visible as its own operators.
"""

import dataclasses
import math
import os
import sys

from plan_objects import Group, Input, Op, Output, Plan, Role, Value


@dataclasses.dataclass(frozen=True)
class Config:
    model: str = "llama"
    layers: int = 2
    hidden: int = 32
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 0  # 0: hidden / heads
    ffn: int = 64
    vocab: int = 64
    seq: int = 8
    batch: int = 2  # of one replica's micro-batch
    experts: int = 4
    top_k: int = 2
    dense_layers: int = 1  # of a MoE model: the first ones
    dp: int = 1
    cp: int = 1
    pp: int = 1
    tp: int = 1
    nm: int = 1
    sp: bool = False
    zero: int = 0  # 0, 1 (optimizer states) or 3 (parameters too)
    optimizer: str = "adamw"  # or sgd
    tied: bool = False  # embedding and head share their weight
    vocab_embedding: bool = False  # the embedding's rows over tp, as a one-hot contraction
    weight_gradient: str = "mm"  # or call: an operator with a signature of its own
    logical: bool = False

    def logical_side(self):
        return dataclasses.replace(
            self, batch=self.batch * self.dp * self.nm, dp=1, cp=1, pp=1, tp=1, nm=1, sp=False,
            zero=0, logical=True)  # fmt: skip

    @property
    def width(self):
        return self.head_dim or self.hidden // self.heads

    def stage_layers(self, stage):
        """The layers of a pipeline stage: contiguous, the first stages one more than the last."""
        least, more = divmod(self.layers, self.pp)
        first = stage * least + min(stage, more)
        return range(first, first + least + (stage < more))

STEP_FUNCTIONS = ("synchronise", "update", "step")


@dataclasses.dataclass
class Parameter:
    name: str
    value: Value  # what the role holds: the parameter, or under ZeRO-3 its shard
    shape: tuple  # of the tensor-parallel part
    starts: list
    spread: bool  # its gradient is a partial sum over tp (sequence-parallel regions)
    whole: dict = dataclasses.field(default_factory=dict)  # ZeRO-3: segment -> gathered
    gradient: Value = None


class Builder:
    def __init__(self, config, plan, coordinates):
        self.config, self.plan = config, plan
        self.role = Role(coordinates)
        self.stage = coordinates.get("pp", 0)
        self.tp_rank, self.cp_rank = coordinates.get("tp", 0), coordinates.get("cp", 0)
        self.parameters, self.inputs = {}, {}
        self.segment, self.ops, self.phase, self.fqn = "", None, "", ""
        self.names, self.labels = {}, {}

    # ---- operators ---------------------------------------------------------------------------

    def begin(self, segment, phase):
        self.segment, self.phase = segment, phase
        self.ops = self.role.segments.setdefault(segment, [])

    def at(self, fqn):
        self.fqn = fqn

    def unique(self, taken, text):
        count = taken[text] = taken.get(text, 0) + 1
        return text if count == 1 else f"{text}.{count}"

    def source(self):
        """FILE:LINE of the model's line that called; in the optimizer's step, of this file's."""
        frame = sys._getframe(2)
        while frame.f_code.co_filename == __file__ and frame.f_code.co_name not in STEP_FUNCTIONS:
            frame = frame.f_back
        return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"

    def emit(self, name, inputs, shapes, short, attrs=None, dtype="float32", group="", sig="",
             keep=False):  # fmt: skip
        label = self.unique(self.labels, f"{self.fqn}.{short}")
        outputs = [Value(self.unique(self.names, label), dtype, shape, keep) for shape in shapes]
        self.ops.append(Op(name, inputs, outputs, attrs, self.phase, self.fqn, self.source(),
                           label, group, sig))  # fmt: skip
        return outputs

    def op(self, name, inputs, shape, short, attrs=None, **more):
        return self.emit(name, inputs, [shape], short, attrs, **more)[0]

    def same(self, name, x, short, attrs=None, dtype=None):
        return self.op(name, [x], x.shape, short, attrs, dtype=dtype or x.dtype)

    def pair(self, name, x, y, short, dtype="float32"):
        count = max(len(x.shape), len(y.shape))
        left = (1,) * (count - len(x.shape)) + x.shape
        right = (1,) * (count - len(y.shape)) + y.shape
        return self.op(name, [x, y], [max(a, b) for a, b in zip(left, right)], short, dtype=dtype)

    def scale(self, x, factor, short):
        return self.same("scale", x, short, {"factor": float(factor)})

    def add_scalar(self, x, value, short):
        return self.same("add_scalar", x, short, {"value": float(value)})

    def view(self, x, shape, short):
        return self.op("view", [x], shape, short, {"shape": list(shape)}, dtype=x.dtype)

    def permute(self, x, dims, short):
        return self.op("permute", [x], [x.shape[d] for d in dims], short, {"dims": list(dims)})

    def slice(self, x, dim, start, end, short):
        shape = list(x.shape)
        shape[dim] = end - start
        attrs = {"dim": dim, "start": start, "end": end, "step": 1}
        return self.op("slice", [x], shape, short, attrs)

    def cat(self, values, dim, short):
        shape = list(values[0].shape)
        shape[dim] = sum(value.shape[dim] for value in values)
        return self.op("cat", values, shape, short, {"dim": dim})

    def reduce(self, name, x, dims, short, keepdim=False):
        if keepdim:
            shape = [1 if d in dims else size for d, size in enumerate(x.shape)]
        else:
            shape = [size for d, size in enumerate(x.shape) if d not in dims]
        return self.op(name, [x], shape, short, {"dims": list(dims), "keepdim": int(keepdim)})

    def linear(self, x, weight, short):
        return self.op("linear", [x, weight], x.shape[:-1] + weight.shape[:1], short)

    def matmul(self, x, y, short):
        batch = x.shape[:-2]
        if len(y.shape) > len(x.shape):
            batch = y.shape[:-2]
        elif len(y.shape) == len(x.shape):
            batch = tuple(max(a, b) for a, b in zip(x.shape[:-2], y.shape[:-2]))
        return self.op("matmul", [x, y], batch + (x.shape[-2], y.shape[-1]), short)

    def weight_gradient(self, dy, x, short):
        """dW[n k] = sum over tokens of dy[.. n] x[.. k]."""
        rows, columns = dy.shape[-1], x.shape[-1]
        if self.config.weight_gradient == "call":
            axes = "b+ " * (len(dy.shape) == 3) + "s+"
            sig = f"g[{axes} n] x[{axes} k] -> [n k] linear=0,1"
            return self.op("linear_weight", [dy, x], [rows, columns], short, sig=sig)
        tokens = math.prod(dy.shape[:-1])
        flat = dy if len(dy.shape) == 2 else self.view(dy, [tokens, rows], short + ".dy")
        seen = x if len(x.shape) == 2 else self.view(x, [tokens, columns], short + ".x")
        turned = self.permute(flat, [1, 0], short + ".t")
        return self.op("mm", [turned, seen], [rows, columns], short)

    # ---- inputs and parameters -----------------------------------------------------------------

    def input(self, name, shape, starts, dtype="float32", each=False):
        if name not in self.inputs:
            value = Value(self.unique(self.names, name), dtype, shape)
            self.role.inputs.append(Input(value, name, starts, each))
            self.inputs[name] = value
        return self.inputs[name]

    def batch_start(self):
        c = self.config
        return (0, c.nm * c.batch if c.dp > 1 else 0, c.batch if c.nm > 1 else 0)

    def activation_shape(self):
        """[batch, tokens, hidden] between the tensor-parallel regions."""
        c = self.config
        return [c.batch, c.seq // c.cp // (c.tp if c.sp else 1), c.hidden]

    def activation_input(self, name):
        shape = self.activation_shape()
        part = self.cp_rank * self.config.tp + self.tp_rank if self.config.sp else self.cp_rank
        starts = [self.batch_start(), (part * shape[1], 0, 0), (0, 0, 0)]
        return self.input(name, shape, starts, each=self.config.nm > 1)

    def output(self, kind, name, value, fold):
        """Something that is no slice: the loss."""
        self.role.outputs.append(Output(kind, name, value, [(0, 0, 0)] * len(value.shape), fold))

    def shards(self):
        return self.config.dp * self.config.cp

    def shard_of(self, shape, starts):
        """Dim 0 cut over the ranks that share the gradient, replica-major."""
        length, rest = divmod(shape[0], self.shards())
        if rest:
            raise ValueError(f"{shape[0]} rows over {self.shards()} optimizer shards")
        first = starts[0][0] + self.cp_rank * length
        weight = self.config.cp * length if self.config.dp > 1 else 0
        return (length, *shape[1:]), [(first, weight, 0), *starts[1:]]

    def parameter(self, name, shape, cut=None, spread=False):
        """Declare (once) the parameter, cut over tp along dim `cut`."""
        if name in self.parameters:
            return self.parameters[name]
        local, starts = list(shape), [(0, 0, 0)] * len(shape)
        if cut is not None and self.config.tp > 1:
            local[cut] = shape[cut] // self.config.tp
            starts[cut] = (self.tp_rank * local[cut], 0, 0)
        held, first = tuple(local), starts
        if self.config.zero == 3:
            held, first = self.shard_of(held, starts)
        value = self.input(name, held, first)
        self.parameters[name] = Parameter(name, value, tuple(local), starts,
                                          spread and self.config.tp > 1)  # fmt: skip
        return self.parameters[name]

    def weight(self, name):
        """The parameter as forward and backward use it."""
        parameter = self.parameters[name]
        if self.config.zero != 3:
            return parameter.value
        if self.segment not in parameter.whole:
            around, self.fqn = self.fqn, name
            parameter.whole[self.segment] = self.op(
                "all_gather", [parameter.value], parameter.shape, f"gather.{self.segment}",
                {"dim": 0}, group=self.group("grads"))  # fmt: skip
            self.fqn = around
        return parameter.whole[self.segment]

    def gradient(self, name, value):
        """This micro-batch's contribution. Two of one micro-batch (a shared weight) are added."""
        parameter, around, self.fqn = self.parameters[name], self.fqn, name
        if self.config.nm > 1:
            first = parameter.gradient
            if first is None:
                parameter.gradient = self.op("accumulate", [value], value.shape, "grad", keep=True)
            else:
                self.ops.append(Op("accumulate", [value], [first], None, self.phase, self.fqn,
                                   self.source(), name + ".grad.again"))  # fmt: skip
        elif parameter.gradient is None:
            parameter.gradient = value
        else:
            parameter.gradient = self.pair("add", parameter.gradient, value, "grad.sum")
        self.fqn = around

    # ---- boundaries ---------------------------------------------------------------------------

    def group(self, kind):
        """Declare and name the group of this role: tp, cp, grads (replicas and cp), embedding."""
        config, axes = self.config, self.plan.device_axes()
        own = {axis: self.role.coordinates[axis] for axis in axes}
        moving = {"tp": "tp", "cp": "cp", "grads": "cp", "embedding": "pp"}[kind]
        rest = [str(own[axis]) for axis in axes if axis != moving]
        name = ".".join([kind, *rest])
        if name not in self.plan.groups:
            if kind == "embedding":
                range_of = [0, config.pp - 1]
            else:
                range_of = range(self.plan.axes.get(moving, 1))
            members = [dict(own, **({moving: k} if moving in own else {})) for k in range_of]
            if kind == "grads" and config.dp > 1:
                members = [dict(member, dp="all") for member in members]
            self.plan.groups[name] = Group(name, members)
        return name

    def all_reduce(self, x, kind, short, op="sum"):
        return self.op("all_reduce", [x], x.shape, short, {"op": op}, group=self.group(kind))

    def all_gather(self, x, kind, dim, size, short):
        shape = list(x.shape)
        shape[dim] *= size
        return self.op("all_gather", [x], shape, short, {"dim": dim}, group=self.group(kind))

    def reduce_scatter(self, x, kind, dim, size, short, op="sum"):
        shape = list(x.shape)
        shape[dim] //= size
        attrs = {"dim": dim, "op": op}
        return self.op("reduce_scatter", [x], shape, short, attrs, group=self.group(kind))

    def enter(self, x, short):
        """Into a tensor-parallel region: every tp rank needs all tokens."""
        if self.config.tp > 1 and self.config.sp:
            return self.all_gather(x, "tp", 1, self.config.tp, short + ".gather")
        return x

    def enter_backward(self, dx, short):
        return self.leave(dx, short + ".bw")

    def leave(self, x, short):
        """Out of a tensor-parallel region: a partial sum becomes the value."""
        if self.config.tp == 1:
            return x
        if self.config.sp:
            return self.reduce_scatter(x, "tp", 1, self.config.tp, short + ".scatter")
        return self.all_reduce(x, "tp", short + ".reduce")

    def leave_backward(self, dy, short):
        return self.enter(dy, short + ".bw")

    def receive(self, shape, stage, tag, short):
        attrs = {"peer": self.peer(stage), "tag": tag}
        return self.op("recv", [], shape, short, attrs)

    def send(self, x, stage, tag, short):
        self.emit("send", [x], [], short, {"peer": self.peer(stage), "tag": tag})

    def peer(self, stage):
        return self.plan.device(dict(self.role.coordinates, pp=stage))

    # ---- the step ------------------------------------------------------------------------------

    def synchronise(self, parameter):
        """The gradient that the optimizer uses, of the whole parameter or of the ZeRO shard."""
        name, value = parameter.name, parameter.gradient
        self.at(name)
        if parameter.spread:
            value = self.all_reduce(value, "tp", "grad.tp")
        if self.config.tied and self.config.pp > 1 and name == "tok_embeddings.weight":
            value = self.all_reduce(value, "embedding", "grad.tied")
        if self.shards() > 1 and self.config.zero == 0:
            value = self.all_reduce(value, "grads", "grad.dp", "avg")
        elif self.shards() > 1:
            value = self.reduce_scatter(value, "grads", 0, self.shards(), "grad.dp", "avg")
        return value

    def update(self, parameter, gradient, held, starts):
        """One optimizer step: the new value and the new states by name."""
        p = self.parameters[parameter.name].value
        if self.config.zero == 1 and self.shards() > 1:
            p = Value(self.unique(self.names, parameter.name + ".shard"), "float32", held)
            self.role.inputs.append(Input(p, parameter.name, starts))
        if self.config.optimizer == "sgd":
            return self.pair("sub", p, self.scale(gradient, 0.1, "sgd.lr"), "sgd.update"), {}
        rate, decay, b1, b2, step = 1e-3, 0.1, 0.9, 0.95, 3
        m = self.input(parameter.name + ".exp_avg", held, starts)
        v = self.input(parameter.name + ".exp_avg_sq", held, starts)
        m = self.pair("add", self.scale(m, b1, "adamw.m.keep"),
                      self.scale(gradient, 1 - b1, "adamw.m.new"), "adamw.m")  # fmt: skip
        square = self.pair("mul", gradient, gradient, "adamw.square")
        v = self.pair("add", self.scale(v, b2, "adamw.v.keep"),
                      self.scale(square, 1 - b2, "adamw.v.new"), "adamw.v")  # fmt: skip
        root = self.same("sqrt", self.scale(v, 1 / (1 - b2**step), "adamw.v.hat"), "adamw.root")
        quotient = self.pair("div", m, self.add_scalar(root, 1e-8, "adamw.eps"), "adamw.quotient")
        change = self.scale(quotient, rate / (1 - b1**step), "adamw.change")
        kept = self.scale(p, 1 - rate * decay, "adamw.decay")
        return self.pair("sub", kept, change, "adamw.update"), {"exp_avg": m, "exp_avg_sq": v}

    def step(self):
        self.begin("step", "opt")
        for parameter in self.parameters.values():
            shape, starts = parameter.shape, parameter.starts
            gradient = self.synchronise(parameter)
            if self.config.zero and self.shards() > 1:
                shape, starts = self.shard_of(shape, starts)
            new, states = self.update(parameter, gradient, shape, starts)
            name = parameter.name
            self.role.outputs.append(Output("grad", name, gradient, starts))
            for kind, state in states.items():
                self.role.outputs.append(Output("state", f"{name}.{kind}", state, starts))
            if self.config.zero == 1 and self.shards() > 1:
                new = self.op("all_gather", [new], parameter.shape, "param.gather", {"dim": 0},
                              group=self.group("grads"))  # fmt: skip
                starts = parameter.starts
            self.role.outputs.append(Output("param", name, new, starts))

    def schedule(self):
        """1F1B, then the step."""
        nm, stages = self.config.nm, self.config.pp
        if nm == 1:
            self.role.schedule = [("fw", None), ("bw", None), ("step", None)]
            return
        warm = min(stages - self.stage - 1, nm)
        turns = [("fw", k) for k in range(warm)]
        for k in range(nm - warm):
            turns += [("fw", warm + k), ("bw", k)]
        turns += [("bw", k) for k in range(nm - warm, nm)]
        self.role.schedule = turns + [("step", None)]


def new_plan(config):
    if config.logical:
        return Plan({"dp": 1})
    axes = {"dp": config.dp, "pp": config.pp, "cp": config.cp, "tp": config.tp}
    if config.cp == 1:
        del axes["cp"]
    return Plan(axes, "dp" if config.dp > 1 else None, config.nm)


def build_roles(config, plan, model):
    """The roles, one at a time: model(builder) emits forward and backward."""
    axes = plan.device_axes()
    count = math.prod(plan.axes[axis] for axis in axes)
    for device in range(count):
        coordinates, rest = {}, device
        for axis in reversed(axes):
            rest, coordinates[axis] = divmod(rest, plan.axes[axis])
        builder = Builder(config, plan, {axis: coordinates[axis] for axis in axes})
        model(builder)
        builder.step()
        builder.schedule()
        yield builder.role
