"""Tocsin makes silent training errors loud. A script needs nothing of this to be recorded; these
functions let it say more than can be seen (docs/recording.md)."""

from tocsin.api import expect, set_meta, stage, step
from tocsin.determinism import deterministic
from tocsin.injection import inject
from tocsin.simulation import simulate_tensor_parallel

__all__ = ["Guard", "GuardAlarm", "deterministic", "expect", "inject", "set_meta",
           "simulate_tensor_parallel", "stage", "step"]


def __getattr__(name):
    if name in ("Guard", "GuardAlarm"):  # a script without a guard needs none of it
        from tocsin import guard

        return getattr(guard, name)
    raise AttributeError(f"module 'tocsin' has no attribute {name!r}")
