"""What is in a checkpoint: its tensors by name, and everything else in a form that is the same for
the same value. Of a state that is about to be saved, of a file of torch.save, and of a folder of
torch.distributed.checkpoint.

No code of a file's runs: tensors and values are read with weights_only, a folder's index by an
unpickler that knows nothing but the records in it.
"""

import collections
import dataclasses
import io
import json
import os
import pickle
import sys
import zipfile

from tocsin import _core

DEPTH_MAX = 64  # of containers in containers
INTEGER_BITS_MAX = 8 * 255 - 1  # of those that torch.load reads
INDEX_BYTES_MAX = 1 << 30
INDEX = ".metadata"  # of a folder
SIDE_IN_FOLDER = "tocsin-digests.json"


class Unreadable(ValueError):
    """This is no checkpoint, or not all of one."""


class Digests:
    """The digests of a checkpoint (tocsin/gate.h)."""

    def __init__(self, handle=None):
        self.handle = _core.checkpoint_digests_new() if handle is None else handle

    @classmethod
    def read(cls, path):
        return cls(_core.checkpoint_digests_read(path))

    def add(self, piece, voted=False, digest=None):
        """A piece; its digest is computed unless given."""
        if piece.tensor is None:
            _core.checkpoint_digests_add_value(self.handle, piece.name, piece.value)
            return
        tensor = _dense(piece.tensor) if digest is None else piece.tensor
        address = tensor.data_ptr() if digest is None else 0
        dtype = str(tensor.dtype).removeprefix("torch.")
        form = (address, dtype, tuple(tensor.shape), tuple(tensor.stride()))
        whole = form[2] if piece.whole is None else piece.whole
        offset = (0,) * len(form[2]) if piece.offset is None else piece.offset
        _core.checkpoint_digests_add(self.handle, piece.name, form, whole, offset, voted, digest)

    def merge(self, text):
        _core.checkpoint_digests_merge(self.handle, text)

    def text(self):
        return _core.checkpoint_digests_write(self.handle)

    def describe(self):
        return _core.checkpoint_digests_describe(self.handle)

    def differences(self, found):
        """How `found` differs from these."""
        return _core.checkpoint_digests_compare(self.handle, found.handle)


@dataclasses.dataclass
class Piece:
    """A tensor, a piece of one, or a value."""

    name: str
    tensor: object = None
    value: str = ""
    whole: tuple | None = None  # shape of the tensor it is a piece of; None: it is whole
    offset: tuple | None = None


def _torch():
    return sys.modules["torch"]


