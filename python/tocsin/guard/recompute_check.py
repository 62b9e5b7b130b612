"""Activations: what backward uses is what forward made (docs/guard.md, Beyond).

Saved: a tensor that autograd keeps is digested when it is kept and again when it is used.
Recomputed: the outputs of modules in a recomputed region (torch.utils.checkpoint or any other) are
digested in the forward pass and when they are computed again, inside backward. Which modules are
recomputed shows in the first step, in which all outputs are digested; from then on only theirs are.
"""

import contextlib
import gc
import sys
import threading

from tocsin.guard import digests
from tocsin.guard.comparison import Comparison
from tocsin.guard.gradient_check import plain_name
from tocsin.messages import say

_PENDING_MAX = 64  # calls of one module in a step that wait to be recomputed


class _Kept:
    """What autograd keeps instead of a tensor."""

    __slots__ = ("tensor", "version", "digest", "name")

    def __init__(self, tensor, version):
        self.tensor, self.version, self.digest, self.name = tensor, version, b"", None


class _Run:
    """One call of a module."""

    __slots__ = ("module", "random", "versions", "table")

    def __init__(self, module, random, versions):
        self.module, self.random, self.versions, self.table = module, random, versions, b""


def _is_plain(torch, tensor):
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided


def _tensors(torch, value):
    """The tensors in nested tuples, lists and dicts, in order."""
    if isinstance(value, torch.Tensor):
        return [value] if _is_plain(torch, value) else []
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (tuple, list)):
        return []
    return [tensor for each in value for tensor in _tensors(torch, each)]


def _is_weight(tensor):
    """Parameters are the memory check's business, and so are views of them."""
    base = tensor if tensor._base is None else tensor._base
    return base.is_leaf and base.requires_grad


