"""What a program can notice about torch: printed as JSON, one entry per behaviour.

Run by test_hook_behaviours.py in three processes: nothing hooked, everything hooked and not
observed, everything hooked and observed. All three must print the same.

    python hook_behaviours.py plain|off|on
"""

import collections
import copy
import functools
import inspect
import io
import json
import operator
import os
import pickle
import re
import sys
import threading
import traceback
import types
import typing
import warnings
import weakref

import torch
import torch.fx
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

CAPTURED_BEFORE = (F.relu, torch.add, torch.Tensor.normal_, nn.Module.__call__)

CHECKS = {}
x = torch.arange(12.0).reshape(3, 4) / 7
image = torch.arange(64.0).reshape(1, 1, 8, 8) / 50


def check(function):
    CHECKS[function.__name__] = function
    return function


class Recording(torch.Tensor):
    seen: list = []

    @classmethod
    def __torch_function__(cls, func, kinds, args=(), kwargs=None):
        cls.seen.append(func)
        return super().__torch_function__(func, kinds, args, kwargs or {})


HANDLERS = {torch.add: lambda *_: "add", F.relu: lambda *_, **__: "relu"}


class Handled(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, kinds, args=(), kwargs=None):
        handler = HANDLERS.get(func)
        return handler(*args, **(kwargs or {})) if handler else NotImplemented


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.activation = F.relu
        self.builtin = torch.tanh

    def forward(self, t):
        return self.builtin(self.activation(self.linear(t)))


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(1, 2, 3)
        self.linear = nn.Linear(2, 3)

    def forward(self, t):
        t = F.max_pool2d(F.relu(self.convolution(t)), 2)
        return self.linear(torch.flatten(torch.add(t, t).mean((2, 3)), 1))


class Variadic(nn.Module):
    def forward(self, *ts, scale=2.0, **extra):
        return torch.add(ts[0], ts[1]) * scale + extra["c"]


def scripted(t):
    return torch.add(F.relu(t), torch.sigmoid(t))


def scripted_pool(t):
    return F.max_pool2d(t, 2) + F.dropout(t[:, :, ::2, ::2], 0.5, False)


def train(steps=4, optimizer=torch.optim.AdamW, **options):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.ReLU(), nn.Linear(8, 2))
    stepper = optimizer(model.parameters(), **options)
    losses = []
    for _ in range(steps):
        stepper.zero_grad()
        loss = F.cross_entropy(model(torch.randn(6, 4)), torch.randint(0, 2, (6,)))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        stepper.step()
        losses.append(loss.item().hex())
    return losses


def error_of(function):
    try:
        function()
    except BaseException as error:
        frames = [
            (os.path.basename(f.filename), f.name, f.lineno)
            for f in traceback.extract_tb(error.__traceback__)
        ]
        return type(error).__name__, str(error)[:200], frames
    return None


