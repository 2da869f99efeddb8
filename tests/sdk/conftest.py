"""A project and the program for every test of the SDK."""

from __future__ import annotations

from sdk_rig import rig

__all__ = ["rig"]
