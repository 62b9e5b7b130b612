"""What a rank computed in a step, kept so that another one can compute it again to the bit.

A *work* is one micro-batch: what it began with (generators, buffers, autocast) and what came out
(the bits of its loss and, when asked, digests of its gradients). Computing it again touches no
`.grad` and no hook of a parameter's accumulation; replay_isolation.py does the rest.
"""

import array
import base64
import contextlib
import ctypes
import dataclasses
import hashlib
import random
import sys
from collections.abc import Mapping

import torch

from tocsin.guard import digests

BYTES = digests.BYTES
_ABSENT = b"\xff" * BYTES  # a parameter without a gradient
_PLAIN = (str, bytes, int, float, complex, bool, type(None))
_COUNTED = (bool, int, float)  # attributes of modules that a forward pass may read and change


class Refused(Exception):
    """Why no rank can compute a batch again."""


# ---- digests ------------------------------------------------------------------------------------


def hashed(*parts):
    """A digest of texts and bytes."""
    state = hashlib.blake2b(digest_size=BYTES)
    for part in parts:
        part = part.encode() if isinstance(part, str) else part
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.digest()


def _strided(tensor):
    """The tensors that hold the values of one, whatever its layout."""
    tensor = tensor.detach()
    if tensor.layout == torch.strided:
        return [tensor]
    if tensor.layout == torch.sparse_coo:
        tensor = tensor.coalesce()
        return [tensor.indices(), tensor.values()]
    return []


def digest(tensors):
    """One digest of tensors, their types and shapes."""
    tensors = [part for tensor in tensors for part in _strided(tensor)]
    form = repr([(str(each.dtype), tuple(each.shape)) for each in tensors])
    return hashed(form, digests.digest(tensors))


def _leaves(value):
    """Tensors and plain values in nested containers, in order."""
    if isinstance(value, (torch.Tensor, *_PLAIN)):
        yield value
    elif isinstance(value, Mapping):
        for key in value:
            yield key
            yield from _leaves(value[key])
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    elif dataclasses.is_dataclass(value):
        yield from _leaves({field.name: getattr(value, field.name)
                            for field in dataclasses.fields(value)})  # fmt: skip
    elif hasattr(value, "tobytes") and hasattr(value, "shape"):  # numpy's
        yield f"{value.dtype} {value.shape}"
        yield value.tobytes()
    else:
        yield type(value).__qualname__  # what is in it is not known


def batch_digest(batch):
    """A digest of all that a batch holds."""
    leaves = list(_leaves(batch))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    others = [leaf for leaf in leaves if not isinstance(leaf, torch.Tensor)]
    return hashed(repr(others), digest(tensors)).hex()


def batch_shapes(batch):
    """The types and shapes of its tensors, as text."""
    return repr([(str(leaf.dtype), tuple(leaf.shape)) for leaf in _leaves(batch)
                 if isinstance(leaf, torch.Tensor)])  # fmt: skip


# ---- bits as text -------------------------------------------------------------------------------


def _bytes(tensor):
    tensor = tensor.detach().cpu().contiguous()
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def bits(tensor):
    """A tensor's type, shape and bits in a form that json can write."""
    data = base64.b85encode(_bytes(tensor)).decode()
    return [str(tensor.dtype).removeprefix("torch."), list(tensor.shape), data]


def from_bits(form, device="cpu"):
    name, shape, data = form
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{name!r} is no type of a tensor")
    raw = bytearray(base64.b85decode(data))
    flat = torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)
    return flat.reshape(shape).to(device)


def value_text(form):
    """The number of a loss, in full."""
    tensor = from_bits(form)
    return repr(tensor.double().item()) if tensor.numel() == 1 else f"{tensor.numel()} elements"


# ---- generators ---------------------------------------------------------------------------------


def _numpy_random():
    random_ = getattr(sys.modules.get("numpy"), "random", None)
    return random_ if hasattr(random_, "set_state") else None


def generator_states(device):
    """Of every generator that is drawn from unless another is named."""
    states = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if device.type not in ("cpu", "meta"):
        states["device"] = torch.get_device_module(device).get_rng_state(device)
    numpy_random = _numpy_random()
    if numpy_random is not None:
        states["numpy"] = numpy_random.get_state()
    return states


def set_generator_states(states, device):
    torch.set_rng_state(states["torch"])
    random.setstate(states["python"])
    if "device" in states and device.type not in ("cpu", "meta"):
        torch.get_device_module(device).set_rng_state(states["device"], device)
    numpy_random = _numpy_random()
    if "numpy" in states and numpy_random is not None:
        numpy_random.set_state(states["numpy"])


