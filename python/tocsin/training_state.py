"""Chooses which parts of the training state beyond tensors of the model are watched, and reads what
is due at a step. Everything here runs with the re-entry flag held: nothing of it is recorded."""

import os
import sys

from tocsin import (
    _core,
    attributes,
    checkpoints,
    determinism,
    ledger,
    optimizer_state,
    random_state,
    registrations,
)

ENTER, EXIT = 1, 2  # tocsin/event.h: tocsin_moment
# tocsin_variable_kind
PARAMETER, OPTIMIZER_STATE, RNG, LEDGER, ATTRIBUTE, BOUNDARY = 1, 3, 4, 5, 6, 7

_random = False
_keeps_settings = False
_settings_of = None  # the process whose settings were written


def install(torch):
    """Watch what is to be recorded: all of it, or what the selection names."""
    global _random, _keeps_settings
    _keeps_settings = _core.recorder_selection() is None  # for comparing runs
    samples = _core.sampling("data.next", EXIT, "samples", LEDGER)
    saved = _core.sampling("checkpoint", EXIT, "saved", PARAMETER)
    loaded = _core.sampling("checkpoint", EXIT, "loaded", PARAMETER)
    state = _core.sampling("optimizer.step", EXIT, "data", OPTIMIZER_STATE)
    _random = bool(_core.sampling("optimizer.step", EXIT, "value", RNG))
    if samples:
        ledger.install(torch, samples)
    if _core.sampling("data.next", EXIT, "value", RNG):
        random_state.install(torch)
    random_state.watch_checkpointing(torch)
    if saved or loaded or state:
        checkpoints.install(saved, loaded)
    wanted = bool(_core.sampling("optimizer.step", EXIT, "value", ATTRIBUTE))
    attributes.install(torch, wanted)
    if _core.sampling("optimizer.step", EXIT, "value", PARAMETER):
        registrations.install(torch)
    optimizer_state.install(state)
    if state or saved or _random or wanted:
        _core.watch_role("optimizer.step", stepped)
    _core.watch_role("grad_scaler", scaled)


def found(modules):
    """The (module, name) pairs of the models, whenever they are named anew."""
    attributes.found(modules)
    registrations.found(modules)


def watch_autocast(torch, changed):
    """Call `changed` whenever a region of autocast begins or ends."""
    region = torch.amp.autocast_mode.autocast
    for method in (region.__enter__, region.__exit__):
        index = _core.hook(method, f"torch.amp.autocast.{method.__name__}", "", _core.METHOD)
        _core.watch_hook(index, changed)


def write_settings():
    """What decides bits, once in each process, as it is when training begins."""
    global _settings_of
    if _keeps_settings and _settings_of != os.getpid():
        _settings_of = os.getpid()
        for name, text, rating in determinism.settings(sys.modules["torch"]):
            values = (name, text), ("rating", rating)
            _core.record_state(name, BOUNDARY, "setting", "value", 0, None, False, values)


def stepped(_, args, kwargs, result):
    write_settings()
    if args:
        optimizer_state.stepped(args[0])
    attributes.stepped()
    if _random:
        random_state.record()


def scaled(name, args, kwargs, result):
    """The scale is a fact about the process from here on."""
    if name.endswith(".update"):
        scale = _core.tensor_item(vars(args[0]).get("_scale"))
        if scale is not None:
            _core.recorder_meta("scaler.scale", scale)
