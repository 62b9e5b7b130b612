"""The code that a hooked Python function runs on CPython 3.11.

It has the signature of the original and one expression, `gate(a, b, args, kwargs)`, where gate is
a C callable in its constants (see _core/hook_code.c).

Its frame must not show: a warning raised with stacklevel=2 has to name the caller, not this code.
CPython 3.11 hides frames that have not reached their first RESUME instruction, by position in the
bytecode. So the call to the gate comes first by position and RESUME, which is executed first, comes
after it:

        JUMP_FORWARD        resume
    call:
        PUSH_NULL; LOAD_CONST gate; LOAD_FAST ...; PRECALL n; CALL n      <- hidden
        JUMP_FORWARD        done
    resume:
        RESUME
        JUMP_BACKWARD_NO_INTERRUPT call
    done:
        RETURN_VALUE
"""

import opcode
import types
from collections.abc import Callable

_VAR = 0x04 | 0x08  # CO_VARARGS, CO_VARKEYWORDS
_ARGUMENTS_MAX = 255  # one byte; more would need EXTENDED_ARG

_codes: list[types.CodeType] = []
_followers: list[Callable[[types.CodeType], None]] = []


def follow(follower: Callable[[types.CodeType], None]) -> None:
    """Call follower(code) for the code of every gate that there is and that will be made."""
    _followers.append(follower)
    for code in _codes:
        follower(code)


def parameter_count(code: types.CodeType) -> int:
    count = code.co_argcount + code.co_kwonlyargcount
    return count + bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)


def make_body(function: types.FunctionType) -> types.FunctionType:
    """A function that runs the same code and shares the attributes."""
    body = types.FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    body.__kwdefaults__ = function.__kwdefaults__
    body.__qualname__ = function.__qualname__
    body.__module__ = function.__module__
    body.__doc__ = function.__doc__
    body.__annotations__ = function.__annotations__
    body.__dict__ = function.__dict__
    return body


def run_flat(body: types.FunctionType, flat: tuple):
    """Run the body with *args and **kwargs bound to any objects (torch.fx placeholders)."""
    code = body.__code__.replace(
        co_argcount=len(flat),
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_flags=body.__code__.co_flags & ~_VAR,
    )
    return types.FunctionType(code, body.__globals__, body.__name__, None, body.__closure__)(*flat)


def _instruction(name: str, argument: int = 0) -> bytes:
    number = opcode.opmap[name]
    return bytes((number, argument)) + bytes(2 * opcode._inline_cache_entries[number])


def _assemble_bytecode(count: int, gate_constant: int) -> bytes:
    call = b"".join(
        [
            _instruction("PUSH_NULL"),
            _instruction("LOAD_CONST", gate_constant),
            *(_instruction("LOAD_FAST", i) for i in range(count)),
            _instruction("PRECALL", count),
            _instruction("CALL", count),
        ]
    )
    resume = _instruction("RESUME")
    back_units = (len(call) + 2 + len(resume) + 2) // 2  # from after the jump to `call`
    extended = _instruction("EXTENDED_ARG", (back_units + 1) >> 8) if back_units > 254 else b""
    back_units += len(extended) // 2
    back = extended + _instruction("JUMP_BACKWARD_NO_INTERRUPT", back_units & 0xFF)
    over_call = len(call) // 2 + 1
    start = _instruction("EXTENDED_ARG", over_call >> 8) if over_call > 255 else b""
    start += _instruction("JUMP_FORWARD", over_call & 0xFF)
    over_resume = _instruction("JUMP_FORWARD", (len(resume) + len(back)) // 2)
    return start + call + over_resume + resume + back + _instruction("RETURN_VALUE")


def _line_table(bytecode: bytes) -> bytes:
    """RESUME stands on the function's first line; the rest has no line, so that a debugger gets no
    line events from it. One entry covers 1 to 8 code units (Objects/locations.md, 3.11)."""
    resume = bytecode.rindex(_instruction("RESUME")) // 2
    units = len(bytecode) // 2
    on_first_line = bytes((0x80 | (13 << 3), 0))
    return _no_line(resume) + on_first_line + _no_line(units - resume - 1)


def _no_line(units: int) -> bytes:
    spans = [8] * (units // 8) + ([units % 8] if units % 8 else [])
    return bytes(0x80 | (15 << 3) | (span - 1) for span in spans)


def assemble(code: types.CodeType, gate: object) -> types.CodeType:
    """The code of a hooked function: the signature of `code`, a body that calls `gate`."""
    count = parameter_count(code)
    if count > _ARGUMENTS_MAX:
        raise TypeError("cannot hook a function of more than 255 parameters")
    doc = code.co_consts[0] if code.co_consts and isinstance(code.co_consts[0], str) else None
    bytecode = _assemble_bytecode(count, gate_constant=1)
    made = code.replace(
        co_code=bytecode,
        co_consts=(doc, gate),
        co_names=(),
        co_varnames=code.co_varnames[:count],
        co_nlocals=count,
        co_cellvars=(),
        co_stacksize=count + 3,
        co_linetable=_line_table(bytecode),
        co_exceptiontable=b"",
    )
    _codes.append(made)
    for follower in _followers:
        follower(made)
    return made
