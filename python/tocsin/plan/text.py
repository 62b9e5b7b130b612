"""`.plan` text (docs/formats/plan.md): the writer."""

from __future__ import annotations

import re

_BARE = re.compile(r"[A-Za-z0-9_.\-/:<>\[\]()+*]+\Z")
_DTYPES = {"long": "int64", "int": "int32", "half": "float16", "float": "float32",
           "double": "float64"}


def word(text: str) -> str:
    if _BARE.match(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def dtype(name) -> str:
    name = str(name).removeprefix("torch.")
    return _DTYPES.get(name, name)


def attribute(value) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(str(int(x)) for x in value) + "]"
    if isinstance(value, float):
        text = repr(value)
        return text if any(c in text for c in ".en") else text + ".0"
    return str(value) if isinstance(value, int) else word(value)


def typed(value) -> str:
    return f"%{value.number}:{dtype(value.dtype)}[{','.join(map(str, value.shape))}]"


def slices(starts, shape) -> str:
    return ", ".join(f"{start} : {length}" for start, length in zip(starts, shape))


def operator(op, group_name=None) -> str:
    """One operator; `group_name` is the declared name of its process group."""
    parts = [", ".join(typed(v) for v in op.outputs), "=",
             f"{op.name}({', '.join(f'%{v.number}' for v in op.inputs)})"]
    if not op.outputs:
        parts = parts[1:]
    if op.attributes:
        parts.append("{" + ", ".join(f"{k}={attribute(v)}" for k, v in op.attributes.items()) + "}")
    if op.signature is not None:
        parts.append("sig=" + word(op.signature))
    if group_name is not None:
        parts.append("group=" + word(group_name))
    parts.append(op.phase)
    if op.fqn:
        parts.append("@" + word(op.fqn))
    if op.source:
        parts.append("src=" + word(op.source))
    if op.label:
        parts.append("label=" + word(op.label))
    return " ".join(parts)
