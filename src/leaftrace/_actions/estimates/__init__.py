"""Seconds of an action before it: see `action.py`."""

from .action import estimate

__all__ = ["estimate"]