def _words(words):
    return base64.b85encode(array.array("I", words).tobytes()).decode()


def _from_words(text):
    return array.array("I", base64.b85decode(text))


def states_as_json(states):
    version, words, gauss = states["python"]
    packed = {"torch": bits(states["torch"]), "python": [version, _words(words), gauss]}
    if "device" in states:
        packed["device"] = bits(states["device"])
    if "numpy" in states:
        kind, key, *rest = states["numpy"]
        packed["numpy"] = [kind, _words(key.tolist()), *rest]
    return packed


def states_from_json(packed):
    version, words, gauss = packed["python"]
    states = {"torch": from_bits(packed["torch"]),
              "python": (version, tuple(_from_words(words)), gauss)}  # fmt: skip
    if "device" in packed:
        states["device"] = from_bits(packed["device"])
    if "numpy" in packed:
        kind, words, *rest = packed["numpy"]
        states["numpy"] = (kind, _from_words(words), *rest)
    return states


# ---- what surrounds a computation ---------------------------------------------------------------


def autocast_state(device):
    return [
        (kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind),
         torch.is_autocast_cache_enabled())
        for kind in dict.fromkeys(("cpu", device.type)) if kind != "meta"
    ]  # fmt: skip


@contextlib.contextmanager
def autocast_as(state):
    with contextlib.ExitStack() as stack:
        for kind, enabled, dtype, cache in state:
            if enabled or torch.is_autocast_enabled(kind):
                stack.enter_context(
                    torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=cache)
                )
        yield


def influential_buffers(module):
    """Buffers that a training forward may read. Those of a normalisation in training are written
    only, and differ between healthy ranks."""
    seen = {}
    for each in module.modules():
        if isinstance(each, torch.nn.modules.batchnorm._NormBase) and each.training:
            continue
        for buffer in each._buffers.values():
            if buffer is not None:
                seen[id(buffer)] = buffer
    return list(seen.values())


def write(buffer, value):
    """Without a new version: a graph that is kept stays usable. An element that lies in several
    places is written once."""
    into = buffer.data
    if into.layout == torch.strided:
        once = tuple(slice(0, 1) if step == 0 else slice(None) for step in into.stride())
        into, value = into[once], value[once]
    into.copy_(value)


def packed(tensors):
    return b"".join(_bytes(each) for each in tensors)


def unpacked(data, form):
    """Tensors like those of `form`, with these bytes."""
    found, place = [], 0
    for each in form:
        size = each.numel() * each.element_size()
        part = bytearray(data[place : place + size])
        place += size
        flat = torch.frombuffer(part, dtype=each.dtype) if part else each.new_empty(0)
        found.append(flat.reshape(each.shape).to(each.device))
    if place != len(data):
        raise ValueError("the other rank's buffers have other shapes")
    return found


def write_buffers(module, values):
    for buffer, value in zip(influential_buffers(module), values, strict=True):
        write(buffer, value)


def plain_attributes(module):
    """Counters, rates and modes of each module, such as `training`."""
    return [{name: value for name, value in vars(each).items() if type(value) in _COUNTED}
            for each in module.modules()]  # fmt: skip


def set_plain_attributes(module, attributes):
    for each, kept in zip(module.modules(), attributes, strict=True):
        for name, value in kept.items():
            if vars(each).get(name) is not value:
                vars(each)[name] = value


def inner_module(model):
    """What DistributedDataParallel wraps, else the model itself."""
    return model.module if is_wrapped(model) else model


def is_wrapped(model):
    return isinstance(model, torch.nn.parallel.DistributedDataParallel)


def versions(module):
    """How often torch saw each parameter being written to."""
    return [None if each.is_inference() else each._version for each in module.parameters()]


# ---- works --------------------------------------------------------------------------------------


def loss_of(result):
    """The loss in what compute_loss returned: a tensor, the first one of a tuple, or `loss`."""
    if isinstance(result, (tuple, list)) and result:
        result = result[0]
    elif isinstance(result, Mapping):
        result = result.get("loss")
    elif not isinstance(result, torch.Tensor):
        result = getattr(result, "loss", None)
    if not isinstance(result, torch.Tensor):
        raise TypeError("compute_loss returned no loss: a tensor, the first of a tuple, or .loss")
    return result


