"""The plan of a transformers.Trainer: how many updates its arguments ask for (docs/recording.md).

Asked for are max_steps, or each epoch's batches in groups of gradient_accumulation_steps, the last
one smaller. A training that a callback ends early has kept to its plan, and one in fp16 has none:
its scaler skips updates.
"""

import math

from tocsin import _core, api

MODULE = "transformers.trainer_callback"

_expected = 0  # by the arguments of the training that runs
_earlier = 0  # steps that this process made before it


def install(module):
    handler = module.CallbackHandler
    for name, watcher in (("on_train_begin", _begun), ("on_train_end", _ended)):
        method = getattr(handler, name)
        index = _core.hook(method, f"{MODULE}.CallbackHandler.{name}", "", _core.METHOD)
        _core.watch_hook(index, watcher)


def _steps_made():
    summary = _core.recorder_summary()
    return summary["steps"] if summary else 0


def _asked_for(arguments, loader):
    """None: it cannot be told."""
    if arguments.fp16:
        return None
    if arguments.max_steps > 0:
        return arguments.max_steps
    try:
        groups = math.ceil(len(loader) / arguments.gradient_accumulation_steps)
    except TypeError:  # a stream of samples
        return None
    return math.ceil(arguments.num_train_epochs * groups)


def _begun(_, args, kwargs, result):
    global _expected, _earlier
    handler, arguments, state = args[:3]
    asked = _asked_for(arguments, handler.train_dataloader)
    _expected = 0 if asked is None or api.has_plan() else asked
    if _expected > state.global_step:  # not 0 after resuming
        _earlier = _steps_made() - state.global_step
        _core.recorder_meta("expect.steps", _earlier + _expected)


def _ended(_, args, kwargs, result):
    state, control = args[2:4]
    if _expected and control.should_training_stop and state.global_step < state.max_steps:
        _core.recorder_meta("expect.steps", _earlier + state.global_step)
