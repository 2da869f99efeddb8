"""Which model a session asks: what was named, what is configured, or what can be found."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from shoal.core.clock import Clock

if TYPE_CHECKING:
    from shoal.models.limiter import Limiters

DEFAULTS = {"anthropic": "sonnet", "openai": "sonnet"}
"""The alias asked for where a provider is configured and no model is named."""

# One for the whole process: agents of several sessions that ask one model back off together.
_limiters: WeakKeyDictionary[Clock, Limiters] = WeakKeyDictionary()
