"""Types of hook functions: the input of each event, and what a function may return for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict, TypeVar

from shoal.core.extensions.hooks import Hook, HookDecision

InputT = TypeVar("InputT")
SpecificT = TypeVar("SpecificT")


class HookEffort(TypedDict):
    """Thinking effort of the model."""

    level: str
    """Level, for example `high`."""


class HookInput(TypedDict):
    """Fields that every event has; `agent_id` and `agent_type` are absent for the lead."""

    session_id: str
    transcript_path: str
    cwd: str
    permission_mode: str
    hook_event_name: str
    agent_id: NotRequired[str]
    agent_type: NotRequired[str]
    prompt_id: NotRequired[str]
    """Absent before the first prompt."""
    effort: NotRequired[HookEffort]
    """Absent if thinking is off, and for events outside the agent's loop."""


class AddedContextOutput(TypedDict, total=False):
    """Part of an output that adds context for the model."""

    hookEventName: str
    additionalContext: str


class ToolCallDecisionOutput(AddedContextOutput, total=False):
    """Part of an output that allows, denies or changes a call before it runs."""

    permissionDecision: Literal["allow", "ask", "deny"]
    permissionDecisionReason: str
    updatedInput: dict[str, Any]


class PermissionAnswer(TypedDict, total=False):
    """Answer to a permission question, in place of a person's."""

    behavior: Literal["allow", "deny"]
    """Whether the call may run."""
    updatedInput: dict[str, Any]
    """Input with which an allowed call runs."""
    updatedPermissions: list[Any]
    """Permission changes, as the question suggests them."""
    message: str
    """Reason of a denial, for the model."""
    interrupt: bool
    """True if a denial also ends the turn."""


class PermissionAnswerOutput(AddedContextOutput, total=False):
    """Part of an output that answers a permission question."""

    decision: PermissionAnswer


class ToolResultOutput(AddedContextOutput, total=False):
    """Part of an output that replaces the result of a call."""

    updatedToolOutput: Any


class DeniedCallOutput(AddedContextOutput, total=False):
    """Part of an output that lets the model make a denied call again."""

    retry: bool


class SessionStartOutput(AddedContextOutput, total=False):
    """Part of an output that adds a first message or a title to a session."""

    initialUserMessage: str
    sessionTitle: str


class WorktreeOutput(AddedContextOutput, total=False):
    """Part of an output that names the directory of a worktree."""

    worktreePath: str


class _MessageOutput(TypedDict, total=False):
    suppressOutput: bool
    systemMessage: str
    reason: str


class NoticeOutput(_MessageOutput, total=False):
    """Answer at an event that nothing can stop: only people see it."""

    decision: Literal["block"]
    """`block` shows the reason to the user."""


# The form of a call, because `continue` is a keyword.
_StoppingOutput = TypedDict("_StoppingOutput", {"continue": bool, "stopReason": str}, total=False)


class HookOutput(NoticeOutput, _StoppingOutput, total=False):
    """Answer at an event that a hook can block: `decision` blocks it, `continue` ends the agent's turn."""


class _ContextHookOutput(HookOutput, total=False):
    hookSpecificOutput: AddedContextOutput


class _DecidingHookOutput(_MessageOutput, _StoppingOutput, total=False):
    decision: Literal["approve", "block"]


class PreToolUseHookOutput(_DecidingHookOutput, total=False):
    """Allows, denies or changes a call before it runs."""

    hookSpecificOutput: ToolCallDecisionOutput


class PermissionRequestHookOutput(_DecidingHookOutput, total=False):
    """Answers a permission question."""

    hookSpecificOutput: PermissionAnswerOutput


class PostToolUseHookOutput(HookOutput, total=False):
    """Objects to a result, adds to it, or replaces it."""

    hookSpecificOutput: ToolResultOutput


class PostToolUseFailureHookOutput(_ContextHookOutput, total=False):
    """Objects to a failed result, or adds to it."""


class UserPromptSubmitHookOutput(_ContextHookOutput, total=False):
    """Erases a prompt, or adds to it."""


class UserPromptExpansionHookOutput(_ContextHookOutput, total=False):
    """Refuses a typed command, or adds to it."""


class StopHookOutput(HookOutput, total=False):
    """`block` sends the lead back to work with the reason."""


class SubagentStartHookOutput(NoticeOutput, total=False):
    """Adds to the first prompt of an agent."""

    hookSpecificOutput: AddedContextOutput


