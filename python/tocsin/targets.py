"""What is hooked in torch, under which name and in which role.

A hook belongs to a callable object, not to a name; of several names of one object the first listed
here is recorded. Several objects may share one name: every optimizer's step is recorded as
"torch.optim.Optimizer.step", whatever class it is of.

Never hooked: predicates and accessors (cheap, called everywhere, and some by the recorder itself),
the machinery of __torch_function__, torch.compile, torch.fx, torch.jit and torch.overrides.
"""

import functools
import sys
import types
import weakref
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tocsin import _core, communication, dynamo, trainer_plan

STEP = "torch.optim.Optimizer.step"
ZERO_GRAD = "torch.optim.Optimizer.zero_grad"
SCHEDULER_STEP = "torch.optim.lr_scheduler.LRScheduler.step"


class Target(NamedTuple):
    callable: object
    name: str
    role: str
    flags: int = _core.ARGUMENTS


_LOSSES = frozenset(
    """binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy
    ctc_loss gaussian_nll_loss hinge_embedding_loss huber_loss kl_div l1_loss linear_cross_entropy
    margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss
    multilabel_soft_margin_loss nll_loss poisson_nll_loss smooth_l1_loss soft_margin_loss
    triplet_margin_loss triplet_margin_with_distance_loss""".split()
)
_NOT_FUNCTIONAL = frozenset("boolean_dispatch handle_torch_function assert_int_or_pair".split())
_NOT_TORCH = frozenset(
    "can_cast fork get_device numel promote_types result_type to_dlpack wait".split()
)
_NOT_TORCH_PREFIXES = """autocast_ clear_ cudnn_is fbgemm_ get_ has_ import_ init_ is_ merge_ parse_
    q_ set_ sym_ unify_""".split()
_COLLECTIVES = """all_gather all_gather_coalesced all_gather_into_tensor all_gather_object
    all_gather_single all_reduce all_reduce_coalesced all_to_all all_to_all_single barrier
    batch_isend_irecv broadcast broadcast_object_list gather gather_object irecv isend recv reduce
    reduce_scatter reduce_scatter_single reduce_scatter_tensor scatter scatter_object_list
    send""".split()
# What DTensor calls: the input is left as it is. Imported with torch.distributed.tensor.
_FUNCTIONAL = "torch.distributed._functional_collectives"
_FUNCTIONAL_COLLECTIVES = """all_gather_single all_gather_single_autograd all_gather_tensor
    all_gather_tensor_autograd all_reduce all_reduce_coalesced all_to_all_single
    all_to_all_single_autograd broadcast permute_tensor reduce_scatter_single
    reduce_scatter_single_autograd reduce_scatter_tensor reduce_scatter_tensor_autograd""".split()
_RANDOM_FILLS = """bernoulli_ cauchy_ exponential_ geometric_ log_normal_ normal_ random_
    uniform_""".split()
_METHOD = _core.ARGUMENTS | _core.METHOD


def _is_function(value: object) -> bool:
    return isinstance(value, (types.FunctionType, types.BuiltinFunctionType))


def _functional(torch) -> Iterator[Target]:
    module = torch.nn.functional
    for name, value in vars(module).items():
        if name.startswith(("_", "has_torch_function")) or name in _NOT_FUNCTIONAL:
            continue
        if _is_function(value) and getattr(value, "__module__", None) != "typing":
            role = "loss" if name in _LOSSES else ""
            yield Target(value, f"torch.nn.functional.{name}", role)


def _operators(torch) -> Iterator[Target]:
    for name, value in vars(torch).items():
        if name.startswith(("_", *_NOT_TORCH_PREFIXES)) or name in _NOT_TORCH:
            continue
        if isinstance(value, types.BuiltinFunctionType):
            role = "loss" if name in _LOSSES else ""
            yield Target(value, f"torch.{name}", role)
    for name in torch.functional.__all__:
        yield Target(getattr(torch.functional, name), f"torch.{name}", "")
    for part in ("fft", "linalg", "special"):
        for name, value in vars(getattr(torch, part)).items():
            if not name.startswith("_") and isinstance(value, types.BuiltinFunctionType):
                yield Target(value, f"torch.{part}.{name}", "")
    yield Target(torch.manual_seed, "torch.manual_seed", "")
    yield Target(torch.set_rng_state, "torch.set_rng_state", "")


