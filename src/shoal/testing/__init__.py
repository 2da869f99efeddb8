"""The public test kit: a fake clock, ids, team storage in memory, mock servers, and store contracts."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.core.ids import Ids as Ids
    from shoal.testing.caching import PrefixCache as PrefixCache
    from shoal.testing.clock import FakeClock as FakeClock
    from shoal.testing.record import MemoryRecord as MemoryRecord
    from shoal.testing.replies import Answer as Answer
    from shoal.testing.replies import call as call
    from shoal.testing.servers import MockServer as MockServer
    from shoal.testing.servers import chat_server as chat_server
    from shoal.testing.servers import in_thread as in_thread
    from shoal.testing.servers import messages_server as messages_server
    from shoal.testing.servers import responses_server as responses_server

_HOMES = {
    "Answer": "shoal.testing.replies",
    "FakeClock": "shoal.testing.clock",
    "Ids": "shoal.core.ids",
    "MemoryRecord": "shoal.testing.record",
    "MockServer": "shoal.testing.servers",
    "PrefixCache": "shoal.testing.caching",
    "call": "shoal.testing.replies",
    "chat_server": "shoal.testing.servers",
    "in_thread": "shoal.testing.servers",
    "messages_server": "shoal.testing.servers",
    "responses_server": "shoal.testing.servers",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(_HOMES)
