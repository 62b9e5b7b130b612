"""Which samples a DataLoader hands out: one STATE "samples" for each batch (docs/recording.md).

A loader's iterator draws the ids of a batch in `_next_index`, with workers long before it hands the
batch over. So ids wait in a queue per iterator until `__next__` returns.
"""

import numbers
import sys
import weakref

from tocsin import _core

LEDGER = 5  # tocsin/event.h: tocsin_variable_kind
IDS_PER_EVENT = 48
QUEUE_MAX = 4096  # batches drawn and not handed over
DEPTH_MAX = 3  # how deep the first tensor of a batch is looked for
WRAPPERS_MAX = 3  # of batch samplers around a batch sampler

_amount = 0
_loaders: dict[int, "_Loader"] = {}  # by id of what yields the indices
_iterators: dict[int, "_Iterator"] = {}
_count = 0


class _Loader:
    """All iterators over one loader."""

    def __init__(self, number):
        self.name = f"loader{number}"
        self.passes = -1
        self.type = ""
        self.facts = ()


class _Iterator:
    """One pass over the data, or with persistent workers several, one after another."""

    def __init__(self, loader):
        self.loader = loader
        self.queue = []
        self.handed = 0
        self.begin_pass()

    def begin_pass(self):
        self.queue.clear()
        self.handed = 0
        self.loader.passes += 1
        self.epoch = self.loader.passes


def install(torch, amount):
    """Watch loaders. amount: 1 ids, 2 ids and the digest of the batch's first tensor."""
    global _amount
    _amount = amount
    draw = torch.utils.data.dataloader._BaseDataLoaderIter._next_index
    _core.watch_hook(_core.hook(draw, "torch.utils.data.DataLoader._next_index", "", _core.METHOD),
                     drawn)  # fmt: skip
    _core.watch_role("data.next", handed_over)


def _forget(table, key):
    return lambda _: table.pop(key, None)


def _remember(table, thing, entry):
    """Keep `entry` as long as `thing` lives; for ever if that cannot be known."""
    key = id(thing)
    try:
        reference = weakref.ref(thing, _forget(table, key))
    except TypeError:
        reference = thing
    table[key] = (reference, entry)
    return entry


def _recall(table, thing):
    found = table.get(id(thing))
    return None if found is None else found[1]


def _own(thing, name):
    """An attribute that the object itself has: no code of the user's runs."""
    try:
        return object.__getattribute__(thing, "__dict__").get(name)
    except AttributeError:
        return None


def _sampler(indices):
    """What draws single samples: that of a BatchSampler, which others may wrap."""
    for _ in range(WRAPPERS_MAX):
        indices = _own(indices, "batch_sampler") or indices
    return _own(indices, "sampler") or indices


def _skips(indices):
    """Does a batch sampler leave out the first batches? So an epoch goes on after a restart."""
    for _ in range(WRAPPERS_MAX):
        if _own(indices, "skip_batches"):
            return True
        indices = _own(indices, "batch_sampler") or indices
    return False


def _facts(iterator, indices):
    """What is known of the loader, as pairs."""
    sampler = _sampler(indices)
    facts = [("sampler", type(sampler).__name__)]
    try:
        facts.append(("dataset_size", len(_own(iterator, "_dataset"))))
    except Exception:
        pass  # an iterable dataset
    shuffle = _own(sampler, "shuffle")
    partial = _skips(indices) or None
    if type(sampler).__name__ == "RandomSampler":
        shuffle = True
        if _own(sampler, "replacement") or _own(sampler, "_num_samples") is not None:
            partial = True
    for name, value in (
        ("shuffle", shuffle),
        ("partial", partial),
        ("replicas", _own(sampler, "num_replicas")),
        ("drop_last", _own(indices, "drop_last")),
        ("workers", _own(iterator, "_num_workers")),
    ):
        if type(value) in (bool, int):
            facts.append((name, value))
    return tuple(facts)


def _of(iterator):
    global _count
    found = _recall(_iterators, iterator)
    if found is not None:
        return found
    indices = _own(iterator, "_index_sampler")
    if indices is None:
        return None
    loader = _recall(_loaders, indices)
    if loader is None:
        loader = _remember(_loaders, indices, _Loader(_count))
        _count += 1
        loader.facts = _facts(iterator, indices)
    return _remember(_iterators, iterator, _Iterator(loader))


def drawn(_, args, kwargs, result):
    """The ids of a batch were drawn."""
    state = _of(args[0])
    if state is None:
        return
    if state.handed > 0 and _own(args[0], "_num_yielded") == 0:
        state.begin_pass()
    if len(state.queue) < QUEUE_MAX:
        state.queue.append(result)


def _id(value):
    if type(value) in (int, str):
        return value
    return int(value) if isinstance(value, numbers.Integral) else None


def _ids(indices):
    """The ids of a batch, or of a single sample. None: samples have none (iterable datasets)."""
    if not isinstance(indices, (list, tuple)):
        indices = (indices,)
    found = [_id(value) for value in indices]
    return None if None in found else found


def _first_tensor(value, depth=0):
    if depth > DEPTH_MAX:
        return None
    if isinstance(value, dict):
        value = list(dict.values(value))
    if isinstance(value, (list, tuple)):
        for item in value:
            tensor = _first_tensor(item, depth + 1)
            if tensor is not None:
                return tensor
        return None
    return value if isinstance(value, sys.modules["torch"].Tensor) else None


def handed_over(_, args, kwargs, result):
    """A batch was handed over: the ids that were drawn first are its."""
    state = _of(args[0])
    if state is None:
        return
    indices = state.queue.pop(0) if state.queue else None
    ids = _ids(indices) or []
    number, state.handed = state.handed, state.handed + 1
    epoch = _own(_sampler(_own(args[0], "_index_sampler")), "epoch")
    first = [("batch", number), ("epoch", state.epoch), ("size", len(ids))]
    if number == 0:
        first += state.loader.facts
        if type(epoch) is int:
            first.append(("sampler_epoch", epoch))
    workers = _own(args[0], "_num_workers")
    if type(workers) is int and workers > 0:
        first.append(("worker", number % workers))
    tensor = _first_tensor(result)
    begin = IDS_PER_EVENT - len(first)
    pairs = first + [("id", each) for each in ids[:begin]]
    _core.record_state(state.loader.name, LEDGER, "torch.utils.data.DataLoader", "samples",
                       _amount, tensor, _amount > 1, tuple(pairs))  # fmt: skip
    for begin in range(begin, len(ids), IDS_PER_EVENT):
        pairs = [("batch", number)] + [("id", each) for each in ids[begin : begin + IDS_PER_EVENT]]
        _core.record_state(state.loader.name, LEDGER, "torch.utils.data.DataLoader", "samples",
                           0, None, False, tuple(pairs))  # fmt: skip
