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
    from shoal.app.library.team import Team as Team
    from shoal.app.library.team import TeamReport as TeamReport
    from shoal.app.options import Options as Options
    from shoal.app.session.result import Result as Result
    from shoal.app.session.turn import Turn as Turn
    from shoal.app.teams.team_store import TeamStore as TeamStore
    from shoal.app.workflows.workflow import Workflow as Workflow
    from shoal.app.workflows.workflow_definition import WorkflowDefinition as WorkflowDefinition
    from shoal.app.workflows.workflow_definition import workflow as workflow
    from shoal.core import errors as errors
    from shoal.core import events as events
    from shoal.core.agents.identity import AgentIdentity as AgentIdentity
    from shoal.core.agents.identity import acting_as as acting_as
    from shoal.core.agents.identity import current_cwd as current_cwd
    from shoal.core.agents.identity import current_identity as current_identity
    from shoal.core.agents.identity import current_member as current_member
    from shoal.core.budgets.shared_budget import SharedBudget as Budget  # noqa: F401 - its public name
    from shoal.core.budgets.usage import ModelCard as ModelCard
    from shoal.core.budgets.usage import TokenPrice as TokenPrice
    from shoal.core.budgets.usage import Usage as Usage
    from shoal.core.conversation import messages as messages
    from shoal.core.conversation.messages import Message as Message
    from shoal.core.conversation.messages import TextBlock as TextBlock
    from shoal.core.conversation.messages import ToolResultBlock as ToolResultBlock
    from shoal.core.conversation.messages import ToolUseBlock as ToolUseBlock
    from shoal.core.conversation.model_requests import DeltaListener as DeltaListener
    from shoal.core.conversation.model_requests import ModelAttemptStartedDelta as ModelAttemptStartedDelta
    from shoal.core.conversation.model_requests import ModelReply as ModelReply
    from shoal.core.conversation.model_requests import ModelRequest as ModelRequest
    from shoal.core.conversation.model_requests import StreamDelta as StreamDelta
    from shoal.core.conversation.model_requests import TextDelta as TextDelta
    from shoal.core.conversation.model_requests import ToolSchema as ToolSchema
    from shoal.core.conversation.tools import Tool as Tool
    from shoal.core.conversation.tools import ToolContext as ToolContext
    from shoal.core.conversation.tools import ToolOutput as ToolOutput
    from shoal.core.errors import RunFailed as RunFailed
    from shoal.core.errors import SettingsError as SettingsError
    from shoal.core.errors import ShoalError as ShoalError
    from shoal.core.events import Event as Event
    from shoal.core.permissions.questions import AllowAnswer as AllowAnswer
    from shoal.core.permissions.questions import Answer as Answer
    from shoal.core.permissions.questions import ChoiceAnswer as ChoiceAnswer
    from shoal.core.permissions.questions import ChoiceQuestion as ChoiceQuestion
    from shoal.core.permissions.questions import DenyAnswer as DenyAnswer
    from shoal.core.permissions.questions import PermissionQuestion as PermissionQuestion
    from shoal.core.permissions.questions import PlanApprovalQuestion as PlanApprovalQuestion
    from shoal.core.permissions.questions import PlanApprovedAnswer as PlanApprovedAnswer
    from shoal.core.permissions.questions import Question as Question
    from shoal.core.ports import Model as Model
    from shoal.core.teams.tasks import Task as Task
    from shoal.core.teams.team_operations import TeammateStatusSnapshot as Member  # noqa: F401 - its public name
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
    "AllowAnswer": "shoal.core.permissions.questions",
    "Answer": "shoal.core.permissions.questions",
    "Budget": "shoal.core.budgets.shared_budget:SharedBudget",
    "ChoiceAnswer": "shoal.core.permissions.questions",
    "ChoiceQuestion": "shoal.core.permissions.questions",
    "DeltaListener": "shoal.core.conversation.model_requests",
    "DenyAnswer": "shoal.core.permissions.questions",
    "Event": "shoal.core.events",
    "FileStore": "shoal.stores.files.file_store",
    "Member": "shoal.core.teams.team_operations:TeammateStatusSnapshot",
    "MemoryStore": "shoal.stores.memory.memory_store",
    "Message": "shoal.core.conversation.messages",
    "Model": "shoal.core.ports",
    "ModelAttemptStartedDelta": "shoal.core.conversation.model_requests",
    "ModelCard": "shoal.core.budgets.usage",
    "ModelReply": "shoal.core.conversation.model_requests",
    "ModelRequest": "shoal.core.conversation.model_requests",
    "Options": "shoal.app.options",
    "PermissionQuestion": "shoal.core.permissions.questions",
    "PlanApprovalQuestion": "shoal.core.permissions.questions",
    "PlanApprovedAnswer": "shoal.core.permissions.questions",
    "Question": "shoal.core.permissions.questions",
    "ReplayModel": "shoal.models.replay_model",
    "Result": "shoal.app.session.result",
    "RunFailed": "shoal.core.errors",
    "ScriptedModel": "shoal.models.scripted_model",
    "Session": "shoal.app.library.library_session:LibrarySession",
    "SessionOptions": "shoal.app.library.session_options",
    "SettingsError": "shoal.core.errors",
    "ShoalError": "shoal.core.errors",
    "StreamDelta": "shoal.core.conversation.model_requests",
    "Task": "shoal.core.teams.tasks",
    "Team": "shoal.app.library.team",
    "TeamReport": "shoal.app.library.team",
    "TeamStore": "shoal.app.teams.team_store",
    "TextBlock": "shoal.core.conversation.messages",
    "TextDelta": "shoal.core.conversation.model_requests",
    "TokenPrice": "shoal.core.budgets.usage",
    "Tool": "shoal.core.conversation.tools",
    "ToolContext": "shoal.core.conversation.tools",
    "ToolOutput": "shoal.core.conversation.tools",
    "ToolResultBlock": "shoal.core.conversation.messages",
    "ToolSchema": "shoal.core.conversation.model_requests",
    "ToolUseBlock": "shoal.core.conversation.messages",
    "Turn": "shoal.app.session.turn",
    "Usage": "shoal.core.budgets.usage",
    "Workflow": "shoal.app.workflows.workflow",
    "WorkflowDefinition": "shoal.app.workflows.workflow_definition",
    "acting_as": "shoal.core.agents.identity",
    "current_cwd": "shoal.core.agents.identity",
    "current_identity": "shoal.core.agents.identity",
    "current_member": "shoal.core.agents.identity",
    "open": "shoal.app.api",
    "run": "shoal.app.api",
    "run_sync": "shoal.app.api",
    "tool": "shoal.tools.function_tool",
    "workflow": "shoal.app.workflows.workflow_definition",
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
