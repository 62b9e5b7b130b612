"""Behaviours: identity, introspection, copying, __torch_function__."""

import copy
import functools
import inspect
import io
import os
import pickle
import re
import types
import typing
import weakref

import torch
import torch.nn.functional as F
from behaviour_stage import Handled, Recording, Small, check, error_of, x
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

CAPTURED_BEFORE = (F.relu, torch.add, torch.Tensor.normal_, nn.Module.__call__)


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
    module = nn.Module
    methods = (nn.Linear(2, 2).forward, module.train, torch.optim.Adam.step, module.__call__)
    return [str(inspect.signature(method)) for method in methods]


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
