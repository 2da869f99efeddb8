"""Runs teams of LLM agents on real work.

result = await shoal.run("Make the tests pass.", cwd="project")

Importing this module does nothing; each name is loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.app.agents.agent import Agent as Agent
    from shoal.app.agents.agent import AgentResources as AgentResources
    from shoal.app.agents.agent import EffortLevel as EffortLevel
    from shoal.app.agents.program_agents import SpawnOptions as SpawnOptions
    from shoal.app.agents.result import Result as Result
    from shoal.app.agents.result import ResultReason as ResultReason
    from shoal.app.api import open as open  # noqa: A004 - always used as shoal.open
    from shoal.app.api import run as run
    from shoal.app.api import run_sync as run_sync
    from shoal.app.library.agent_handle import AgentHandle as AgentHandle
    from shoal.app.library.library_session import LibrarySession as Session
    from shoal.app.library.session_options import PathText as PathText
    from shoal.app.library.session_options import SessionOptions as SessionOptions
    from shoal.app.library.session_options import SharedOptions as SharedOptions
    from shoal.app.library.team import Team as Team
    from shoal.app.library.team import TeamResumption as TeamResumption
    from shoal.app.library.team_report import TeamReport as TeamReport
    from shoal.app.options import QuestionHandler as QuestionHandler
    from shoal.app.session.turn import StoppedAgentsAndCommands as StoppedAgentsAndCommands
    from shoal.app.session.turn import Turn as Turn
    from shoal.app.session.typed_commands import SlashCommandInvocation as SlashCommandInvocation
    from shoal.app.workflows.step_runner import ShellStepResult as ShellStepResult
    from shoal.app.workflows.workflow import Workflow as Workflow
    from shoal.app.workflows.workflow_definition import WorkflowDefinition as WorkflowDefinition
    from shoal.app.workflows.workflow_definition import workflow as workflow
    from shoal.app.workflows.workflow_supervisor import WorkflowSession as WorkflowSession
    from shoal.core import errors as errors
    from shoal.core import events as events
    from shoal.core.agents.agent_definitions import MemoryScope as MemoryScope
    from shoal.core.agents.background_shells import BackgroundShell as BackgroundShell
    from shoal.core.agents.background_shells import BackgroundShellResult as BackgroundShellResult
    from shoal.core.agents.background_shells import ShellOutcome as ShellOutcome
    from shoal.core.agents.identity import AgentIdentity as AgentIdentity
    from shoal.core.agents.identity import HasCwd as HasCwd
    from shoal.core.agents.identity import TeammateForm as TeammateForm
    from shoal.core.agents.identity import acting_as as acting_as
    from shoal.core.agents.identity import current_cwd as current_cwd
    from shoal.core.agents.identity import current_identity as current_identity
    from shoal.core.agents.identity import current_member as current_member
    from shoal.core.agents.schedules import Schedule as Schedule
    from shoal.core.agents.schedules import ScheduleEndReason as ScheduleEndReason
    from shoal.core.agents.subagents import AgentEndStatus as AgentEndStatus
    from shoal.core.agents.subagents import AgentMessageDeliveryReceipt as AgentMessageDeliveryReceipt
    from shoal.core.agents.subagents import AgentResult as AgentResult
    from shoal.core.agents.subagents import AgentRunStatus as AgentRunStatus
    from shoal.core.agents.subagents import AgentStatusSnapshot as AgentStatusSnapshot
    from shoal.core.agents.subagents import AgentWorkEvidence as AgentWorkEvidence
    from shoal.core.agents.subagents import RetainedWorktreeWork as RetainedWorktreeWork
    from shoal.core.agents.subagents import ShellCommandResult as ShellCommandResult
    from shoal.core.budgets.limits import LimitKind as LimitKind
    from shoal.core.budgets.shared_budget import SharedBudget as Budget
    from shoal.core.budgets.usage import LongPromptPrice as LongPromptPrice
    from shoal.core.budgets.usage import ModelCard as ModelCard
    from shoal.core.budgets.usage import SessionSpending as SessionSpending
    from shoal.core.budgets.usage import TokenPrice as TokenPrice
    from shoal.core.budgets.usage import Usage as Usage
    from shoal.core.clock import Clock as Clock
    from shoal.core.clock import Deadline as Deadline
    from shoal.core.clock import SystemClock as SystemClock
    from shoal.core.conversation import messages as messages
    from shoal.core.conversation.messages import Message as Message
    from shoal.core.conversation.messages import TextBlock as TextBlock
    from shoal.core.conversation.messages import ToolResultBlock as ToolResultBlock
    from shoal.core.conversation.messages import ToolUseBlock as ToolUseBlock
    from shoal.core.conversation.model_requests import DeltaListener as DeltaListener
    from shoal.core.conversation.model_requests import ModelAttemptStartedDelta as ModelAttemptStartedDelta
    from shoal.core.conversation.model_requests import ModelReply as ModelReply
    from shoal.core.conversation.model_requests import ModelRequest as ModelRequest
    from shoal.core.conversation.model_requests import ModelRetryScheduledDelta as ModelRetryScheduledDelta
    from shoal.core.conversation.model_requests import StopReason as StopReason
    from shoal.core.conversation.model_requests import StreamDelta as StreamDelta
    from shoal.core.conversation.model_requests import TextDelta as TextDelta
    from shoal.core.conversation.model_requests import ThinkingDelta as ThinkingDelta
    from shoal.core.conversation.model_requests import ToolInputProgressDelta as ToolInputProgressDelta
    from shoal.core.conversation.model_requests import ToolSchema as ToolSchema
    from shoal.core.conversation.model_requests import WebSearchOptions as WebSearchOptions
    from shoal.core.conversation.tools import ProgressCallback as ProgressCallback
    from shoal.core.conversation.tools import Tool as Tool
    from shoal.core.conversation.tools import ToolContext as ToolContext
    from shoal.core.conversation.tools import ToolOutput as ToolOutput
    from shoal.core.errors import RunFailed as RunFailed
    from shoal.core.errors import SettingsError as SettingsError
    from shoal.core.errors import ShoalError as ShoalError
    from shoal.core.events import Event as Event
    from shoal.core.extensions.hook_types import AddedContextOutput as AddedContextOutput
    from shoal.core.extensions.hook_types import ConfigChangeHookOutput as ConfigChangeHookOutput
    from shoal.core.extensions.hook_types import ConfigChangeInput as ConfigChangeInput
    from shoal.core.extensions.hook_types import DeniedCallOutput as DeniedCallOutput
    from shoal.core.extensions.hook_types import HookEffort as HookEffort
    from shoal.core.extensions.hook_types import HookEntry as HookEntry
    from shoal.core.extensions.hook_types import HookFunction as HookFunction
    from shoal.core.extensions.hook_types import HookInput as HookInput
    from shoal.core.extensions.hook_types import HookOutput as HookOutput
    from shoal.core.extensions.hook_types import Hooks as Hooks
    from shoal.core.extensions.hook_types import InstructionsLoadedHookOutput as InstructionsLoadedHookOutput
    from shoal.core.extensions.hook_types import InstructionsLoadedInput as InstructionsLoadedInput
    from shoal.core.extensions.hook_types import NotificationHookOutput as NotificationHookOutput
    from shoal.core.extensions.hook_types import NotificationInput as NotificationInput
    from shoal.core.extensions.hook_types import PermissionAnswer as PermissionAnswer
    from shoal.core.extensions.hook_types import PermissionAnswerOutput as PermissionAnswerOutput
    from shoal.core.extensions.hook_types import PermissionDeniedHookOutput as PermissionDeniedHookOutput
    from shoal.core.extensions.hook_types import PermissionDeniedInput as PermissionDeniedInput
    from shoal.core.extensions.hook_types import PermissionRequestHookOutput as PermissionRequestHookOutput
    from shoal.core.extensions.hook_types import PermissionRequestInput as PermissionRequestInput
    from shoal.core.extensions.hook_types import PostCompactHookOutput as PostCompactHookOutput
    from shoal.core.extensions.hook_types import PostCompactInput as PostCompactInput
    from shoal.core.extensions.hook_types import PostToolBatchHookOutput as PostToolBatchHookOutput
    from shoal.core.extensions.hook_types import PostToolBatchInput as PostToolBatchInput
    from shoal.core.extensions.hook_types import PostToolUseFailureHookOutput as PostToolUseFailureHookOutput
    from shoal.core.extensions.hook_types import PostToolUseFailureInput as PostToolUseFailureInput
    from shoal.core.extensions.hook_types import PostToolUseHookOutput as PostToolUseHookOutput
    from shoal.core.extensions.hook_types import PostToolUseInput as PostToolUseInput
    from shoal.core.extensions.hook_types import PreCompactHookOutput as PreCompactHookOutput
    from shoal.core.extensions.hook_types import PreCompactInput as PreCompactInput
    from shoal.core.extensions.hook_types import PreToolUseHookOutput as PreToolUseHookOutput
    from shoal.core.extensions.hook_types import PreToolUseInput as PreToolUseInput
    from shoal.core.extensions.hook_types import SessionEndHookOutput as SessionEndHookOutput
    from shoal.core.extensions.hook_types import SessionEndInput as SessionEndInput
    from shoal.core.extensions.hook_types import SessionStartHookOutput as SessionStartHookOutput
    from shoal.core.extensions.hook_types import SessionStartInput as SessionStartInput
    from shoal.core.extensions.hook_types import SessionStartOutput as SessionStartOutput
    from shoal.core.extensions.hook_types import SetupHookOutput as SetupHookOutput
    from shoal.core.extensions.hook_types import SetupInput as SetupInput
    from shoal.core.extensions.hook_types import StopFailureHookOutput as StopFailureHookOutput
    from shoal.core.extensions.hook_types import StopFailureInput as StopFailureInput
    from shoal.core.extensions.hook_types import StopHookOutput as StopHookOutput
    from shoal.core.extensions.hook_types import StopInput as StopInput
    from shoal.core.extensions.hook_types import SubagentStartHookOutput as SubagentStartHookOutput
    from shoal.core.extensions.hook_types import SubagentStartInput as SubagentStartInput
    from shoal.core.extensions.hook_types import SubagentStopHookOutput as SubagentStopHookOutput
    from shoal.core.extensions.hook_types import SubagentStopInput as SubagentStopInput
    from shoal.core.extensions.hook_types import TaskCompletedHookOutput as TaskCompletedHookOutput
    from shoal.core.extensions.hook_types import TaskCompletedInput as TaskCompletedInput
    from shoal.core.extensions.hook_types import TaskCreatedHookOutput as TaskCreatedHookOutput
    from shoal.core.extensions.hook_types import TaskCreatedInput as TaskCreatedInput
    from shoal.core.extensions.hook_types import TeammateIdleHookOutput as TeammateIdleHookOutput
    from shoal.core.extensions.hook_types import TeammateIdleInput as TeammateIdleInput
    from shoal.core.extensions.hook_types import ToolCallDecisionOutput as ToolCallDecisionOutput
    from shoal.core.extensions.hook_types import ToolResultOutput as ToolResultOutput
    from shoal.core.extensions.hook_types import (
        UserPromptExpansionHookOutput as UserPromptExpansionHookOutput,
    )
    from shoal.core.extensions.hook_types import UserPromptExpansionInput as UserPromptExpansionInput
    from shoal.core.extensions.hook_types import UserPromptSubmitHookOutput as UserPromptSubmitHookOutput
    from shoal.core.extensions.hook_types import UserPromptSubmitInput as UserPromptSubmitInput
    from shoal.core.extensions.hook_types import WorktreeCreateHookOutput as WorktreeCreateHookOutput
    from shoal.core.extensions.hook_types import WorktreeCreateInput as WorktreeCreateInput
    from shoal.core.extensions.hook_types import WorktreeOutput as WorktreeOutput
    from shoal.core.extensions.hook_types import WorktreeRemoveHookOutput as WorktreeRemoveHookOutput
    from shoal.core.extensions.hook_types import WorktreeRemoveInput as WorktreeRemoveInput
    from shoal.core.extensions.hooks import Hook as Hook
    from shoal.core.extensions.hooks import HookDecision as HookDecision
    from shoal.core.extensions.hooks import HookEvent as HookEvent
    from shoal.core.extensions.mcp_servers import McpServerScope as McpServerScope
    from shoal.core.extensions.mcp_servers import McpServerState as McpServerState
    from shoal.core.extensions.mcp_servers import McpServerStatus as McpServerStatus
    from shoal.core.ids import AgentId as AgentId
    from shoal.core.ids import EntryId as EntryId
    from shoal.core.ids import RequestId as RequestId
    from shoal.core.ids import SessionId as SessionId
    from shoal.core.names import AgentName as AgentName
    from shoal.core.names import TaskId as TaskId
    from shoal.core.permissions.permission_changes import (
        AddDirectoriesPermissionSuggestion as AddDirectoriesPermissionSuggestion,
    )
    from shoal.core.permissions.permission_changes import (
        AddPermissionRulesSuggestion as AddPermissionRulesSuggestion,
    )
    from shoal.core.permissions.permission_changes import PermissionMode as PermissionMode
    from shoal.core.permissions.permission_changes import PermissionSuggestion as PermissionSuggestion
    from shoal.core.permissions.permission_changes import RequestedPermissionMode as RequestedPermissionMode
    from shoal.core.permissions.permission_changes import RuleBehavior as RuleBehavior
    from shoal.core.permissions.permission_changes import RuleDestination as RuleDestination
    from shoal.core.permissions.permission_changes import (
        SetPermissionModeSuggestion as SetPermissionModeSuggestion,
    )
    from shoal.core.permissions.permission_changes import SuggestedPermissionRule as SuggestedPermissionRule
    from shoal.core.permissions.questions import AllowAnswer as AllowAnswer
    from shoal.core.permissions.questions import Answer as Answer
    from shoal.core.permissions.questions import ChoiceAnswer as ChoiceAnswer
    from shoal.core.permissions.questions import ChoiceOption as ChoiceOption
    from shoal.core.permissions.questions import ChoiceQuestion as ChoiceQuestion
    from shoal.core.permissions.questions import DenyAnswer as DenyAnswer
    from shoal.core.permissions.questions import MultipleChoice as MultipleChoice
    from shoal.core.permissions.questions import PermissionQuestion as PermissionQuestion
    from shoal.core.permissions.questions import PlanApprovalQuestion as PlanApprovalQuestion
    from shoal.core.permissions.questions import PlanApprovedAnswer as PlanApprovedAnswer
    from shoal.core.permissions.questions import Question as Question
    from shoal.core.permissions.questions import RememberScope as RememberScope
    from shoal.core.ports import Model as Model
    from shoal.core.store import Store as Store
    from shoal.core.teams.mail import MailMessage as MailMessage
    from shoal.core.teams.mail_bodies import IdleReason as IdleReason
    from shoal.core.teams.tasks import Task as Task
    from shoal.core.teams.tasks import TaskStatus as TaskStatus
    from shoal.core.teams.team_operations import MemberState as MemberState
    from shoal.core.teams.team_operations import TeammateStatusSnapshot as Member
    from shoal.core.tool_names import ToolEntry as ToolEntry
    from shoal.core.tool_names import ToolName as ToolName
    from shoal.core.tool_names import ToolRule as ToolRule
    from shoal.models.replay_model import ReplayModel as ReplayModel
    from shoal.models.scripted_model import ScriptedModel as ScriptedModel
    from shoal.stores.files.file_store import FileStore as FileStore
    from shoal.stores.memory.memory_store import MemoryStore as MemoryStore
    from shoal.tools.function_tool import PythonTool as PythonTool
    from shoal.tools.function_tool import ToolDecorator as ToolDecorator
    from shoal.tools.function_tool import tool as tool
    from shoal.wire.settings_codec import TeammateMode as TeammateMode
    from shoal.workspaces.checkpoints import FileUndoReport as FileUndoReport
    from shoal.workspaces.checkpoints import UnrestoredFile as UnrestoredFile

__version__ = "0.1.0"
__all__ = [
    "AddDirectoriesPermissionSuggestion",
    "AddPermissionRulesSuggestion",
    "AddedContextOutput",
    "Agent",
    "AgentEndStatus",
    "AgentHandle",
    "AgentId",
    "AgentIdentity",
    "AgentMessageDeliveryReceipt",
    "AgentName",
    "AgentResources",
    "AgentResult",
    "AgentRunStatus",
    "AgentStatusSnapshot",
    "AgentWorkEvidence",
    "AllowAnswer",
    "Answer",
    "BackgroundShell",
    "BackgroundShellResult",
    "Budget",
    "ChoiceAnswer",
    "ChoiceOption",
    "ChoiceQuestion",
    "Clock",
    "ConfigChangeHookOutput",
    "ConfigChangeInput",
    "Deadline",
    "DeltaListener",
    "DeniedCallOutput",
    "DenyAnswer",
    "EffortLevel",
    "EntryId",
    "Event",
    "FileStore",
    "FileUndoReport",
    "HasCwd",
    "Hook",
    "HookDecision",
    "HookEffort",
    "HookEntry",
    "HookEvent",
    "HookFunction",
    "HookInput",
    "HookOutput",
    "Hooks",
    "IdleReason",
    "InstructionsLoadedHookOutput",
    "InstructionsLoadedInput",
    "LimitKind",
    "LongPromptPrice",
    "MailMessage",
    "McpServerScope",
    "McpServerState",
    "McpServerStatus",
    "Member",
    "MemberState",
    "MemoryScope",
    "MemoryStore",
    "Message",
    "Model",
    "ModelAttemptStartedDelta",
    "ModelCard",
    "ModelReply",
    "ModelRequest",
    "ModelRetryScheduledDelta",
    "MultipleChoice",
    "NotificationHookOutput",
    "NotificationInput",
    "PathText",
    "PermissionAnswer",
    "PermissionAnswerOutput",
    "PermissionDeniedHookOutput",
    "PermissionDeniedInput",
    "PermissionMode",
    "PermissionQuestion",
    "PermissionRequestHookOutput",
    "PermissionRequestInput",
    "PermissionSuggestion",
    "PlanApprovalQuestion",
    "PlanApprovedAnswer",
    "PostCompactHookOutput",
    "PostCompactInput",
    "PostToolBatchHookOutput",
    "PostToolBatchInput",
    "PostToolUseFailureHookOutput",
    "PostToolUseFailureInput",
    "PostToolUseHookOutput",
    "PostToolUseInput",
    "PreCompactHookOutput",
    "PreCompactInput",
    "PreToolUseHookOutput",
    "PreToolUseInput",
    "ProgressCallback",
    "PythonTool",
    "Question",
    "QuestionHandler",
    "RememberScope",
    "ReplayModel",
    "RequestId",
    "RequestedPermissionMode",
    "Result",
    "ResultReason",
    "RetainedWorktreeWork",
    "RuleBehavior",
    "RuleDestination",
    "RunFailed",
    "Schedule",
    "ScheduleEndReason",
    "ScriptedModel",
    "Session",
    "SessionEndHookOutput",
    "SessionEndInput",
    "SessionId",
    "SessionOptions",
    "SessionSpending",
    "SessionStartHookOutput",
    "SessionStartInput",
    "SessionStartOutput",
    "SetPermissionModeSuggestion",
    "SettingsError",
    "SetupHookOutput",
    "SetupInput",
    "SharedOptions",
    "ShellCommandResult",
    "ShellOutcome",
    "ShellStepResult",
    "ShoalError",
    "SlashCommandInvocation",
    "SpawnOptions",
    "StopFailureHookOutput",
    "StopFailureInput",
    "StopHookOutput",
    "StopInput",
    "StopReason",
    "StoppedAgentsAndCommands",
    "Store",
    "StreamDelta",
    "SubagentStartHookOutput",
    "SubagentStartInput",
    "SubagentStopHookOutput",
    "SubagentStopInput",
    "SuggestedPermissionRule",
    "SystemClock",
    "Task",
    "TaskCompletedHookOutput",
    "TaskCompletedInput",
    "TaskCreatedHookOutput",
    "TaskCreatedInput",
    "TaskId",
    "TaskStatus",
    "Team",
    "TeamReport",
    "TeamResumption",
    "TeammateForm",
    "TeammateIdleHookOutput",
    "TeammateIdleInput",
    "TeammateMode",
    "TextBlock",
    "TextDelta",
    "ThinkingDelta",
    "TokenPrice",
    "Tool",
    "ToolCallDecisionOutput",
    "ToolContext",
    "ToolDecorator",
    "ToolEntry",
    "ToolInputProgressDelta",
    "ToolName",
    "ToolOutput",
    "ToolResultBlock",
    "ToolResultOutput",
    "ToolRule",
    "ToolSchema",
    "ToolUseBlock",
    "Turn",
    "UnrestoredFile",
    "Usage",
    "UserPromptExpansionHookOutput",
    "UserPromptExpansionInput",
    "UserPromptSubmitHookOutput",
    "UserPromptSubmitInput",
    "WebSearchOptions",
    "Workflow",
    "WorkflowDefinition",
    "WorkflowSession",
    "WorktreeCreateHookOutput",
    "WorktreeCreateInput",
    "WorktreeOutput",
    "WorktreeRemoveHookOutput",
    "WorktreeRemoveInput",
    "acting_as",
    "current_cwd",
    "current_identity",
    "current_member",
    "errors",
    "events",
    "messages",
    "open",
    "run",
    "run_sync",
    "tool",
    "workflow",
]

_EXPORT_MODULES = {
    "AddDirectoriesPermissionSuggestion": "shoal.core.permissions.permission_changes",
    "AddPermissionRulesSuggestion": "shoal.core.permissions.permission_changes",
    "AddedContextOutput": "shoal.core.extensions.hook_types",
    "Agent": "shoal.app.agents.agent",
    "AgentEndStatus": "shoal.core.agents.subagents",
    "AgentHandle": "shoal.app.library.agent_handle",
    "AgentId": "shoal.core.ids",
    "AgentIdentity": "shoal.core.agents.identity",
    "AgentMessageDeliveryReceipt": "shoal.core.agents.subagents",
    "AgentName": "shoal.core.names",
    "AgentResources": "shoal.app.agents.agent",
    "AgentResult": "shoal.core.agents.subagents",
    "AgentRunStatus": "shoal.core.agents.subagents",
    "AgentStatusSnapshot": "shoal.core.agents.subagents",
    "AgentWorkEvidence": "shoal.core.agents.subagents",
    "AllowAnswer": "shoal.core.permissions.questions",
    "Answer": "shoal.core.permissions.questions",
    "BackgroundShell": "shoal.core.agents.background_shells",
    "BackgroundShellResult": "shoal.core.agents.background_shells",
    "Budget": "shoal.core.budgets.shared_budget:SharedBudget",
    "ChoiceAnswer": "shoal.core.permissions.questions",
    "ChoiceOption": "shoal.core.permissions.questions",
    "ChoiceQuestion": "shoal.core.permissions.questions",
    "Clock": "shoal.core.clock",
    "ConfigChangeHookOutput": "shoal.core.extensions.hook_types",
    "ConfigChangeInput": "shoal.core.extensions.hook_types",
    "Deadline": "shoal.core.clock",
    "DeltaListener": "shoal.core.conversation.model_requests",
    "DeniedCallOutput": "shoal.core.extensions.hook_types",
    "DenyAnswer": "shoal.core.permissions.questions",
    "EffortLevel": "shoal.app.agents.agent",
    "EntryId": "shoal.core.ids",
    "Event": "shoal.core.events",
    "FileStore": "shoal.stores.files.file_store",
    "FileUndoReport": "shoal.workspaces.checkpoints",
    "HasCwd": "shoal.core.agents.identity",
    "Hook": "shoal.core.extensions.hooks",
    "HookDecision": "shoal.core.extensions.hooks",
    "HookEffort": "shoal.core.extensions.hook_types",
    "HookEntry": "shoal.core.extensions.hook_types",
    "HookEvent": "shoal.core.extensions.hooks",
    "HookFunction": "shoal.core.extensions.hook_types",
    "HookInput": "shoal.core.extensions.hook_types",
    "HookOutput": "shoal.core.extensions.hook_types",
    "Hooks": "shoal.core.extensions.hook_types",
    "IdleReason": "shoal.core.teams.mail_bodies",
    "InstructionsLoadedHookOutput": "shoal.core.extensions.hook_types",
    "InstructionsLoadedInput": "shoal.core.extensions.hook_types",
    "LimitKind": "shoal.core.budgets.limits",
    "LongPromptPrice": "shoal.core.budgets.usage",
    "MailMessage": "shoal.core.teams.mail",
    "McpServerState": "shoal.core.extensions.mcp_servers",
    "McpServerScope": "shoal.core.extensions.mcp_servers",
    "McpServerStatus": "shoal.core.extensions.mcp_servers",
    "Member": "shoal.core.teams.team_operations:TeammateStatusSnapshot",
    "MemberState": "shoal.core.teams.team_operations",
    "MemoryScope": "shoal.core.agents.agent_definitions",
    "MemoryStore": "shoal.stores.memory.memory_store",
    "Message": "shoal.core.conversation.messages",
    "Model": "shoal.core.ports",
    "ModelAttemptStartedDelta": "shoal.core.conversation.model_requests",
    "ModelCard": "shoal.core.budgets.usage",
    "ModelReply": "shoal.core.conversation.model_requests",
    "ModelRequest": "shoal.core.conversation.model_requests",
    "ModelRetryScheduledDelta": "shoal.core.conversation.model_requests",
    "MultipleChoice": "shoal.core.permissions.questions",
    "NotificationHookOutput": "shoal.core.extensions.hook_types",
    "NotificationInput": "shoal.core.extensions.hook_types",
    "PathText": "shoal.app.library.session_options",
    "PermissionAnswer": "shoal.core.extensions.hook_types",
    "PermissionAnswerOutput": "shoal.core.extensions.hook_types",
    "PermissionDeniedHookOutput": "shoal.core.extensions.hook_types",
    "PermissionDeniedInput": "shoal.core.extensions.hook_types",
    "PermissionMode": "shoal.core.permissions.permission_changes",
    "PermissionQuestion": "shoal.core.permissions.questions",
    "PermissionRequestHookOutput": "shoal.core.extensions.hook_types",
    "PermissionRequestInput": "shoal.core.extensions.hook_types",
    "PermissionSuggestion": "shoal.core.permissions.permission_changes",
    "PlanApprovalQuestion": "shoal.core.permissions.questions",
    "PlanApprovedAnswer": "shoal.core.permissions.questions",
    "PostCompactHookOutput": "shoal.core.extensions.hook_types",
    "PostCompactInput": "shoal.core.extensions.hook_types",
    "PostToolBatchHookOutput": "shoal.core.extensions.hook_types",
    "PostToolBatchInput": "shoal.core.extensions.hook_types",
    "PostToolUseFailureHookOutput": "shoal.core.extensions.hook_types",
    "PostToolUseFailureInput": "shoal.core.extensions.hook_types",
    "PostToolUseHookOutput": "shoal.core.extensions.hook_types",
    "PostToolUseInput": "shoal.core.extensions.hook_types",
    "PreCompactHookOutput": "shoal.core.extensions.hook_types",
    "PreCompactInput": "shoal.core.extensions.hook_types",
    "PreToolUseHookOutput": "shoal.core.extensions.hook_types",
    "PreToolUseInput": "shoal.core.extensions.hook_types",
    "ProgressCallback": "shoal.core.conversation.tools",
    "PythonTool": "shoal.tools.function_tool",
    "Question": "shoal.core.permissions.questions",
    "QuestionHandler": "shoal.app.options",
    "RememberScope": "shoal.core.permissions.questions",
    "ReplayModel": "shoal.models.replay_model",
    "RequestId": "shoal.core.ids",
    "RequestedPermissionMode": "shoal.core.permissions.permission_changes",
    "Result": "shoal.app.agents.result",
    "ResultReason": "shoal.app.agents.result",
    "RetainedWorktreeWork": "shoal.core.agents.subagents",
    "RuleBehavior": "shoal.core.permissions.permission_changes",
    "RuleDestination": "shoal.core.permissions.permission_changes",
    "RunFailed": "shoal.core.errors",
    "Schedule": "shoal.core.agents.schedules",
    "ScheduleEndReason": "shoal.core.agents.schedules",
    "ScriptedModel": "shoal.models.scripted_model",
    "Session": "shoal.app.library.library_session:LibrarySession",
    "SessionEndHookOutput": "shoal.core.extensions.hook_types",
    "SessionEndInput": "shoal.core.extensions.hook_types",
    "SessionId": "shoal.core.ids",
    "SessionOptions": "shoal.app.library.session_options",
    "SessionSpending": "shoal.core.budgets.usage",
    "SessionStartHookOutput": "shoal.core.extensions.hook_types",
    "SessionStartInput": "shoal.core.extensions.hook_types",
    "SessionStartOutput": "shoal.core.extensions.hook_types",
    "SetPermissionModeSuggestion": "shoal.core.permissions.permission_changes",
    "SettingsError": "shoal.core.errors",
    "SetupHookOutput": "shoal.core.extensions.hook_types",
    "SetupInput": "shoal.core.extensions.hook_types",
    "SharedOptions": "shoal.app.library.session_options",
    "ShellCommandResult": "shoal.core.agents.subagents",
    "ShellOutcome": "shoal.core.agents.background_shells",
    "ShellStepResult": "shoal.app.workflows.step_runner",
    "ShoalError": "shoal.core.errors",
    "SlashCommandInvocation": "shoal.app.session.typed_commands",
    "SpawnOptions": "shoal.app.agents.program_agents",
    "StopFailureHookOutput": "shoal.core.extensions.hook_types",
    "StopFailureInput": "shoal.core.extensions.hook_types",
    "StopHookOutput": "shoal.core.extensions.hook_types",
    "StopInput": "shoal.core.extensions.hook_types",
    "StopReason": "shoal.core.conversation.model_requests",
    "StoppedAgentsAndCommands": "shoal.app.session.turn",
    "Store": "shoal.core.store",
    "StreamDelta": "shoal.core.conversation.model_requests",
    "SubagentStartHookOutput": "shoal.core.extensions.hook_types",
    "SubagentStartInput": "shoal.core.extensions.hook_types",
    "SubagentStopHookOutput": "shoal.core.extensions.hook_types",
    "SubagentStopInput": "shoal.core.extensions.hook_types",
    "SuggestedPermissionRule": "shoal.core.permissions.permission_changes",
    "SystemClock": "shoal.core.clock",
    "Task": "shoal.core.teams.tasks",
    "TaskCompletedHookOutput": "shoal.core.extensions.hook_types",
    "TaskCompletedInput": "shoal.core.extensions.hook_types",
    "TaskCreatedHookOutput": "shoal.core.extensions.hook_types",
    "TaskCreatedInput": "shoal.core.extensions.hook_types",
    "TaskId": "shoal.core.names",
    "TaskStatus": "shoal.core.teams.tasks",
    "Team": "shoal.app.library.team",
    "TeamReport": "shoal.app.library.team_report",
    "TeamResumption": "shoal.app.library.team",
    "TeammateForm": "shoal.core.agents.identity",
    "TeammateIdleHookOutput": "shoal.core.extensions.hook_types",
    "TeammateIdleInput": "shoal.core.extensions.hook_types",
    "TeammateMode": "shoal.wire.settings_codec",
    "TextBlock": "shoal.core.conversation.messages",
    "TextDelta": "shoal.core.conversation.model_requests",
    "ThinkingDelta": "shoal.core.conversation.model_requests",
    "TokenPrice": "shoal.core.budgets.usage",
    "Tool": "shoal.core.conversation.tools",
    "ToolCallDecisionOutput": "shoal.core.extensions.hook_types",
    "ToolContext": "shoal.core.conversation.tools",
    "ToolDecorator": "shoal.tools.function_tool",
    "ToolEntry": "shoal.core.tool_names",
    "ToolInputProgressDelta": "shoal.core.conversation.model_requests",
    "ToolName": "shoal.core.tool_names",
    "ToolOutput": "shoal.core.conversation.tools",
    "ToolResultBlock": "shoal.core.conversation.messages",
    "ToolResultOutput": "shoal.core.extensions.hook_types",
    "ToolRule": "shoal.core.tool_names",
    "ToolSchema": "shoal.core.conversation.model_requests",
    "ToolUseBlock": "shoal.core.conversation.messages",
    "Turn": "shoal.app.session.turn",
    "UnrestoredFile": "shoal.workspaces.checkpoints",
    "Usage": "shoal.core.budgets.usage",
    "UserPromptExpansionHookOutput": "shoal.core.extensions.hook_types",
    "UserPromptExpansionInput": "shoal.core.extensions.hook_types",
    "UserPromptSubmitHookOutput": "shoal.core.extensions.hook_types",
    "UserPromptSubmitInput": "shoal.core.extensions.hook_types",
    "WebSearchOptions": "shoal.core.conversation.model_requests",
    "Workflow": "shoal.app.workflows.workflow",
    "WorkflowDefinition": "shoal.app.workflows.workflow_definition",
    "WorkflowSession": "shoal.app.workflows.workflow_supervisor",
    "WorktreeCreateHookOutput": "shoal.core.extensions.hook_types",
    "WorktreeCreateInput": "shoal.core.extensions.hook_types",
    "WorktreeOutput": "shoal.core.extensions.hook_types",
    "WorktreeRemoveHookOutput": "shoal.core.extensions.hook_types",
    "WorktreeRemoveInput": "shoal.core.extensions.hook_types",
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
