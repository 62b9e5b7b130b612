"""Starts and stops the recorder of this process (docs/recording.md).

The work at each call is done in the extension; here are the rare things: finding the tensor layout,
choosing what is hooked, forks, the end of the process and its one line of account.
"""

import atexit
import enum
import os
import sys

from tocsin import (
    _core,
    communication,
    distributed,
    layout,
    pieces,
    targets,
    training_state,
    variables,
)
from tocsin.messages import say

_directory = ""
_boundaries = "online"
_rank = 0  # the last one seen: the process group may be gone at the end
_complained = False


def _autocast_dtype():
    """The autocast dtype of the accelerator or the CPU, or None while off."""
    torch = sys.modules["torch"]
    for device in ("cuda", "cpu"):
        if torch.is_autocast_enabled(device):
            return str(torch.get_autocast_dtype(device))
    return None


def _autocast_changed(*_):
    _core.recorder_meta("autocast", _autocast_dtype() or "")


def _internal_prefixes():
    """Directories whose code is not the user's."""
    torch = sys.modules["torch"]
    here = os.path.dirname(os.path.abspath(__file__))
    return (os.path.dirname(torch.__file__) + os.sep, here + os.sep, "<frozen ", "<torch")


def _resolve(roots, optimizers, final):
    global _complained
    _place()
    if final and distributed.is_data_parallel():
        _core.recorder_meta("data_parallel", "world")
    try:
        found = variables.resolve(roots, optimizers, final)
        training_state.found(found[1])
        communication.found(*found)
        return found
    except Exception as error:
        if not _complained:  # it is tried again at each change
            say(f"warning: variables are not tracked: {error!r}")
        _complained = True
        raise


def _hook_unseen(tensor, hook):
    """Set a hook where a mode of the user's would see that."""
    with sys.modules["torch"]._C.DisableTorchFunction():
        tensor.register_hook(hook)


def _selection():
    """What targets.install() is to hook: names and roles; (None, None) for everything."""
    selected = _core.recorder_selection()
    if selected is None:
        return None, None
    roles, functions = selected
    # Steps, passes and models are followed in any case.
    roles = {*roles, "optimizer.step", "backward"}
    return {*functions, "torch.nn.Module.__call__"}, roles


def _births(torch):
    """Hooks through which every new optimizer and process group pass."""
    add = torch.optim.Optimizer.add_param_group
    optimizer = _core.hook(add, "torch.optim.Optimizer.add_param_group", "", _core.METHOD)
    if not torch.distributed.is_available():
        return optimizer, 0xFFFFFFFF
    init = torch.distributed.init_process_group
    group = _core.hook(init, "torch.distributed.init_process_group", "", _core.ARGUMENTS)
    return optimizer, group


def _place():
    """Record rank and world size, as soon as there are any."""
    global _rank
    for key, value in distributed.placement().items():
        _core.recorder_meta(key, value)
        if key == "rank":
            _rank = value


def start(directory, mode="record", selection=None, packages=(), digest_every=1,
          boundaries="online", drill=None):
    """Record this process into a run. Raises when that cannot be done."""
    global _directory, _boundaries
    torch = sys.modules["torch"]
    held = _core.hold()
    try:
        _core.recorder_open(directory, selection if mode == "run" else None, digest_every)
        collectives = _core.recorder_boundaries(boundaries)
        _core.gradient_hooks_unseen(torch._C._is_torch_function_mode_enabled, _hook_unseen)
        if drill is not None:
            _core.recorder_drill(*drill)
        _core.recorder_pieces(pieces.read)
        pieces.by_hand = not boundaries.startswith("online")
        try:
            layout.calibrate(torch, _core)
        except ValueError as error:
            if os.environ.get("TOCSIN_DEBUG"):
                say(f"note: {error}; reading attributes instead")
        names, roles = _selection()
        targets.install(names, roles, packages)
        _core.recorder_start(
            torch.nn.Module,
            (torch.dtype, torch.device, torch.layout, torch.memory_format, enum.Enum)
            + distributed.reduction_types(),
            _internal_prefixes(),
            _resolve,
            torch.is_grad_enabled,
            torch._C._is_any_autocast_enabled,
            _autocast_dtype,
            *_births(torch),
            _place,
            distributed.group_types(),
            distributed.describe_group,
        )
        communication.install(torch, collectives)
        training_state.install(torch)
        training_state.watch_autocast(torch, _autocast_changed)
    finally:
        _core.release(held)
    _directory, _boundaries = directory, boundaries
    atexit.register(stop)
    os.register_at_fork(after_in_child=_forked)


def _forked():
    """A forked child writes a file of its own. Children of multiprocessing skip atexit."""
    _core.recorder_forked()
    process = sys.modules.get("multiprocessing.util")
    if process is not None:
        process.register_after_fork(_core, _stop_with_process)


def _stop_with_process(_):
    sys.modules["multiprocessing.util"].Finalize(None, stop, exitpriority=-100)


def account(summary, directory, hashed=False):
    """The one line about what recording cost, from the second step on; if asked for with what was
    hashed."""
    measured = summary["measured_steps"]
    share = 100.0 * summary["steps_cost_ns"] / summary["steps_wall_ns"] if measured else 0.0
    per_step = summary["steps_cost_ns"] / measured / 1e6 if measured else 0.0
    mebibytes = summary["steps_hashed_bytes"] / measured / 2**20 if measured and hashed else 0.0
    hashed = f" and {mebibytes:.1f} MiB hashed" if mebibytes else ""
    lost = f", {summary['lost']} events LOST" if summary["lost"] else ""
    return (
        f"{summary['steps']} steps recorded, {share:.1f} % of the time in the recorder "
        f"({per_step:.2f} ms{hashed} per step), {summary['events']} events, "
        f"{summary['file_bytes'] / 2**20:.1f} MiB in {directory}{lost}"
    )


def stop():
    """Close this process's file; say what it cost, in processes that trained and on rank 0."""
    failure = _core.recorder_failure()
    try:
        summary = _core.recorder_close()
    except Exception as error:
        say(f"error: the recording is incomplete: {error}")
        return
    if failure is not None:
        say(f"error: nothing was recorded: {failure}")
    elif summary and summary["steps"] and _rank == 0 and not os.environ.get("TOCSIN_QUIET"):
        say(account(summary, _directory, _boundaries != "online"))
