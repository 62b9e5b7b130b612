"""Tocsin makes silent training errors loud. A script needs nothing of this to be recorded; these
functions let it say more than can be seen (docs/recording.md)."""

from tocsin.api import expect, set_meta, stage, step
from tocsin.determinism import deterministic
from tocsin.injection import inject

__all__ = ["deterministic", "expect", "inject", "set_meta", "stage", "step"]