class SubagentStopHookOutput(HookOutput, total=False):
    """`block` sends the agent back to work with the reason."""


class TeammateIdleHookOutput(HookOutput, total=False):
    """`block` sends the teammate back to work with the reason."""


class TaskCreatedHookOutput(HookOutput, total=False):
    """`block` keeps the task from being created."""


class TaskCompletedHookOutput(HookOutput, total=False):
    """`block` keeps the task from being completed."""


class SessionStartHookOutput(HookOutput, total=False):
    """Adds context, a first message or a title to a session."""

    hookSpecificOutput: SessionStartOutput


class SetupHookOutput(_ContextHookOutput, total=False):
    """Adds context to a session."""


class SessionEndHookOutput(NoticeOutput, total=False):
    """Tells the user something at the end of a session."""


class PreCompactHookOutput(_ContextHookOutput, total=False):
    """Refuses `/compact`, or adds instructions for the summary."""


class PostCompactHookOutput(HookOutput, total=False):
    """Tells the user something, or ends the turn."""


class NotificationHookOutput(NoticeOutput, total=False):
    """Tells the user something."""


class WorktreeCreateHookOutput(HookOutput, total=False):
    """Names the directory to use as the worktree, or keeps the agent from starting."""

    hookSpecificOutput: WorktreeOutput


class WorktreeRemoveHookOutput(NoticeOutput, total=False):
    """Tells the user something."""


class ConfigChangeHookOutput(HookOutput, total=False):
    """`block` keeps the session's settings until the next change."""


class StopFailureHookOutput(HookOutput, total=False):
    """Tells the user something."""


class PostToolBatchHookOutput(_ContextHookOutput, total=False):
    """Ends the turn, or adds context for the model."""


class PermissionDeniedHookOutput(HookOutput, total=False):
    """Lets the model make a denied call again."""

    hookSpecificOutput: DeniedCallOutput


class InstructionsLoadedHookOutput(NoticeOutput, total=False):
    """Tells the user something."""


class PreToolUseInput(HookInput):
    """Before a tool call and its permission check."""

    tool_name: str
    tool_input: dict[str, Any]
    tool_use_id: str


class PostToolUseInput(HookInput):
    """After a tool call."""

    tool_name: str
    tool_input: dict[str, Any]
    tool_use_id: str
    tool_response: Any


class PostToolUseFailureInput(HookInput):
    """After a tool call that failed."""

    tool_name: str
    tool_input: dict[str, Any]
    tool_use_id: str
    error: str


class PermissionRequestInput(HookInput):
    """Before Shoal asks the user to allow a call."""

    tool_name: str
    tool_input: dict[str, Any]
    tool_use_id: str


class UserPromptSubmitInput(HookInput):
    """A user sends a prompt to an agent."""

    prompt: str


class StopInput(HookInput):
    """The lead is about to stop."""

    stop_hook_active: bool
    last_assistant_message: str


class SubagentStartInput(HookInput):
    """Before an agent's first step, but not when it is resumed."""

    agent_transcript_path: str


class SubagentStopInput(HookInput):
    """An agent other than the lead is about to stop."""

    stop_hook_active: bool
    last_assistant_message: str
    agent_transcript_path: str


class TeammateIdleInput(HookInput):
    """A teammate is about to become idle."""

    team_name: str
    teammate_name: str


class TaskCreatedInput(HookInput):
    """Before a task is created."""

    task_subject: str
    task_description: str
    team_name: NotRequired[str]
    teammate_name: NotRequired[str]


class TaskCompletedInput(HookInput):
    """Before a task is completed."""

    task_id: str
    task_subject: str
    task_description: str
    team_name: NotRequired[str]
    teammate_name: NotRequired[str]


class SessionStartInput(HookInput):
    """A session has started, or its conversation was summarized."""

    source: str
    model: NotRequired[str]


class SetupInput(HookInput):
    """A person starts Shoal with `--init`, `--init-only` or `--maintenance`."""

    trigger: str


class SessionEndInput(HookInput):
    """A session ends."""

    reason: str


class PreCompactInput(HookInput):
    """Before a conversation is summarized."""

    trigger: str
    custom_instructions: str


class NotificationInput(HookInput):
    """Shoal is waiting for the user."""

    message: str
    title: str
    notification_type: str


class WorktreeCreateInput(HookInput):
    """An agent needs a worktree. The hook prints the path of the directory to use."""

    name: str


