"""Parameters as parts of the tensors of another framework, by a map of names
(docs/formats/map.md): which of them cannot be compared afterwards, and where their rows lie there.

Parts that follow each other are put together after the fact; here are those whose rows alternate,
by group of queries, and those whose axes are exchanged. Reads names and sizes, runs no operation.
"""

from tocsin import _core

_groups = None  # None: there is no map


def choose(source, groups):
    """From here on use this map; groups: how many groups of queries the model has, 0: not known."""
    global _groups
    _core.name_map_load(source)
    _groups = groups


def _rows(tensor):
    layout = _core.tensor_layout_read(tensor)
    return layout[1][0] if layout is not None and layout[1] else None


def _interleaved(whole, parts):
    """{index: cut} of the parts of one tensor, if their rows can be dealt out."""
    rows = [_rows(tensor) for _, tensor in parts]
    if None in rows or any(count % _groups for count in rows):
        return {}
    total, before, found = sum(rows) // _groups, 0, {}
    for (index, _), count in zip(parts, rows, strict=True):
        found[index] = whole, _groups, total, before
        before += count // _groups
    return found


def of(named):
    """{index: (name of the whole, groups, rows of a group, rows before)} of (name, tensor)s."""
    if _groups is None:
        return {}
    found, wholes = {}, {}
    for index, (name, tensor) in enumerate(named):
        whole, part, parts, layout = _core.name_map_find(name) or (None, 0, 0, "")
        if layout == "transposed":
            found[index] = whole, 0, 0, 0
        elif layout == "interleaved" and parts > 1 and _groups:
            wholes.setdefault(whole, [None] * parts)[part] = index, tensor
    for whole, parts in wholes.items():
        if None not in parts:
            found.update(_interleaved(whole, parts))
    return found