def caught_warnings(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return [(os.path.basename(w.filename), w.lineno, str(w.message)[:60]) for w in caught]


# ---- identity and introspection -------------------------------------------------------------


@check
def identity_of_captured_names():
    return [
        a is b
        for a, b in zip(
            CAPTURED_BEFORE, (F.relu, torch.add, torch.Tensor.normal_, nn.Module.__call__)
        )
    ]


@check
def signature_of_function():
    return str(inspect.signature(F.relu)), str(inspect.signature(F.cross_entropy))


@check
def signature_of_methods():
    return [
        str(inspect.signature(m))
        for m in (nn.Linear(2, 2).forward, nn.Module.train, torch.optim.Adam.step, nn.Module.__call__)
    ]


@check
def signature_of_builtin():
    return error_of(lambda: inspect.signature(torch.add))[0]


@check
def full_argument_specification():
    return str(inspect.getfullargspec(F.interpolate))


@check
def source_and_file():
    return (
        inspect.getsource(F.relu),
        inspect.getsourcelines(nn.Module.zero_grad)[1],
        inspect.getsourcefile(F.relu)[-20:],
    )


@check
def inspect_predicates():
    objects = (F.relu, torch.add, torch.Tensor.add, nn.Linear(2, 2).forward, nn.init.normal_)
    tests = (
        inspect.isfunction,
        inspect.isbuiltin,
        inspect.isroutine,
        inspect.ismethod,
        inspect.ismethoddescriptor,
        inspect.isgeneratorfunction,
        inspect.iscoroutinefunction,
        callable,
    )
    return [[test(o) for test in tests] for o in objects]


@check
def exact_types():
    return (
        type(F.relu) is types.FunctionType,
        type(torch.add) is types.BuiltinFunctionType,
        type(torch.Tensor.normal_).__name__,
    )


@check
def type_hints():
    return list(typing.get_type_hints(F.relu)), F.relu.__annotations__.keys().__len__()


@check
def code_attributes():
    code = F.relu.__code__
    return (
        code.co_name,
        code.co_argcount,
        code.co_kwonlyargcount,
        code.co_varnames[: code.co_argcount],
        code.co_flags & 0x0F,
        code.co_firstlineno,
        os.path.basename(code.co_filename),
        code.co_freevars,
    )


@check
def function_attributes():
    return (
        F.relu.__name__,
        F.relu.__qualname__,
        F.relu.__module__,
        F.relu.__defaults__,
        F.gumbel_softmax.__kwdefaults__,
        F.relu.__globals__ is vars(F),
        F.relu.__closure__,
        vars(F.relu),
    )


@check
def documentation():
    return F.relu.__doc__, torch.add.__doc__[:40], nn.Module.train.__doc__[:40]


@check
def representation():
    strip = functools.partial(re.sub, r"0x[0-9a-f]+", "0x")
    return strip(repr(F.relu)), strip(repr(torch.add)), repr(torch.Tensor.normal_)


@check
def hash_and_equality():
    table = {F.relu: 1, torch.add: 2, torch.Tensor.normal_: 3, nn.Module.__call__: 4}
    return [table[f] for f in CAPTURED_BEFORE], F.relu == F.relu, torch.add == torch.sub


@check
def aliases_stay_aliases():
    return (
        torch.conv2d is F.conv2d,
        torch._C._nn.linear is F.linear,
        nn.Module.__call__ is nn.Module._wrapped_call_impl,
        torch.functional.einsum is torch.einsum,
    )


@check
def module_namespaces():
    return len(vars(F)), len(vars(torch)), len(vars(nn.Module)), len(vars(torch.Tensor))


@check
def weak_references():
    return weakref.ref(F.relu)() is F.relu, weakref.ref(torch.add)() is torch.add


@check
def wraps():
    @functools.wraps(F.relu)
    def wrapped(*args):
        return "own"

    return wrapped.__name__, wrapped(x), wrapped.__wrapped__ is F.relu, sorted(vars(wrapped))


@check
def partial_and_method_types():
    class Holder:
        relu = F.relu
        builtin = torch.relu

    bound = types.MethodType(F.relu, x)
    return (
        functools.partial(F.relu, inplace=False)(x).shape,
        bound().shape,
        Holder.relu is F.relu,
        Holder().builtin(x).shape,
        error_of(lambda: Holder().relu(x))[:1],
    )


# ---- copying and pickling -------------------------------------------------------------------


@check
def pickle_functions():
    return [
        pickle.loads(pickle.dumps(f)) is f
        for f in (F.relu, torch.add, nn.init.normal_, torch.nn.utils.clip_grad_norm_)
    ]


@check
def pickle_pooling():
    return error_of(lambda: pickle.loads(pickle.dumps(F.max_pool2d)))


@check
def pickle_descriptor():
    return pickle.loads(pickle.dumps(torch.Tensor.normal_)) == torch.Tensor.normal_


@check
def pickle_bound_method():
    return pickle.loads(pickle.dumps(nn.Linear(2, 2).train)).__name__


@check
def copy_functions():
    return [copy.copy(f) is f and copy.deepcopy(f) is f for f in (F.relu, torch.add)]


@check
def copy_and_save_module():
    torch.manual_seed(0)
    module = Small()
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    others = [
        copy.deepcopy(module),
        pickle.loads(pickle.dumps(module)),
        torch.load(buffer, weights_only=False),
    ]
    return [bool((o(x) == module(x)).all()) for o in others]


@check
def save_and_load_state():
    buffer = io.BytesIO()
    torch.save(Small().state_dict(), buffer)
    buffer.seek(0)
    return sorted(torch.load(buffer)), str(Small().load_state_dict(Small().state_dict()))


# ---- __torch_function__ and its tables ------------------------------------------------------


@check
def torch_function_subclass():
    Recording.seen.clear()
    F.relu(torch.add(x.as_subclass(Recording), 1))
    return [f.__name__ for f in Recording.seen], [f is torch.add for f in Recording.seen]


@check
def torch_function_handlers():
    t = x.as_subclass(Handled)
    return torch.add(t, 1), F.relu(t), error_of(lambda: torch.sub(t, 1))[0]


@check
def torch_function_mode():
    seen = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, kinds, args=(), kwargs=None):
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    with Mode():
        F.softmax(F.relu(torch.add(x, 1)), -1)
        nn.Linear(4, 2)(x)
        x.clone().normal_()
    return seen


