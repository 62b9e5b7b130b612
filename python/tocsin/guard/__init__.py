"""The SDC guard of a live training job: tocsin.Guard (docs/guard.md).

lib/guard decides; here tensors are hashed and rows of numbers carried between ranks.
"""

import importlib

from tocsin.guard.exchange import PeerLost
from tocsin.guard.guard import Guard, GuardAlarm, Outcome

__all__ = ["Guard", "GuardAlarm", "Outcome", "PeerLost", "load_verified", "verify"]


def __getattr__(name):
    """Late: the module of these is also a program (`python -m`)."""
    if name in ("load_verified", "verify"):
        return getattr(importlib.import_module("tocsin.guard.verify_checkpoint"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