def _dense(tensor):
    """The same words in host memory."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    return tensor.cpu() if tensor.device.type != "cpu" else tensor


# ---- values ---------------------------------------------------------------------------------


_DICTS = (dict, collections.OrderedDict, collections.Counter)


def _tagged(value, name, depth=0):
    """A value as what json can write, types told apart. No type but those that torch.load reads
    with weights_only: a checkpoint that could not be read back would look damaged."""
    torch = _torch()
    if depth > DEPTH_MAX:
        raise Unreadable(f"{name}: more than {DEPTH_MAX} containers in each other")
    if type(value) is int and value.bit_length() > INTEGER_BITS_MAX:
        raise Unreadable(f"{name}: an integer of {value.bit_length()} bits cannot be read back")
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) in _DICTS:
        return {"dict": [[_tagged(key, name, depth + 1), _tagged(item, name, depth + 1)]
                         for key, item in value.items()]}  # fmt: skip
    if type(value) in (list, tuple, torch.Size):
        kind = "list" if type(value) is list else "tuple"
        return {kind: [_tagged(item, name, depth + 1) for item in value]}
    if type(value) is set:
        return {"set": sorted(json.dumps(_tagged(item, name, depth + 1)) for item in value)}
    if type(value) in (bytes, bytearray):
        return {"bytes": bytes(value).hex()}
    if type(value) is complex:
        return {"complex": [value.real, value.imag]}
    if type(value) in (torch.dtype, torch.device, torch.layout):
        return {"torch": str(value)}
    raise Unreadable(
        f"{name} is a {type(value).__name__}, which cannot be read back without running code of "
        "the checkpoint's"
    )


def canonical(value, name):
    return json.dumps(_tagged(value, name), separators=(",", ":"))


# ---- a state ---------------------------------------------------------------------------------


def pieces_of_state(state):
    """The pieces of what torch.save is given, or torch.load returns, each by a name of its own."""
    names = set()
    for path, tensor, value in _walk(state, "", 0):
        name, times = path or ".", 1
        if "\0" in name:
            raise Unreadable(f"{name!r}: a byte 0 in a name has no place in the digests")
        while name in names:
            times += 1
            name = f"{path}#{times}"
        names.add(name)
        yield Piece(name, tensor, value)


def _walk(value, path, depth):
    torch = _torch()
    if depth > DEPTH_MAX:
        raise Unreadable(f"{path}: more than {DEPTH_MAX} containers in each other")
    if isinstance(value, torch.Tensor):
        yield from _tensors(value, path)
    elif type(value) in _DICTS:
        yield path, None, canonical({"keys": list(value)}, path)
        for key, item in value.items():
            yield from _walk(item, f"{path}.{key}" if path else str(key), depth + 1)
    elif type(value) in (list, tuple):
        yield path, None, canonical({type(value).__name__: len(value)}, path)
        for index, item in enumerate(value):
            yield from _walk(item, f"{path}.{index}" if path else str(index), depth + 1)
    else:
        yield path, None, canonical(value, path)


def check_dense(tensor, name):
    """Refuse a tensor that could not be read back, or has no digest."""
    torch = _torch()
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        canonical(tensor, name)  # which refuses it
    kind = ("quantized" if tensor.is_quantized else "nested" if tensor.is_nested else
            "meta" if tensor.is_meta else str(tensor.layout).removeprefix("torch."))  # fmt: skip
    if kind != "strided":
        raise Unreadable(f"{name}: {kind} tensors have no digest here")


def _tensors(tensor, path):
    """The dense tensors that a tensor consists of."""
    torch = _torch()
    if hasattr(tensor, "_local_tensor"):
        raise Unreadable(f"{path} lies on several ranks: save_distributed saves such tensors")
    if tensor.layout == torch.sparse_coo:
        yield f"{path}#indices", tensor._indices(), ""
        yield f"{path}#values", tensor._values(), ""
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        yield f"{path}#rows", tensor.crow_indices(), ""
        yield f"{path}#columns", tensor.col_indices(), ""
        yield f"{path}#values", tensor.values(), ""
    else:
        check_dense(tensor, path)
        yield path, tensor, ""
        return
    yield path, None, canonical([str(tensor.layout), *tensor.shape], path)


# ---- files -----------------------------------------------------------------------------------


def _reason(error):
    """The first sentence of what torch.load says."""
    text = str(error).rpartition("WeightsUnpickler error: ")[2].strip()
    text = text.partition("\n")[0].partition(". ")[0]
    known = isinstance(error, (RuntimeError, pickle.UnpicklingError)) and text
    return text if known else f"{type(error).__name__} {text}".strip()


def _load(file, where, **options):
    try:
        return _torch().load(file, map_location="cpu", weights_only=True, **options)
    except Exception as error:
        raise Unreadable(f"{where}: torch.load cannot read it: {_reason(error)}") from error


def _is_mappable(file, path):
    """May tensors stay in the file? Not in one of the old format, nor in one that was compressed,
    nor where torch cannot pass its name on."""
    try:
        str(path).encode()
        entries = zipfile.ZipFile(file).infolist()
    except Exception:  # noqa: BLE001 (torch.load says what is wrong)
        return False
    return all(entry.compress_type == zipfile.ZIP_STORED for entry in entries)


def load_file(path, mapped=True):
    """What is in a file of torch.save. mapped: tensors stay in the file, if they can."""
    with open(path, "rb") as file:
        if mapped and _is_mappable(file, path):
            return _load(path, path, mmap=True)
        file.seek(0)
        return _load(file, path)


# ---- folders ---------------------------------------------------------------------------------


def is_of_folder(name):
    """Is a file of this name one of a folder's own?"""
    return name in (INDEX, SIDE_IN_FOLDER) or name.endswith(".distcp")


class _Record:
    """An object in a folder's index: no more than what was stored of it."""

    def __init__(self, *values):
        self.values = values

    def __setstate__(self, state):
        if isinstance(state, dict):
            self.__dict__.update({str(key): value for key, value in state.items()})


class _Metadata(_Record):
    pass


class _TensorRecord(_Record):
    pass


def _member(owner, name):
    """What CPython 3.11.0 to 3.11.3 write for a member of an enumeration: getattr(class, name)."""
    if owner is not _Record or not isinstance(name, str):
        raise Unreadable("it asks for builtins.getattr, which no index of a checkpoint holds")
    return _Record(name)


_METADATA = "torch.distributed.checkpoint.metadata"
_KNOWN = {
    (_METADATA, "Metadata"): _Metadata,
    (_METADATA, "TensorStorageMetadata"): _TensorRecord,
    (_METADATA, "BytesStorageMetadata"): _Record,
    (_METADATA, "ChunkStorageMetadata"): _Record,
    (_METADATA, "TensorProperties"): _Record,
    (_METADATA, "MetadataIndex"): _Record,
    (_METADATA, "StorageMeta"): _Record,
    (_METADATA, "_MEM_FORMAT_ENCODING"): _Record,
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"): _Record,
    ("torch", "Size"): tuple,
    ("torch.serialization", "_get_layout"): str,
    ("pathlib", "PosixPath"): _Record,
    ("pathlib", "Path"): _Record,
    ("builtins", "getattr"): _member,
}