@check
def torch_dispatch_mode():
    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, kinds, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Mode():
        F.cross_entropy(nn.Linear(4, 2)(F.relu(x)), torch.tensor([0, 1, 0])).backward()
    return seen


@check
def override_tables():
    table = torch.overrides.get_testing_overrides()
    return (
        torch.add in table,
        F.relu in table,
        torch.Tensor.add in table,
        len(table),
        torch.overrides.resolve_name(torch.add),
        torch.overrides.resolve_name(F.relu),
        len(torch.overrides.get_overridable_functions()[torch]),
        len(torch.overrides.get_overridable_functions()[F]),
        torch.overrides.is_tensor_method_or_property(torch.Tensor.normal_),
    )


@check
def device_context():
    with torch.device("meta"):
        return str(torch.empty(2).device), str(nn.Linear(2, 2).weight.device)


# ---- jit, fx, functorch ---------------------------------------------------------------------


@check
def jit_script_function():
    return torch.jit.script(scripted)(x).tolist(), torch.jit.script(scripted).code


@check
def jit_script_pooling():
    return torch.jit.script(scripted_pool)(image).shape


@check
def jit_script_module():
    torch.manual_seed(0)
    module = Convolution()
    return torch.jit.script(module)(image).tolist() == module(image).tolist()


@check
def jit_script_sequential():
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2))
    return torch.jit.script(module)(image).shape


@check
def jit_script_torch_function():
    return torch.jit.script(F.relu)(x).shape, torch.jit.script(F.smooth_l1_loss)(x, x).item()


@check
def jit_trace():
    torch.manual_seed(0)
    graph = str(torch.jit.trace(Convolution(), image).graph)
    return re.sub(r"___torch_mangle_\d+\.|\.___torch_mangle_\d+", "", graph)


@check
def fx_trace_module():
    torch.manual_seed(0)
    traced = torch.fx.symbolic_trace(Convolution())
    return traced.code, traced(image).tolist()


@check
def fx_targets():
    nodes = [n for n in torch.fx.symbolic_trace(scripted).graph.nodes if callable(n.target)]
    return [n.target in (torch.add, F.relu, torch.sigmoid) for n in nodes]


@check
def fx_trace_variadic():
    return error_of(lambda: torch.fx.symbolic_trace(Variadic()))


@check
def fx_trace_torch_function():
    fixed = {"min_val": 0.0, "max_val": 1.0, "inplace": False}
    return torch.fx.symbolic_trace(F.hardtanh, fixed).code


