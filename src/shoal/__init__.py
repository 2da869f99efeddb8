"""Runs teams of LLM agents on real work.

async with shoal.open(cwd="project") as session:
    async for event in session.run("Make the tests pass."):
        ...

Importing this module does nothing; each name is loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.app.api import open as open  # noqa: A004 - always used as shoal.open
    from shoal.app.api import run_sync as run_sync
    from shoal.app.options import Options as Options
    from shoal.app.session.session import Session as Session
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
    from shoal.models.replay_model import ReplayModel as ReplayModel
    from shoal.models.scripted_model import ScriptedModel as ScriptedModel
    from shoal.stores.files.file_store import FileStore as FileStore
    from shoal.stores.memory.memory_store import MemoryStore as MemoryStore
    from shoal.tools.function_tool import tool as tool

__version__ = "0.1.0"

_EXPORT_MODULES = {
    "TeamStore": "shoal.app.teams.team_store",
    "AgentIdentity": "shoal.core.agents.identity",
    "FileStore": "shoal.stores.files.file_store",
    "MemoryStore": "shoal.stores.memory.memory_store",
    "Options": "shoal.app.options",
    "ToolOutput": "shoal.core.conversation.tools",
    "ReplayModel": "shoal.models.replay_model",
    "ScriptedModel": "shoal.models.scripted_model",
    "Session": "shoal.app.session.session",
    "ToolContext": "shoal.core.conversation.tools",
    "acting_as": "shoal.core.agents.identity",
    "current_cwd": "shoal.core.agents.identity",
    "current_identity": "shoal.core.agents.identity",
    "current_member": "shoal.core.agents.identity",
    "open": "shoal.app.api",
    "run_sync": "shoal.app.api",
    "tool": "shoal.tools.function_tool",
}
_EXPORTED_MODULES = {
    "errors": "shoal.core.errors",
    "events": "shoal.core.events",
    "messages": "shoal.core.conversation.messages",
}


def __getattr__(name: str) -> Any:
    if name in _EXPORTED_MODULES:
        return import_module(_EXPORTED_MODULES[name])
    home = _EXPORT_MODULES.get(name)
    if home is None:
        raise AttributeError(f"module 'shoal' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*_EXPORT_MODULES, *_EXPORTED_MODULES, "__version__"})
