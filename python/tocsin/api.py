"""What a training script may tell the recorder. Nothing happens when it is not recorded."""

import sys
import warnings


_planned = False


def has_plan():
    """Has the script told its steps?"""
    return _planned


def _recording():
    core = sys.modules.get("tocsin._core")
    return core if core is not None and core.recorder_summary() is not None else None


def step() -> None:
    """A training step is complete. From the first call on, only these calls count steps."""
    core = _recording()
    if core is not None:
        core.recorder_step()


def stage(name: str | None) -> None:
    """The process is in this stage ("training", "evaluation", "warmup", ...); None: as observed."""
    core = _recording()
    if core is not None:
        core.recorder_stage(name)


def expect(*, steps: int | None = None, tokens: int | None = None) -> None:
    """The plan: so many optimizer steps in all, so many tokens. Checked at the end."""
    global _planned
    core = _recording()
    _planned = _planned or steps is not None
    if core is not None:
        for key, value in (("expect.steps", steps), ("expect.tokens", tokens)):
            if value is not None:
                core.recorder_meta(key, int(value))


def set_meta(key: str, value: bool | int | float | str) -> None:
    """A fact about the process from here on, which invariants may be conditioned on."""
    core = _recording()
    if core is not None:
        try:
            core.recorder_meta(key, value)
        except ValueError as error:  # too many keys: no reason to end a job
            warnings.warn(f"tocsin: {error}", stacklevel=2)
