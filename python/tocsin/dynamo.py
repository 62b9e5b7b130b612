"""torch.compile must see the program as if nothing were hooked.

Builtins and, except on CPython 3.11, Python functions are hooked where Dynamo does not look. On 3.11
a hooked Python function has other code (see gate.py), and Dynamo reads code. Two things make that
invisible: Dynamo never compiles the frame of a gate, and where it would trace a hooked function, it
traces the function that holds the original code.

While a compilation runs, nothing is observed: torch functions are then called with fake tensors.
"""

import functools
import sys

from tocsin import _core

FUNCTIONS = "torch._dynamo.variables.functions"  # the module whose import must be followed
_CALLBACK = "torch._dynamo.callback"
_EVAL_FRAME = "torch._dynamo.eval_frame"


def module_imported(name: str) -> None:
    """Dynamo has just been imported, or was before we came."""
    if name == FUNCTIONS:
        _trace_originals(sys.modules[FUNCTIONS].UserFunctionVariable)
        _pause_while_compiling(sys.modules[_CALLBACK].callback_handler)
        skip_gates()


def skip_gates() -> None:
    """Tell Dynamo, if it is there, of the gates made since the last call."""
    eval_frame = sys.modules.get(_EVAL_FRAME)
    if eval_frame is None or FUNCTIONS not in sys.modules:
        return  # module_imported() will come back
    for code in _core.new_gate_codes():
        eval_frame.skip_code(code)


def _trace_originals(variable: type) -> None:
    if getattr(variable.__init__, "_tocsin", False):
        return
    init = variable.__init__

    @functools.wraps(init)
    def traced(self, fn, *args, **kwargs):
        init(self, _core.original(fn), *args, **kwargs)

    traced._tocsin = True
    variable.__init__ = traced


def _pause_while_compiling(handler) -> None:
    handler.register_start_callback(lambda _: _core.pause())
    handler.register_end_callback(lambda _: _core.resume())
