"""The SDC guard of a live training job: tocsin.Guard (docs/guard.md).

lib/guard decides; here tensors are hashed and rows of numbers carried between ranks.
"""

from tocsin.guard.exchange import PeerLost
from tocsin.guard.guard import Guard, GuardAlarm, Outcome

__all__ = ["Guard", "GuardAlarm", "Outcome", "PeerLost"]