def _modules(torch) -> Iterator[Target]:
    module = torch.nn.Module
    flags = _METHOD | _core.MODULE_CALL
    yield Target(module.__call__, "torch.nn.Module.__call__", "forward", flags)
    yield Target(module.zero_grad, "torch.nn.Module.zero_grad", "zero_grad", _METHOD)
    for name in ("train", "eval", "requires_grad_"):
        flags = _METHOD | _core.OUTERMOST
        yield Target(getattr(module, name), f"torch.nn.Module.{name}", "mode", flags)
    for name in ("load_state_dict", "state_dict"):
        flags = _METHOD | _core.OUTERMOST
        yield Target(getattr(module, name), f"torch.nn.Module.{name}", "checkpoint", flags)
    spectral = sys.modules["torch.nn.utils.spectral_norm"].SpectralNorm
    name = "torch.nn.utils.spectral_norm.SpectralNorm.compute_weight"
    yield Target(spectral.compute_weight, name, "", _METHOD)


def _initialization(torch) -> Iterator[Target]:
    for name, value in vars(torch.nn.init).items():
        if name.endswith("_") and not name.startswith("_") and _is_function(value):
            yield Target(value, f"torch.nn.init.{name}", "init")
    for name in _RANDOM_FILLS:
        yield Target(getattr(torch.Tensor, name), f"torch.Tensor.{name}", "init", _METHOD)


def _training(torch) -> Iterator[Target]:
    # The one place that Tensor.backward, autograd.backward and autograd.grad all pass.
    engine = torch.autograd.graph._engine_run_backward
    yield Target(engine, "torch.autograd.backward", "backward")
    for name in ("clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_"):
        value = getattr(torch.nn.utils, name, None)
        if value is not None:
            yield Target(value, f"torch.nn.utils.{name}", "clip_grad")
    scaler = torch.amp.GradScaler
    for name in ("scale", "step", "unscale_", "update"):
        yield Target(getattr(scaler, name), f"torch.amp.GradScaler.{name}", "grad_scaler", _METHOD)
    for name in ("save", "load"):
        yield Target(getattr(torch, name), f"torch.{name}", "checkpoint", _core.ARGUMENTS)
    recomputed = torch.utils.checkpoint.checkpoint
    yield Target(recomputed, "torch.utils.checkpoint.checkpoint", "")
    following = torch.utils.data.dataloader._BaseDataLoaderIter.__next__
    yield Target(following, "torch.utils.data.DataLoader.__next__", "data.next", _METHOD)


def _collectives(torch) -> Iterator[Target]:
    if not torch.distributed.is_available():
        return
    for name in _COLLECTIVES:
        value = getattr(torch.distributed, name, None)
        if value is not None:
            # The sends and receives of a batch are recorded, too.
            flags = _core.ARGUMENTS | (0 if name == "batch_isend_irecv" else _core.OUTERMOST)
            yield Target(value, f"torch.distributed.{name}", "collective", flags)
    yield from _functional_collectives()


def _functional_collectives() -> Iterator[Target]:
    module = sys.modules.get(_FUNCTIONAL)
    for name in _FUNCTIONAL_COLLECTIVES:
        value = getattr(module, name, None)
        if isinstance(value, types.FunctionType):
            flags = _core.ARGUMENTS | _core.OUTERMOST
            yield Target(value, f"{_FUNCTIONAL}.{name}", "collective", flags)


def _optimizers_and_schedulers(torch) -> Iterator[Target]:
    for base in (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler):
        yield from class_targets(torch, base)
    optimizer = torch.optim.Optimizer
    for name in ("load_state_dict", "state_dict"):
        yield Target(getattr(optimizer, name), f"torch.optim.Optimizer.{name}", "checkpoint",
                     _METHOD | _core.OUTERMOST)  # fmt: skip