class _IndexReader(pickle._Unpickler):  # in Python: its memory is bounded by the file
    def find_class(self, module, name):
        known = _KNOWN.get((module, name))
        if known is not None:
            return known
        if module == "torch" and isinstance(getattr(_torch(), name, None), _torch().dtype):
            return name
        raise Unreadable(f"it asks for {module}.{name}, which no index of a checkpoint holds")

    def persistent_load(self, key):
        raise Unreadable("it asks for objects outside of it")


@dataclasses.dataclass
class Stored:
    """Where a piece lies in a folder."""

    name: str
    file: str
    begin: int
    bytes: int
    whole: tuple | None  # None: a value
    offset: tuple

    @property
    def key(self):
        return self.name, self.offset

    @property
    def writer(self):
        """The rank that wrote the file, as its name tells; 0 where it does not."""
        number = self.file.removeprefix("__").split("_")[0]
        return int(number) if number.isdecimal() and len(number) < 10 else 0


def _numbers(value):
    """A shape or an offset; None: it is none."""
    if not isinstance(value, tuple) or not all(type(n) is int and n >= 0 for n in value):
        return None
    return value


def _stored(name, index, info, wholes, where):
    members = ("relative_path", "offset", "length")
    file, begin, length = (getattr(info, member, None) for member in members)
    if type(file) is not str or file in ("", ".", "..") or os.path.basename(file) != file:
        raise Unreadable(f"{where}: the place of {name} is not a file in the folder")
    if type(begin) is not int or type(length) is not int or begin < 0 or length < 0:
        raise Unreadable(f"{where}: the place of {name} is no place in a file")
    if getattr(info, "transform_descriptors", None):
        raise Unreadable(f"{where}: {name} is stored transformed, which is not supported")
    whole = wholes[name]
    offset = _numbers(getattr(index, "offset", None) or ())
    if offset is None or (whole is not None and len(offset) != len(whole)):
        raise Unreadable(f"{where}: the piece of {name} has no place in its tensor")
    return Stored(name, file, begin, length, whole, offset)


def read_index(folder):
    """Every piece that a folder of torch.distributed.checkpoint says it has."""
    where = os.path.join(folder, INDEX)
    if not os.path.exists(where):
        raise Unreadable(f"{folder}: no {INDEX} in it: no folder of torch.distributed.checkpoint")
    if os.path.getsize(where) > INDEX_BYTES_MAX:
        raise Unreadable(f"{where}: more than {INDEX_BYTES_MAX} bytes")
    try:
        with open(where, "rb") as file:
            index = _IndexReader(file).load()
        return list(_list_index(index, where))
    except OSError:
        raise
    except Unreadable as error:
        text = str(error)
        raise Unreadable(text if text.startswith(where) else f"{where}: {text}") from None
    except Exception as error:  # whatever the bytes make of it
        raise Unreadable(f"{where}: {type(error).__name__}: {error}") from error


def _list_index(index, where):
    members = ("state_dict_metadata", "storage_data")
    tensors, places = (getattr(index, member, None) for member in members)
    if type(index) is not _Metadata or type(tensors) is not dict or type(places) is not dict:
        raise Unreadable(f"{where}: no index of a checkpoint")
    wholes = {}
    for name, record in tensors.items():
        whole = _numbers(getattr(record, "size", None)) if type(record) is _TensorRecord else None
        if type(name) is not str or (type(record) is _TensorRecord and whole is None):
            raise Unreadable(f"{where}: a tensor without name or shape")
        wholes[name] = whole
    held = set()
    for key, info in places.items():
        name = getattr(key, "fqn", None)
        if type(name) is not str or name not in wholes:
            raise Unreadable(f"{where}: a piece of nothing that is in the checkpoint")
        held.add(name)
        yield _stored(name, key, info, wholes, where)
    for name, whole in wholes.items():
        if name not in held and (whole is None or 0 not in whole):
            raise Unreadable(f"{where}: {name} is named, but no piece of it is stored")


def read_piece(folder, stored):
    """One piece of a folder, from its file."""
    path = os.path.join(folder, stored.file)
    where = f"{path}, {stored.name}"
    try:
        with open(path, "rb") as file:
            if stored.begin + stored.bytes > os.fstat(file.fileno()).st_size:
                raise Unreadable(f"{where}: the file ends before it")
            file.seek(stored.begin)
            content = _load(io.BytesIO(file.read(stored.bytes)), where)
    except FileNotFoundError:
        raise Unreadable(f"{where}: the file is not there") from None
    if stored.whole is None:
        return Piece(stored.name, value=canonical(content, stored.name))
    if not isinstance(content, _torch().Tensor) or content.layout != _torch().strided:
        raise Unreadable(f"{where}: this is no tensor")
    if len(content.shape) != len(stored.whole):
        raise Unreadable(f"{where}: the piece has other axes than its tensor")
    return Piece(stored.name, content, whole=stored.whole, offset=stored.offset)