@dataclasses.dataclass
class Work:
    """One micro-batch of this rank."""

    generators: dict
    autocast: list
    batch: str = ""  # its digest; "": not taken
    buffers: str = ""  # digest of those that a forward may read
    follows: bool = False  # it began with rank 0's buffers
    snapshot: list | None = None  # of those buffers
    attributes: list | None = None  # plain ones of all modules
    versions: list | None = None  # of the parameters
    loss: torch.Tensor | None = None
    seed: torch.Tensor | None = None  # the gradient that backward began with; None: no backward
    seed_autocast: list = dataclasses.field(default_factory=list)
    gradients: dict = dataclasses.field(default_factory=dict)  # number of the parameter -> digest
    mixed: bool = False  # its gradients cannot be told from another's

    def take_state(self, module):
        self.attributes, self.versions = plain_attributes(module), versions(module)
        self.snapshot = [buffer.clone() for buffer in influential_buffers(module)]
        self.buffers = digest(self.snapshot).hex()

    def row(self):
        """What another rank needs, but for the generators."""
        return {"batch": self.batch, "buffers": self.buffers, "follows": self.follows,
                "seed": bits(self.seed), "mixed": self.mixed}  # fmt: skip


def gradient_digests(work, count):
    return [work.gradients.get(number, _ABSENT) for number in range(count)]


class GradientWatch:
    """Digests of what backward gives each parameter, from hooks; on the steps that are replayed.

    Looked at is `.grad` after it was written, if it was empty before, so that a fault there is
    seen, too; else what is about to be added to it, for what is in it may be an average.
    """

    def __init__(self, parameters):
        self.work = None  # whose backward runs
        self._handles = []
        for number, parameter in enumerate(parameters):
            fresh = [False]
            self._handles.append(parameter.register_hook(self._before(number, parameter, fresh)))
            self._handles.append(
                parameter.register_post_accumulate_grad_hook(self._after(number, fresh))
            )

    def _keep(self, number, gradient):
        if self.work is not None:
            self.work.mixed |= number in self.work.gradients
            self.work.gradients[number] = digest([gradient])

    def _before(self, number, parameter, fresh):
        def arrives(gradient):
            fresh[0] = parameter.grad is None
            if not fresh[0]:
                self._keep(number, gradient)

        return arrives

    def _after(self, number, fresh):
        def accumulated(parameter):
            if fresh[0]:
                self._keep(number, parameter.grad)

        return accumulated

    def remove(self):
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


@dataclasses.dataclass
class Outcome:
    """What computing the works of a rank gave."""

    losses: list = dataclasses.field(default_factory=list)  # bits
    gradients: list = dataclasses.field(default_factory=list)  # a list of digests for each
    batches: list = dataclasses.field(default_factory=list)  # digests
    finite: bool = True
    obstacle: str = ""  # why nothing was computed, and never will be

    def digest(self):
        return hashed(repr(self.losses), *(b"".join(each) for each in self.gradients))


class Worker:
    """Computes works again on this rank."""

    def __init__(self, model, loss_function):
        self.model, self.loss_function = model, loss_function
        self.module = inner_module(model)

    @property
    def parameters(self):
        return {name: parameter for name, parameter in self.module.named_parameters()
                if parameter.requires_grad}  # fmt: skip

    @property
    def device(self):
        parameter = next(self.module.parameters(), None)
        return torch.device("cpu") if parameter is None else parameter.device

    def begin(self):
        return Work(generator_states(self.device), autocast_state(self.device))

    def compute(self, batch, work, outcome, gradients):
        """Add what a work gives to the outcome. work: its generators, seed, autocast."""
        torch.clear_autocast_cache()  # no weight that was cast before
        set_generator_states(work.generators, self.device)
        if work.attributes is not None:
            set_plain_attributes(self.module, work.attributes)
        with torch.enable_grad():
            with autocast_as(work.autocast):
                loss = loss_of(self.loss_function(self.model, batch))
            outcome.losses.append(bits(loss))
            outcome.finite &= bool(torch.isfinite(loss.detach()).all())
            if gradients:
                self._differentiate(loss, work, outcome)
        torch.clear_autocast_cache()

    def _differentiate(self, loss, work, outcome):
        seed = work.seed.to(loss.device)
        with autocast_as(work.seed_autocast):
            found = torch.autograd.grad(
                loss, list(self.parameters.values()), grad_outputs=seed, allow_unused=True
            )
        outcome.gradients.append(
            [_ABSENT if gradient is None else digest([gradient]) for gradient in found]
        )
        for gradient in found:
            for part in () if gradient is None else _strided(gradient):
                if part.is_floating_point() or part.is_complex():
                    outcome.finite &= bool(torch.isfinite(part).all())
