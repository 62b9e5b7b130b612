"""Tocsin makes silent training errors loud. A script needs nothing of this to be recorded; these
functions let it say more than can be seen (docs/recording.md)."""

from tocsin.api import set_meta, stage, step

__all__ = ["set_meta", "stage", "step"]
