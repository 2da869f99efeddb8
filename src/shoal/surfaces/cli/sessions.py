"""`shoal sessions`: what can be gone on with."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from shoal.stores.files.sessions import Glance

HELP = """List the sessions of this directory, the newest first.

\b
Examples:
  shoal sessions
  shoal sessions --all --json | jq -r '.[0].session'
  shoal --resume 3f2a          the beginning of an id is enough"""
