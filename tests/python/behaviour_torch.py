"""Behaviours: torch.jit, fx, functorch, and where torch itself depends on identity."""

import copy
import pickle
import re
import warnings

import torch
import torch.fx
import torch.nn.functional as F
from behaviour_stage import (
    Convolution,
    Recording,
    Variadic,
    caught_warnings,
    check,
    error_of,
    image,
    scripted,
    scripted_pool,
    x,
)
from torch import nn


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
        y = checkpoint(lambda a: F.dropout(F.relu(a * 2), 0.3), t, use_reentrant=reentrant)
        y.sum().backward()
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