class WorktreeRemoveInput(HookInput):
    """A worktree was removed."""

    name: str
    worktree_path: str


class ConfigChangeInput(HookInput):
    """A settings file changed. Shoal checks before each call."""

    source: str
    file_path: str


class StopFailureInput(HookInput):
    """The model could not answer, so the turn ends."""

    error: str
    error_details: str


class PostCompactInput(HookInput):
    """A conversation was summarized."""

    trigger: str
    compact_summary: str


class PostToolBatchInput(HookInput):
    """After all calls in one reply."""

    tool_calls: list[dict[str, Any]]


class PermissionDeniedInput(HookInput):
    """A call was denied by a rule, by the mode, or because nobody answered the question."""

    tool_name: str
    tool_input: dict[str, Any]
    tool_use_id: str
    reason: str


class UserPromptExpansionInput(HookInput):
    """Before a command that a person typed becomes a prompt."""

    expansion_type: str
    command_name: str
    command_args: str
    command_source: str
    prompt: str


class InstructionsLoadedInput(HookInput):
    """An instruction file became part of a prompt or a conversation."""

    file_path: str
    memory_type: str
    load_reason: str


HookFunction: TypeAlias = Callable[
    [InputT], SpecificT | HookDecision | Awaitable[SpecificT | HookDecision | None] | None
]
"""Function that gets the event; it may be async. Without a decision it returns None."""
HookEntry: TypeAlias = (
    HookFunction[InputT, SpecificT] | tuple[str, HookFunction[InputT, SpecificT]] | Hook | Mapping[str, Any]
)
"""Function, (matcher, function), `Hook`, or an entry as in settings."""


class Hooks(TypedDict, total=False):
    """Hooks of a program by event."""

    PreToolUse: Sequence[HookEntry[PreToolUseInput, PreToolUseHookOutput]]
    PostToolUse: Sequence[HookEntry[PostToolUseInput, PostToolUseHookOutput]]
    PostToolUseFailure: Sequence[HookEntry[PostToolUseFailureInput, PostToolUseFailureHookOutput]]
    PermissionRequest: Sequence[HookEntry[PermissionRequestInput, PermissionRequestHookOutput]]
    UserPromptSubmit: Sequence[HookEntry[UserPromptSubmitInput, UserPromptSubmitHookOutput]]
    Stop: Sequence[HookEntry[StopInput, StopHookOutput]]
    SubagentStart: Sequence[HookEntry[SubagentStartInput, SubagentStartHookOutput]]
    SubagentStop: Sequence[HookEntry[SubagentStopInput, SubagentStopHookOutput]]
    TeammateIdle: Sequence[HookEntry[TeammateIdleInput, TeammateIdleHookOutput]]
    TaskCreated: Sequence[HookEntry[TaskCreatedInput, TaskCreatedHookOutput]]
    TaskCompleted: Sequence[HookEntry[TaskCompletedInput, TaskCompletedHookOutput]]
    SessionStart: Sequence[HookEntry[SessionStartInput, SessionStartHookOutput]]
    Setup: Sequence[HookEntry[SetupInput, SetupHookOutput]]
    SessionEnd: Sequence[HookEntry[SessionEndInput, SessionEndHookOutput]]
    PreCompact: Sequence[HookEntry[PreCompactInput, PreCompactHookOutput]]
    Notification: Sequence[HookEntry[NotificationInput, NotificationHookOutput]]
    WorktreeCreate: Sequence[HookEntry[WorktreeCreateInput, WorktreeCreateHookOutput]]
    WorktreeRemove: Sequence[HookEntry[WorktreeRemoveInput, WorktreeRemoveHookOutput]]
    ConfigChange: Sequence[HookEntry[ConfigChangeInput, ConfigChangeHookOutput]]
    StopFailure: Sequence[HookEntry[StopFailureInput, StopFailureHookOutput]]
    PostCompact: Sequence[HookEntry[PostCompactInput, PostCompactHookOutput]]
    PostToolBatch: Sequence[HookEntry[PostToolBatchInput, PostToolBatchHookOutput]]
    PermissionDenied: Sequence[HookEntry[PermissionDeniedInput, PermissionDeniedHookOutput]]
    UserPromptExpansion: Sequence[HookEntry[UserPromptExpansionInput, UserPromptExpansionHookOutput]]
    InstructionsLoaded: Sequence[HookEntry[InstructionsLoadedInput, InstructionsLoadedHookOutput]]