class RecomputeCheck:
    def __init__(self, guard):
        self.guard = guard
        self.torch = sys.modules["torch"]
        self.saved = Comparison(guard, "saved")
        self.recomputed = Comparison(guard, "recompute")
        self.uncompared = 0  # recomputed calls under other random numbers or parameters
        self.recomputes = set()  # modules, by number
        self._learning, self._told = True, False
        self._pending = {}  # number of a module -> its calls in the forward pass
        self._buffers = set()  # addresses
        self._local = threading.local()  # calls under way, in each thread
        self._names, self._state, self._handles = [], [], []
        for name, module in guard.model.named_modules():
            if not isinstance(module, self.torch.jit.ScriptModule):
                self._watch(module, plain_name(name))

    def _watch(self, module, name):
        number = len(self._names)
        self._names.append(name or type(module).__name__)
        self._state.append(_places_of_state(self.torch, module))

        def before(called, arguments):
            if not (self.torch.compiler.is_compiling() or self._rests() or called is not module):
                self._before(number, module)

        def after(called, arguments, output):
            if not (self.torch.compiler.is_compiling() or self._rests() or called is not module):
                self._after(number, output)

        # Functions, which copies of the module share: not for them.
        self._handles.append(module.register_forward_pre_hook(before))
        self._handles.append(module.register_forward_hook(after))

    def _rests(self):
        """Nothing is read in replays, and while a CUDA graph is captured."""
        return self.guard.replaying or digests.is_capturing()

    # ---- saved activations ----

    def forward(self):
        """A context in which tensors are saved."""
        self._buffers.clear()
        self._note_buffers(self.guard.model.modules())
        return self.torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)

    def _pack(self, tensor):
        if tensor.is_inference():
            return tensor
        # the tensor itself would hold the graph that holds it
        kept = _Kept(tensor if tensor.is_leaf else tensor.detach(), tensor._version)
        if self._is_activation(tensor):
            with contextlib.suppress(TypeError, ValueError, RuntimeError):
                kept.digest = digests.digest([kept.tensor])
            kept.name = self._inside()
        return kept

    def _is_activation(self, tensor):
        return (_is_plain(self.torch, tensor) and tensor.numel() > 0 and not _is_weight(tensor)
                and tensor.data_ptr() not in self._buffers
                and not digests.is_capturing())  # fmt: skip

    def _unpack(self, kept):
        if type(kept) is not _Kept:
            return kept
        tensor = kept.tensor
        if tensor._version != kept.version:  # torch does not look where there are hooks
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                f"inplace operation: [{tensor.type()} {list(tensor.shape)}] is at version "
                f"{tensor._version}; expected version {kept.version} instead"
            )
        if kept.digest and not digests.is_capturing():
            seen = digests.digest([tensor])
            if seen == kept.digest or not self._is_buffer(tensor):
                self.saved.add(kept.digest, seen, lambda: self._saved_name(kept), tensor)
        return tensor

    def _is_buffer(self, tensor):
        """Batch normalisation keeps its running statistics for backward and changes them at once,
        uncounted; modules besides the model may do so, too."""
        address = tensor.data_ptr()
        if address not in self._buffers:
            module = self.torch.nn.Module
            self._note_buffers(
                # not isinstance(), which asks objects that may be gone for their class
                [each for each in gc.get_objects() if issubclass(type(each), module)]
            )
        return address in self._buffers

    def _note_buffers(self, modules):
        for module in modules:
            for buffer in vars(module).get("_buffers", {}).values():
                if buffer is not None and _is_plain(self.torch, buffer):
                    self._buffers.add(buffer.data_ptr())

    def _saved_name(self, kept):
        dtype = str(kept.tensor.dtype).removeprefix("torch.")
        name = self._names[kept.name] if kept.name is not None else "the loss"
        return f"{name}: {dtype}{list(kept.tensor.shape)}"

    # ---- recomputed activations ----

    def _stack(self):
        if not hasattr(self._local, "stack"):
            self._local.stack = []
        return self._local.stack

    def _inside(self):
        """The module whose forward is running."""
        stack = self._stack()
        return stack[-1].module if stack else None

    def _before(self, number, module):
        again = self._in_backward()
        if again:
            self.recomputes.add(number)
        run = _Run(number, None, None)
        trains = module.training or self.torch.is_grad_enabled()  # an evaluation is not recomputed
        if again or (trains and (self._learning or number in self.recomputes)):
            run.random, run.versions = self._random(), self._versions(number)
        self._stack().append(run)

    def _after(self, number, output):
        stack = self._stack()
        while stack and stack[-1].module != number:
            stack.pop()  # a recomputation that was broken off, or an exception
        if not stack:
            return
        run = stack.pop()
        if run.random is None:
            return
        tensors = _tensors(self.torch, output)
        try:
            with self.torch.no_grad():
                run.table = digests.digest(tensors)
        except (TypeError, ValueError, RuntimeError):  # of functorch, fake
            return
        if self._in_backward():
            self._compare(run, tensors)
        else:
            calls = self._pending.setdefault(number, [])
            if len(calls) <= _PENDING_MAX:
                calls.append(run)

    def _in_backward(self):
        return self.torch._C._current_graph_task_id() != -1

    def _random(self):
        """The states of the generators: where they differ, dropout does by right."""
        torch = self.torch
        states = [hash(torch.get_rng_state().numpy().tobytes())]
        if torch.cuda.is_initialized():
            states.append(hash(torch.cuda.get_rng_state().numpy().tobytes()))
        return states

    def _versions(self, number):
        """What else an output depends on: parameters, and buffers that a call may change."""
        versions = []
        for module, names, members in self._state[number]:
            for name in names:
                tensor = members.get(name)
                if tensor is not None and not tensor.is_inference():
                    versions.append(tensor._version)
        return versions

    def _compare(self, run, tensors):
        calls = self._pending.get(run.module, [])
        if len(calls) > _PENDING_MAX:
            calls = []
        alike = [
            call for call in calls
            if (call.random, call.versions) == (run.random, run.versions)
            and len(call.table) == len(run.table)
        ]  # fmt: skip
        if not alike:
            self.uncompared += 1
            return
        equal = next((call for call in alike if call.table == run.table), None)
        forward = equal or alike[0]  # which stays: backward may come twice
        for i, tensor in enumerate(tensors):
            place = slice(i * digests.BYTES, (i + 1) * digests.BYTES)
            self.recomputed.add(forward.table[place], run.table[place],
                                lambda: self._names[run.module], tensor)  # fmt: skip

    # ---- in a step ----

    def suspicious(self):
        return bool(self.saved.differ or self.recomputed.differ)

    def before_update(self):
        deterministic = self.torch.are_deterministic_algorithms_enabled()
        return self.saved.findings() + self.recomputed.findings(deterministic)

    def after_update(self):
        self.saved.end_step()
        self.recomputed.end_step()
        self._pending.clear()
        self._stack().clear()
        self._learning = False
        if self.uncompared and not self._told:
            self._told = True
            say("guard: what is recomputed with other random numbers or weights than the forward "
                "pass had is not compared")  # fmt: skip
        return []

    def close(self):
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._pending.clear()


def _places_of_state(torch, module):
    """(module, names, dict of tensors) of all that a call of a module may read. The running
    statistics of batch normalisation change in each call and decide nothing in training."""
    places = []
    for each in module.modules():
        if isinstance(each, torch.jit.ScriptModule):
            continue
        places.append((each, tuple(each._parameters), each._parameters))
        if each._buffers and not isinstance(each, torch.nn.modules.batchnorm._NormBase):
            places.append((each, tuple(each._buffers), each._buffers))
    return places