@check
def functorch_transforms():
    from torch.func import functional_call, grad, jacrev, vmap

    module = nn.Linear(4, 2)
    state = {k: torch.ones_like(v) for k, v in module.named_parameters()}
    return (
        vmap(lambda t: F.relu(torch.add(t, -1)))(x).tolist(),
        grad(lambda t: torch.sin(F.softmax(t, -1)).sum())(x).tolist(),
        jacrev(F.relu)(x[0]).tolist(),
        functional_call(module, state, (x,)).tolist(),
        vmap(lambda t: functional_call(module, state, (t,)))(x).tolist(),
    )


@check
def make_fx_graph():
    from torch.fx.experimental.proxy_tensor import make_fx

    return make_fx(lambda t: F.layer_norm(F.relu(t), (4,)).sum())(x).code


@check
def fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return list(F.relu(nn.Linear(4, 7)(torch.empty(3, 4))).shape)


@check
def export_program():
    torch.manual_seed(0)
    program = torch.export.export(Convolution(), (image,))
    return re.sub(r"#.*", "", str(program.graph_module.code))


@check
def pytree_of_functions():
    from torch.utils import _pytree

    return _pytree.tree_map(lambda leaf: leaf, {"a": [x, (F.relu,)]})["a"][1][0] is F.relu


# ---- torch's own uses of identity -----------------------------------------------------------


@check
def transformer_fast_path():
    layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
    other = nn.TransformerEncoderLayer(8, 2, activation="gelu")
    return (
        layer.activation_relu_or_gelu,
        other.activation_relu_or_gelu,
        copy.deepcopy(other)(torch.ones(3, 2, 8)).shape,
        layer.eval()(torch.ones(3, 2, 8)).shape,
    )


@check
def boolean_dispatch():
    return (
        F.max_pool2d(image, 2, return_indices=True)[1].shape,
        torch._jit_internal.boolean_dispatched.get(F.max_pool2d) is not None,
    )


@check
def scheduler_patches_step():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    before = optimizer.step.__func__
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)

    def run():
        scheduler.step()  # too early: warns
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        scheduler.step()

    return (
        caught_warnings(run),
        scheduler.get_last_lr(),
        optimizer.step.__name__,
        optimizer.step.__wrapped__ is before,
        before is torch.optim.Adam.step,
    )


@check
def optimizer_copy_pickle_closure():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    loss = optimizer.step(lambda: torch.tensor(1.5))
    others = copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))
    return loss.item(), [len(o.state_dict()["state"]) for o in others]


@check
def optimizer_hooks():
    order = []
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    optimizer.register_step_pre_hook(lambda *_: order.append("before"))
    optimizer.register_step_post_hook(lambda *_: order.append("after"))
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return order


@check
def user_optimizer():
    class Own(torch.optim.SGD):
        def step(self, closure=None):
            super().step(closure)
            return "stepped"

    model = nn.Linear(2, 2)
    optimizer = Own(model.parameters(), lr=0.1)
    model(torch.ones(1, 2)).sum().backward()
    return optimizer.step(), optimizer.step.__func__.__qualname__


@check
def optimizer_subclass_keywords():
    def define():
        class Wrong(torch.optim.SGD, keyword=1):
            pass

    return error_of(define)[:2]


@check
def module_hooks_and_stateless():
    seen = []
    module = nn.Linear(2, 2)
    module.register_forward_pre_hook(lambda *_: seen.append("pre"))
    module.register_forward_hook(lambda *_: seen.append("forward"))
    module.register_full_backward_hook(lambda *_: seen.append("backward"))
    module(torch.ones(1, 2)).sum().backward()
    return seen


@check
def module_call_override():
    class Calls(nn.Linear):
        def __call__(self, *args, **kwargs):
            return super().__call__(*args, **kwargs) + 1

    torch.manual_seed(0)
    return Calls(4, 1)(x).tolist()


@check
def module_setattr():
    module = nn.Module()
    module.weight = nn.Parameter(x.clone())
    return error_of(lambda: setattr(module, "weight", 5))[:2]