def class_targets(torch, cls: type) -> Iterator[Target]:
    """What an optimizer or scheduler class defines itself, and its subclasses."""
    own = vars(cls)
    if not issubclass(cls, torch.optim.Optimizer):
        yield from _own_methods(own, [("step", SCHEDULER_STEP, "lr_scheduler.step")])
    elif cls is torch.optim.Optimizer or getattr(own.get("step"), "hooked", False):
        yield from optimizer_targets(cls)
    for subclass in cls.__subclasses__():
        yield from class_targets(torch, subclass)


def optimizer_targets(cls: type) -> Iterator[Target]:
    """What a class of which there are optimizers defines itself. A subclass without instances of
    its own forwards to another optimizer (accelerate's, Lightning's), or does not: its zero_grad
    clears nothing between accumulated passes."""
    own = vars(cls)
    wanted = [("zero_grad", ZERO_GRAD, "zero_grad")]
    if getattr(own.get("step"), "hooked", False):  # by torch, for profiling: see _follow_optimizers
        wanted.append(("step", STEP, "optimizer.step"))
    yield from _own_methods(own, wanted)


def _own_methods(own, wanted: Iterable[tuple[str, str, str]]) -> Iterator[Target]:
    for attribute, name, role in wanted:
        # An optimizer that steps another (ZeroRedundancyOptimizer) has not ended when that has.
        nesting = _core.OUTERMOST if name == STEP else _core.OUTERMOST_SELF
        if isinstance(own.get(attribute), types.FunctionType):
            yield Target(own[attribute], name, role, _METHOD | nesting)


def torch_targets(torch) -> Iterator[Target]:
    """Everything of torch that can be recorded."""
    yield from _functional(torch)
    yield from _operators(torch)
    yield from _modules(torch)
    yield from _initialization(torch)
    yield from _training(torch)
    yield from _collectives(torch)
    yield from _optimizers_and_schedulers(torch)


def tracer_targets(torch) -> Iterator[Target]:
    """What runs a program on stand-ins to write it down, and the like: no call in there is
    training."""
    yield Target(torch.jit.trace, "torch.jit.trace", "", _core.HOLD)
    yield Target(torch.jit.trace_module, "torch.jit.trace_module", "", _core.HOLD)
    yield Target(torch.fx.Tracer.trace, "torch.fx.Tracer.trace", "", _core.HOLD)
    yield Target(torch.export.export, "torch.export.export", "", _core.HOLD)
    # A scheduler's constructor steps it once: that is no call of the user's.
    initial = getattr(torch.optim.lr_scheduler.LRScheduler, "_initial_step", None)
    if initial is not None:
        yield Target(
            initial, "torch.optim.lr_scheduler.LRScheduler._initial_step", "", _core.HOLD
        )


def package_targets(module: types.ModuleType) -> Iterator[Target]:
    """The public functions of a user's module and the public methods of its classes."""
    for name, value in list(vars(module).items()):
        kind = type(value)  # not isinstance(), which asks a proxy what it pretends to be
        is_class = issubclass(kind, type)
        if name.startswith("_") or not (is_class or kind is types.FunctionType):
            continue
        if value.__module__ != module.__name__:
            continue
        if is_class:
            yield from _methods(value, f"{module.__name__}.{name}")
        else:
            yield Target(value, f"{module.__name__}.{name}", "user")


def _methods(cls: type, prefix: str) -> Iterator[Target]:
    for name, value in list(vars(cls).items()):
        if name.startswith("_"):
            continue
        flags = _METHOD
        if issubclass(type(value), (staticmethod, classmethod)):
            flags = _core.ARGUMENTS if issubclass(type(value), staticmethod) else _METHOD
            value = value.__func__
        if type(value) is types.FunctionType:
            yield Target(value, f"{prefix}.{name}", "user", flags)


# ---- installing -----------------------------------------------------------------------------


