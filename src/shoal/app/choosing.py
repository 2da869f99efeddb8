"""Which model a session asks: what was named, what is configured, or what can be found."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from shoal.core.clock import Clock
from shoal.core.errors import NoModel, SettingsError
from shoal.core.ids import Ids
from shoal.core.ports import Model
from shoal.core.usage import ModelCard

if TYPE_CHECKING:
    from shoal.app.settings import Settings
    from shoal.models.limiter import Limiters

DEFAULTS = {"anthropic": "sonnet", "openai": "sonnet"}
"""The alias asked for where a provider is configured and no model is named."""

# One for the whole process: agents of several sessions that ask one model back off together.
_limiters: WeakKeyDictionary[Clock, Limiters] = WeakKeyDictionary()