@check
def parametrizations():
    from torch.nn.utils import parametrizations

    module = parametrizations.orthogonal(nn.Linear(3, 3))
    normed = parametrizations.weight_norm(nn.Linear(3, 3))
    return module(torch.ones(1, 3)).shape, normed(torch.ones(1, 3)).shape


@check
def activation_checkpoint():
    from torch.utils.checkpoint import checkpoint

    results = []
    for reentrant in (False, True):
        t = x.clone().requires_grad_()
        checkpoint(lambda a: F.dropout(F.relu(a * 2), 0.3), t, use_reentrant=reentrant).sum().backward()
        results.append(t.grad.shape)
    return results


@check
def autograd_function():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            return torch.relu(t)

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    t = x.clone().requires_grad_()
    Double.apply(t).sum().backward()
    return t.grad.sum().item()


@check
def autograd_grad_and_hooks():
    t = x.clone().requires_grad_()
    seen = []
    t.register_hook(lambda g: seen.append(g.shape))
    first = torch.autograd.grad((t**3).sum(), t, create_graph=True)[0]
    first.sum().backward()
    return seen, t.grad.tolist()


@check
def autocast():
    with torch.autocast("cpu", torch.bfloat16):
        return str(F.linear(x, x).dtype), str(F.softmax(F.linear(x, x), -1).dtype)


@check
def quantize():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {nn.Linear})
    return module(x).shape


@check
def odd_tensors():
    results = []
    makers = {
        "sparse": lambda: torch.eye(3).to_sparse(),
        "meta": lambda: torch.empty(3, device="meta"),
        "nested": lambda: torch.nested.nested_tensor([x, x]),
        "empty": lambda: torch.empty(0),
        "complex": lambda: torch.ones(2, dtype=torch.complex64).conj(),
        "scalar": lambda: torch.tensor(3.0),
        "subclass": lambda: x.as_subclass(Recording),
        "inference": torch.inference_mode()(lambda: torch.ones(2)),
    }
    for name, make in makers.items():
        results.append((name, error_of(lambda m=make: torch.sum(torch.clone(m())))))
    return results


# ---- calls ----------------------------------------------------------------------------------


@check
def argument_errors():
    return [
        error_of(lambda: F.relu())[:2],
        error_of(lambda: F.relu(x, False, 3))[:2],
        error_of(lambda: F.relu(x, nothing=1))[:2],
        error_of(lambda: torch.add())[:2],
        error_of(lambda: x.normal_(wrong=1))[:2],
        error_of(lambda: nn.Linear(2, 2)())[:2],
    ]


@check
def traceback_frames():
    return [
        error_of(lambda: F.cross_entropy(x, x[0])),
        error_of(lambda: nn.Linear(3, 3)(x)),
        error_of(lambda: torch.matmul(x, x)),
        error_of(lambda: nn.init.normal_(x, std=-1.0)),
    ]


@check
def warnings_name_the_caller():
    return caught_warnings(lambda: F.softmax(x)), caught_warnings(lambda: F.mse_loss(x, x[0]))


@check
def caller_frames():
    found = []

    class Spy(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, kinds, args=(), kwargs=None):
            frame, names = sys._getframe(1), []
            while frame is not None:
                names.append((frame.f_code.co_name, os.path.basename(frame.f_code.co_filename)))
                frame = frame.f_back
            found.append(names)
            return "stop"

    F.relu(x.as_subclass(Spy))
    found.append([f.name for f in traceback.extract_stack()])
    return found


@check
def keyword_only_and_defaults():
    return (
        F.gumbel_softmax(x, hard=True).shape,
        F.normalize(input=x, dim=0, eps=1e-3).sum().item(),
        torch.nn.utils.clip_grad_norm_([], 1.0, error_if_nonfinite=False).item(),
        torch.einsum("ij,kj->ik", x, x).shape,
        torch.block_diag(x, x, x).shape,
        torch.meshgrid(x[0], x[1], indexing="ij")[0].shape,
    )


@check
def defaults_changed_later():
    before = F.relu.__defaults__
    F.relu.__defaults__ = (True,)
    try:
        t = x - 1
        return F.relu(t) is t
    finally:
        F.relu.__defaults__ = before