class Selection:
    """Which targets are hooked: all, or those of some names and roles."""

    def __init__(self, names: Iterable[str] | None, roles: Iterable[str] | None):
        self.everything = names is None and roles is None
        self.names = frozenset(names or ())
        self.roles = frozenset(roles or ())
        self.outermost: set[str] = set()

    def look_at(self, targets: Iterable[Target]) -> None:
        """Where the outermost calls of a role count, one function is recorded only if all are seen:
        `train` that `eval` calls is no call of its own."""
        named = (target for target in targets if target.name in self.names)
        self.outermost.update(t.role for t in named if t.role and t.flags & _core.OUTERMOST)

    def __contains__(self, target: Target) -> bool:
        return (
            self.everything
            or target.name in self.names
            or target.role in self.roles
            or target.role in self.outermost
        )


_selection: Selection | None = None
_packages: tuple[str, ...] = ()


def hook(targets: Iterable[Target]) -> int:
    """Hook the selected ones of `targets` and return how many that were. What cannot be hooked is
    left alone."""
    count = 0
    targets = list(targets)
    _selection.look_at(targets)
    for target in targets:
        if target not in _selection:
            continue
        try:
            _core.hook(*target)
            count += 1
        except (TypeError, RuntimeError, MemoryError):
            # A generator, or a C function of a convention that the interpreter calls itself; or too
            # many, and this may be the definition of a class of the user's.
            pass
    return count


def install(
    names: Iterable[str] | None = None,
    roles: Iterable[str] | None = None,
    packages: Iterable[str] = (),
) -> int:
    """Hook the selected parts of torch and of the user's packages, now and when they are imported.

    names and roles None: everything. Returns the number of hooked callables so far.
    """
    global _selection, _packages
    torch = sys.modules["torch"]
    _selection = Selection(names, roles)
    _packages = tuple(packages)
    for target in tracer_targets(torch):
        _core.hook(*target)
    count = hook(torch_targets(torch))
    _follow_optimizers(torch)
    _follow_subclasses(torch, torch.optim.lr_scheduler.LRScheduler)
    if trainer_plan.MODULE in sys.modules:
        trainer_plan.install(sys.modules[trainer_plan.MODULE])
    for name, module in list(sys.modules.items()):
        if in_packages(name) and isinstance(module, types.ModuleType):
            count += hook(package_targets(module))
    dynamo.prepare()
    return count


def in_packages(module_name: str) -> bool:
    return any(module_name == p or module_name.startswith(p + ".") for p in _packages)


def module_imported(module: types.ModuleType) -> None:
    """Called by attach when a module of the user's packages, of Dynamo, the one of functional
    collectives or of transformers' callbacks has been imported."""
    if _selection is None:
        return
    if module.__name__ == _FUNCTIONAL:
        hook(_functional_collectives())
        communication.functional_imported()
    if module.__name__ == trainer_plan.MODULE:
        trainer_plan.install(module)
    if in_packages(module.__name__):
        hook(package_targets(module))
    dynamo.prepare(executed=module.__name__)


def _follow_optimizers(torch) -> None:
    """Hook the methods of every optimizer class, whoever defines it, when its first instance is
    made: that is when torch wraps step to run the step hooks, and outside of those is where we
    belong."""
    base = torch.optim.Optimizer
    patch = base._patch_step_function
    if hasattr(patch, "__wrapped__"):
        return
    known = weakref.WeakSet()

    @functools.wraps(patch)
    def patch_step_function(self):
        patch(self)
        if type(self) in known:
            return
        known.add(type(self))
        for cls in type(self).__mro__:
            if issubclass(cls, base):
                hook(optimizer_targets(cls))

    base._patch_step_function = patch_step_function


def _follow_subclasses(torch, base: type) -> None:
    """Hook what schedulers that are defined from now on override."""
    if "__init_subclass__" in vars(base):
        return

    def init_subclass(cls, **keywords):
        super(base, cls).__init_subclass__(**keywords)
        hook(class_targets(torch, cls))

    base.__init_subclass__ = classmethod(init_subclass)
