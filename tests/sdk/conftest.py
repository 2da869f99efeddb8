"""A project and the program for every test of the SDK."""

from __future__ import annotations

from sdk_helpers import harness

__all__ = ["harness"]
