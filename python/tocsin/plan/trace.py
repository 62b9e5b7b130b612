"""One rank's step, traced: the script is built on a fake process group of that rank and runs
forward, backward and optimizer under the tape."""

from __future__ import annotations

import contextlib
import importlib.util
import multiprocessing
import os
import sys
import traceback
from dataclasses import dataclass

import torch
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_leaves

from . import fake_group, placements
from .capture import ExportError, Input, Op, Tape, Value, inner


@dataclass
class Output:
    kind: str  # loss, grad, param, state
    name: str
    starts: tuple[int, ...]
    value: Value


@dataclass
class Trace:
    ops: list[Op]
    inputs: list[Input]
    outputs: list[Output]
    notes: list[str]
    loss_fold: str | None  # how the replicas' losses make the logical one, if the script says


class _Job:
    """What build() returned; a dict or an object."""

    def __init__(self, built):
        def get(key, default=None):
            if isinstance(built, dict):
                return built.get(key, default)
            return getattr(built, key, default)

        self.model, self.batch = get("model"), get("batch")
        self.loss_fn, self.step_fn = get("loss_fn"), get("step_fn")
        self.optimizer = get("optimizer")
        self.shards = get("shards", None) or {}
        self.loss_fold = get("loss_fold")
        if self.model is None or (self.loss_fn is None and self.step_fn is None):
            raise ExportError("build() returns no model, or neither loss_fn nor step_fn")

    def modules(self) -> list:
        return list(self.model) if isinstance(self.model, (list, tuple)) else [self.model]

    def named(self, what: str):
        """named_parameters or named_buffers of all modules, in the names of the model."""
        for module in self.modules():
            for name, tensor in getattr(module, what)():
                yield placements.clean_name(name), tensor

    def run(self):
        """Forward and backward; the loss."""
        if self.step_fn is not None:
            return self.step_fn(self.model, self.batch)
        loss = self.loss_fn(self.model, self.batch)
        loss.backward()
        return loss


def load(path: str, name: str):
    """build() of the script."""
    folder = os.path.dirname(os.path.abspath(path))
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module_name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise ExportError(f"{path} is not a Python script")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    if not hasattr(module, name):
        raise ExportError(f"{path} has no function {name}")
    return getattr(module, name)


