"""The public test kit: a fake clock, ids, mock servers, and store contracts."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.core.ids import IdGenerator as IdGenerator
    from shoal.testing.fake_clock import FakeClock as FakeClock
    from shoal.testing.mock_replies import MockReply as MockReply
    from shoal.testing.mock_replies import make_tool_call as make_tool_call
    from shoal.testing.prefix_cache import PrefixCache as PrefixCache
    from shoal.testing.servers import MockServer as MockServer
    from shoal.testing.servers import chat_server as chat_server
    from shoal.testing.servers import messages_server as messages_server
    from shoal.testing.servers import responses_server as responses_server
    from shoal.testing.servers import run_in_thread as run_in_thread

_HOMES = {
    "MockReply": "shoal.testing.mock_replies",
    "FakeClock": "shoal.testing.fake_clock",
    "IdGenerator": "shoal.core.ids",
    "MockServer": "shoal.testing.servers",
    "PrefixCache": "shoal.testing.prefix_cache",
    "make_tool_call": "shoal.testing.mock_replies",
    "chat_server": "shoal.testing.servers",
    "run_in_thread": "shoal.testing.servers",
    "messages_server": "shoal.testing.servers",
    "responses_server": "shoal.testing.servers",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(_HOMES)