@check
def map_sorted_reduce_callbacks():
    return (
        len(list(map(F.relu, [x, x]))),
        functools.reduce(torch.add, [x, x, x]).sum().item(),
        sorted([3.0, 1.0], key=lambda v: torch.tensor(v).item()),
        operator.methodcaller("normal_")(x.clone()).shape,
    )


@check
def star_calls():
    arguments, keywords = (x, x), {"alpha": 2}
    return torch.add(*arguments, **keywords).sum().item(), F.linear(*arguments).sum().item()


@check
def default_dict_and_callable_attributes():
    table = collections.defaultdict(lambda: F.relu)
    return table["any"](x).shape, Small()(x).shape


@check
def generators_and_no_grad_decorator():
    @torch.no_grad()
    def values():
        yield torch.add(x, 1).requires_grad
        yield torch.is_grad_enabled()

    return list(values())


@check
def deep_recursion_within_limit():
    class Deep(nn.Module):
        def forward(self, t, n):
            return t if n == 0 else self(t, n - 1)

    return Deep()(x, 150).shape


@check
def recursion_error():
    class Endless(nn.Module):
        def forward(self, t):
            return self(t)

    return error_of(lambda: Endless()(x))[0]


@check
def threads():
    results = []

    def work():
        for _ in range(50):
            results.append(F.relu(torch.add(x, 1)).sum().item())

    workers = [threading.Thread(target=work) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return len(results), len(set(results))


@check
def profile_function():
    events = []

    def profiler(frame, event, argument):
        if event in ("call", "return") and "functional" in frame.f_code.co_filename:
            events.append((event, frame.f_code.co_name))

    sys.setprofile(profiler)
    try:
        F.relu(x)
    finally:
        sys.setprofile(None)
    return set(events) == {("call", "relu"), ("return", "relu")}, events.count(
        ("call", "relu")
    ) == events.count(("return", "relu"))


@check
def trace_function():
    lines = []

    def tracer(frame, event, argument):
        if frame.f_code.co_name == "relu":
            if event == "line":
                lines.append(frame.f_lineno)
            return tracer
        return None

    sys.settrace(tracer)
    try:
        F.relu(x)
    finally:
        sys.settrace(None)
    return lines


@check
def cprofile_counts():
    import cProfile
    import pstats

    profile = cProfile.Profile()
    profile.enable()
    for _ in range(5):
        Small()(x)
    profile.disable()
    totals = pstats.Stats(profile).stats
    return [calls[1] for (_, _, name), calls in totals.items() if name == "forward" and calls[1]]


@check
def data_loader():
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.arange(8.0))
    loaders = DataLoader(data, 4), DataLoader(data, 4, num_workers=2)
    return [[batch[0].tolist() for batch in loader] for loader in loaders]


@check
def grad_scaler():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(model(x).sum()).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    return model.weight.grad.tolist(), scaler.get_scale()


@check
def losses_sgd():
    return train(optimizer=torch.optim.SGD, lr=0.1, momentum=0.9)


@check
def losses_adamw():
    return train(optimizer=torch.optim.AdamW, lr=0.01)


@check
def losses_lbfgs():
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)

    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), x[:, :1])
        loss.backward()
        return loss

    return [optimizer.step(closure).item().hex() for _ in range(3)]


@check
def random_state_after_training():
    train(2, lr=0.01)
    return torch.get_rng_state().sum().item()


def main(mode):
    if mode != "plain":
        from tocsin import _core, targets

        targets.install()
        if mode == "on":
            _core.count(True)
    results = {}
    for name, function in CHECKS.items():
        torch.manual_seed(0)
        try:
            results[name] = function()
        except BaseException as error:
            results[name] = f"raised {type(error).__name__}: {error}"
    if mode == "on":
        _core.count(False)
        results["calls observed"] = sum(calls for calls, _ in _core.counts().values())
    json.dump(results, sys.stdout, default=str)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1])
