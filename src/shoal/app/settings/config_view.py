"""Rows for every setting with its value and origin."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from shoal.app.settings.settings import Settings
from shoal.app.settings.trust import Trust, Widening

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH|COOKIE", re.IGNORECASE)
HIDDEN = "(hidden)"


class Shown(Struct, frozen=True, kw_only=True):
    key: str
    value: Any
    origin: str


class Trusted(Shown, frozen=True, kw_only=True):
    trust: Trust


def sounds_secret(name: str) -> bool:
    """Return True for names of variables or headers that may hold a secret; errs on the side of hiding."""
    return _SECRET.search(name) is not None


def shown_settings(settings: Settings) -> Iterator[Shown]:
    """Yield the settings in a fixed order; keys and tokens are not shown."""
    yield _row(settings, "home", str(settings.home))
    yield _row(settings, "model", settings.model)
    yield _row(settings, "cleanupPeriodDays", settings.cleanup_period_days)
    rules = msgspec.to_builtins(settings.permissions)
    for key, value in rules.items():
        yield _row(settings, f"permissions.{key}", value)
    for name, value in settings.env.items():
        yield _row(settings, f"env.{name}", HIDDEN if sounds_secret(name) else value)
    for key, value in msgspec.to_builtins(settings.own).items():
        yield _row(settings, f"shoal.{key}", value)
    for name in settings.access.__struct_fields__:
        if getattr(settings.access, name) is not None:
            yield _row(settings, name, HIDDEN if sounds_secret(name) else getattr(settings.access, name))


def shown_widening(widening: Sequence[Widening]) -> Iterator[Trusted]:
    """Yield the project settings that need the user's trust, with their trust state."""
    for each in widening:
        hidden = each.keys[0] == "env" and sounds_secret(each.keys[-1])
        value = HIDDEN if hidden else each.value
        yield Trusted(key=each.key, value=value, origin=each.place, trust=each.trust)


def _row(settings: Settings, key: str, value: Any) -> Shown:
    return Shown(key=key, value=value, origin=settings.origin(key))