@contextlib.contextmanager
def _module_names(tape: Tape, job: _Job):
    names = {id(m): placements.clean_name(n) for each in job.modules()
             for n, m in each.named_modules()}

    def enter(module, args):
        if not tape.modules and torch._C._current_autograd_node() is None:
            tape.restart_labels("fw")
        tape.modules.append(names.get(id(module), tape.modules[-1] if tape.modules else ""))

    def leave(module, args, result):
        tape.modules.pop()

    handles = [torch.nn.modules.module.register_module_forward_pre_hook(enter),
               torch.nn.modules.module.register_module_forward_hook(leave, always_call=True)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def trace(script: str, build: str, arguments: dict, axes: dict[str, int] | None,
          rank: int) -> Trace:
    torch.set_num_threads(1)
    root = os.path.dirname(os.path.abspath(script))
    function = load(script, build)
    mesh = fake_group.start(axes, rank) if axes else None
    torch.manual_seed(0)
    job = _Job(function(mesh, **arguments))
    backend = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    with torch.autograd.set_multithreading_enabled(False), backend:
        tape = Tape(root)
        for module in job.modules():
            tape.notes.update(fake_group.answer_for(module))
        _warm_up(job)
        parameters = _declare(tape, job, mesh)
        outputs = []
        with tape, _module_names(tape, job):
            loss = job.run()
            tape.phase_hint = "opt"
            if loss is not None:
                loss = inner(loss.detach())
                outputs.append(Output("loss", "loss", (0,) * loss.dim(), tape.read(loss)))
            outputs += _gradients(tape, job, mesh, parameters)
            if job.optimizer is not None:
                job.optimizer.step()
                outputs += _updated(tape, job, mesh, parameters)
    return Trace(_needed(tape.ops, outputs), tape.inputs, outputs, sorted(tape.notes),
                 job.loss_fold)


def _needed(ops: list[Op], outputs: list[Output]) -> list[Op]:
    """Without the views and constants that nothing reads: the tape made them in following memory.
    What the script itself computes stays, needed or not."""
    used = {id(output.value) for output in outputs}
    kept = []
    for op in reversed(ops):
        if op.optional and not any(id(v) in used for v in op.outputs):
            continue
        used.update(id(v) for v in op.inputs)
        kept.append(op)
    return kept[::-1]


def _warm_up(job: _Job) -> None:
    """Two steps before the one that is traced: what is made lazily (optimizer state, FSDP's and
    DDP's buffers, DTensor's caches) is there then, as in every step but the first ones."""
    for _ in range(2):
        job.run()
        if job.optimizer is not None:
            job.optimizer.step()
        for _, parameter in job.named("named_parameters"):
            parameter.grad = None


def _declare(tape: Tape, job: _Job, mesh) -> list:
    parameters = list(job.named("named_parameters"))
    for name, tensor in [*parameters, *job.named("named_buffers")]:
        starts = placements.tensor_starts(tensor, name, job.shards, mesh)
        if not tape.known(inner(tensor)):
            tape.declare(inner(tensor).detach(), name, starts)
    for name, key, tensor in _states(job, parameters):
        starts = placements.tensor_starts(tensor, name, job.shards, mesh)
        tape.declare(inner(tensor), f"{name}.{key}", starts)
    for k, tensor in enumerate(tree_leaves(job.batch)):
        if isinstance(tensor, torch.Tensor):
            name, starts, high = placements.batch_slice(tensor) or (
                f"batch.{k}", (0,) * tensor.dim(), None)
            tape.declare(inner(tensor), name, starts, high)
    return parameters


def _states(job: _Job, parameters):
    """The optimizer's tensors that have an element for each of the parameter."""
    if job.optimizer is None:
        return
    for name, parameter in parameters:
        for key, state in sorted(job.optimizer.state.get(parameter, {}).items()):
            if isinstance(state, torch.Tensor) and state.shape == parameter.shape and state.dim():
                yield name, key, state


def _output(tape, kind, name, tensor, declared, mesh, owner=None):
    starts = placements.tensor_starts(tensor, owner or name, declared, mesh)
    return Output(kind, name, starts, tape.read(inner(tensor)))


def _gradients(tape, job, mesh, parameters):
    made = []
    for name, p in parameters:
        gradient = p.grad
        if isinstance(gradient, DTensor) and any(x.is_partial() for x in gradient.placements):
            # Its sum is what the DTensor stands for; whoever uses it makes this reduction.
            gradient = gradient.redistribute(p.device_mesh, p.placements)
        if gradient is not None:
            made.append(_output(tape, "grad", name, gradient, job.shards, mesh))
    return made


def _updated(tape, job, mesh, parameters):
    made = [_output(tape, "param", name, p, job.shards, mesh) for name, p in parameters]
    return made + [_output(tape, "state", f"{name}.{key}", state, job.shards, mesh, name)
                   for name, key, state in _states(job, parameters)]


# ---- each trace in a process of its own ---------------------------------------------------------


def _child(pipe, arguments) -> None:
    try:
        pipe.send((True, trace(*arguments)))
    except ExportError as error:
        pipe.send((False, str(error)))
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        if os.environ.get("TOCSIN_PLAN_DEBUG"):
            traceback.print_exc()
        text = str(error).strip().partition("\n")[0][:300]
        pipe.send((False, f"{type(error).__name__}: {text} ({place.filename}:{place.lineno})"))
    finally:
        pipe.close()
        os._exit(0)  # torch's atexit handlers belong to the parent


def trace_in_process(*arguments) -> Trace:
    """trace(), where a script's global state cannot spoil the next one's."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(there, arguments))
    process.start()
    there.close()
    try:
        good, result = here.recv()
    except EOFError:
        good, result = False, "the traced process died"
    process.join()
    if not good:
        raise ExportError(result)
    return result
