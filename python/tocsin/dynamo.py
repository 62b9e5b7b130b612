"""torch.compile must see the program as if nothing were hooked.

Builtins and, except on CPython 3.11, Python functions are hooked where Dynamo does not look. On
3.11 a hooked Python function has other code (see gate.py), and Dynamo reads code. Two things make
that invisible: Dynamo never compiles the frame of a gate, and where it would trace a hooked
function, it traces the function that holds the original code.

While a compilation runs, nothing is observed: torch functions are then called with fake tensors.
"""

import functools
import importlib
import sys
import types
from collections.abc import Iterator

from tocsin import _core, gate

PACKAGE = "torch._dynamo"

_prepared = False


def prepare(executed: str = "") -> None:
    """Call whenever Dynamo may have been imported; `executed`: the module that has just been, whose
    import is not quite over. All but the first call that finds Dynamo do nothing."""
    global _prepared
    package = sys.modules.get(PACKAGE)
    if _prepared or package is None:
        return
    if executed != PACKAGE and getattr(package.__spec__, "_initializing", False):
        return
    _prepared = True
    functions = importlib.import_module("torch._dynamo.variables.functions")
    _trace_originals(functions.UserFunctionVariable)
    gate.follow(package.eval_frame.skip_code)
    _skip_ourselves()
    _hold_while_compiling(package)


def _trace_originals(variable: type) -> None:
    init = variable.__init__

    @functools.wraps(init)
    def traced(self, fn, *args, **kwargs):
        init(self, _core.original(fn), *args, **kwargs)

    variable.__init__ = traced


def _skip_ourselves() -> None:
    """A call is observed by Python functions of ours too. Where Dynamo compiles whatever frame
    comes next, it must skip those, and all that they call."""
    from torch._C._dynamo.eval_frame import set_code_exec_strategy
    from torch._dynamo.types import FrameAction, FrameExecStrategy

    skip = FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP)
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "tocsin" and getattr(module, "__file__", None):
            for code in _codes(module):
                set_code_exec_strategy(code, skip)


def _codes(module: types.ModuleType) -> Iterator[types.CodeType]:
    """The code of all functions of a module, methods and nested functions included."""
    pending = []
    for value in vars(module).values():
        values = vars(value).values() if isinstance(value, type) else (value,)
        pending += [v.__code__ for v in values if isinstance(v, types.FunctionType)]
    while pending:
        code = pending.pop()
        if code.co_filename == module.__file__:
            yield code
            pending += [c for c in code.co_consts if isinstance(c, types.CodeType)]


def _hold_while_compiling(package) -> None:
    """A frame is compiled on the thread that runs it; a backward pass perhaps later, on another."""
    compile_frame = getattr(package.convert_frame, "_compile", None)
    if compile_frame is not None:
        _core.hook(compile_frame, "torch._dynamo.convert_frame._compile", "", _core.HOLD)
    handler = package.callback.callback_handler
    handler.register_start_callback(lambda _: _core.pause())
    handler.register_end_callback(lambda _: _core.resume())
