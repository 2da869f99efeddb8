"""Runs teams of LLM agents on real work.

result = await shoal.run("Make the tests pass.", cwd="project")

Importing this module does nothing; each name is loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.app.api import open as open  # noqa: A004 - always used as shoal.open
    from shoal.app.api import run as run
    from shoal.app.api import run_sync as run_sync
    from shoal.app.library.agent import Agent as Agent
    from shoal.app.library.agent_handle import AgentHandle as AgentHandle
    from shoal.app.library.library_session import LibrarySession as Session  # noqa: F401 - its public name
    from shoal.app.library.session_options import SessionOptions as SessionOptions
    from shoal.app.options import Options as Options
    from shoal.app.session.result import Result as Result
    from shoal.app.session.turn import Turn as Turn
    from shoal.app.teams.team_store import TeamStore as TeamStore
    from shoal.core import errors as errors
    from shoal.core import events as events
    from shoal.core.agents.identity import AgentIdentity as AgentIdentity
    from shoal.core.agents.identity import acting_as as acting_as
    from shoal.core.agents.identity import current_cwd as current_cwd
    from shoal.core.agents.identity import current_identity as current_identity
    from shoal.core.agents.identity import current_member as current_member
    from shoal.core.conversation import messages as messages
    from shoal.core.conversation.tools import ToolContext as ToolContext
    from shoal.core.conversation.tools import ToolOutput as ToolOutput
    from shoal.core.errors import RunFailed as RunFailed
    from shoal.models.replay_model import ReplayModel as ReplayModel
    from shoal.models.scripted_model import ScriptedModel as ScriptedModel
    from shoal.stores.files.file_store import FileStore as FileStore
    from shoal.stores.memory.memory_store import MemoryStore as MemoryStore
    from shoal.tools.function_tool import tool as tool

__version__ = "0.1.0"

_EXPORT_MODULES = {
    "Agent": "shoal.app.library.agent",
    "AgentHandle": "shoal.app.library.agent_handle",
    "AgentIdentity": "shoal.core.agents.identity",
    "FileStore": "shoal.stores.files.file_store",
    "MemoryStore": "shoal.stores.memory.memory_store",
    "Options": "shoal.app.options",
    "ReplayModel": "shoal.models.replay_model",
    "Result": "shoal.app.session.result",
    "RunFailed": "shoal.core.errors",
    "ScriptedModel": "shoal.models.scripted_model",
    "Session": "shoal.app.library.library_session:LibrarySession",
    "SessionOptions": "shoal.app.library.session_options",
    "TeamStore": "shoal.app.teams.team_store",
    "ToolContext": "shoal.core.conversation.tools",
    "ToolOutput": "shoal.core.conversation.tools",
    "Turn": "shoal.app.session.turn",
    "acting_as": "shoal.core.agents.identity",
    "current_cwd": "shoal.core.agents.identity",
    "current_identity": "shoal.core.agents.identity",
    "current_member": "shoal.core.agents.identity",
    "open": "shoal.app.api",
    "run": "shoal.app.api",
    "run_sync": "shoal.app.api",
    "tool": "shoal.tools.function_tool",
}
"""Module of each name; `module:name` if it has another name there."""
_EXPORTED_MODULES = {
    "errors": "shoal.core.errors",
    "events": "shoal.core.events",
    "messages": "shoal.core.conversation.messages",
}
__all__ = [*_EXPORT_MODULES, *_EXPORTED_MODULES]  # noqa: PLE0604 - all are names


def __getattr__(name: str) -> Any:
    if name in _EXPORTED_MODULES:
        return import_module(_EXPORTED_MODULES[name])
    home = _EXPORT_MODULES.get(name)
    if home is None:
        raise AttributeError(f"module 'shoal' has no attribute {name!r}")
    module, _, original = home.partition(":")
    return getattr(import_module(module), original or name)


def __dir__() -> list[str]:
    return sorted({*_EXPORT_MODULES, *_EXPORTED_MODULES, "__version__"})
