"""Events of a run. `JournaledEvent`s are stored; the others are only for live observers."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias

from msgspec import Struct

from shoal.core.agents.background_shells import BackgroundShell, BackgroundShellResult
from shoal.core.agents.schedules import Schedule, ScheduleEndReason
from shoal.core.agents.subagents import AgentResult, RetainedWorktreeWork
from shoal.core.budgets.limits import LimitKind
from shoal.core.budgets.usage import Usage
from shoal.core.conversation.messages import Message, ToolResultBlock
from shoal.core.ids import AgentId, EntryId, RequestId, SessionId
from shoal.core.permissions.questions import Answer, Question
from shoal.core.teams.mail_bodies import IdleReason

MessageAuthor: TypeAlias = Literal["person", "model", "tool", "runtime", "agent"]
InboxItemMode: TypeAlias = Literal["prompt", "bash", "task-notification", "orphaned-permission"]
EVENT_MODULES = (
    __name__,
    "shoal.core.agents.background_shells",
    "shoal.core.agents.schedules",
    "shoal.core.agents.subagents",
    "shoal.core.budgets.usage",
    "shoal.core.permissions.permission_changes",
    "shoal.core.permissions.questions",
)
"""Modules that define the events and their parts."""
PREVIEW_LENGTH = 200
"""Maximum characters of a text in an event; the transcript has the full text."""


class Event(Struct, frozen=True, kw_only=True, tag_field="type", tag="event", gc=False):
    """Base class of all events."""

    is_journaled: ClassVar[bool] = False
    agent: AgentId
    """Id of the agent; `lead` for the lead."""


class JournaledEvent(Event, frozen=True, tag="journaled"):
    """Event that is appended to the journal before it is published."""

    is_journaled: ClassVar[bool] = True


class LiveEvent(Event, frozen=True, tag="live"):
    """Event that is published and never stored."""


class SessionStarted(JournaledEvent, frozen=True, tag="session_started"):
    """A session started or was resumed; the first line of each run."""

    session: SessionId
    cwd: str
    model: str
    mode: str
    """Permission mode."""
    tools: tuple[str, ...]
    resumed: bool = False
    version: str = ""
    budget_usd: float | None = None
    """Budget of the whole run; None means unlimited."""
    budget_tokens: int | None = None
    model_named: str = ""
    """Name under which the caller requested the model; empty if it comes from settings."""


class TurnStarted(JournaledEvent, frozen=True, tag="turn_started"):
    """The agent got new input."""

    turn: int
    prompt: str
    """Preview of the prompt."""
    after: EntryId | None = None
    """Last entry before the turn, for rewinding; None at the start of the conversation."""


class ModelRequestSent(JournaledEvent, frozen=True, tag="request_sent"):
    """A request was sent to a model. Its estimated cost is reserved."""

    request: RequestId
    model: str
    reserved_usd: float = 0.0
    """Dollars reserved for the request until it is settled; 0 if the price is unknown."""
    reserved_tokens: int = 0


class ModelRequestSettled(JournaledEvent, frozen=True, tag="request_settled"):
    """A model answered, and the provider reported the usage."""

    request: RequestId
    model: str
    usage: Usage
    cost_usd: float | None
    """Cost in dollars; None if the price of the model is unknown."""
    duration_ms: int


class ModelRequestFailed(JournaledEvent, frozen=True, tag="request_failed"):
    """A request failed. If it is `billed`, it may cost an unknown amount and is listed as unsettled."""

    request: RequestId
    reason: str
    billed: bool
    retry_in: float | None = None
    """Seconds until the retry; None if there is none."""
    estimated_usd: float | None = None
    """Dollars that Shoal counts for it; None means the amount that was reserved for it."""
    estimated_tokens: int | None = None
    quota: bool = False
    """True if the provider refused because the account's quota or credit is exhausted."""


class RepetitionStopped(JournaledEvent, frozen=True, tag="repetition_stopped"):
    """An agent was stopped because it was in a loop and nobody let it continue."""

    reason: str


class AssistantReplied(JournaledEvent, frozen=True, tag="assistant_said"):
    """A complete model reply is in the transcript."""

    entry: EntryId
    preview: str
    tool_uses: int
    """Number of tool calls in the reply."""


class ToolStarted(JournaledEvent, frozen=True, tag="tool_started"):
    """A tool call started."""

    call: str
    """Id that the model gave the call."""
    tool: str
    preview: str
    """Preview of the input."""


class ToolFinished(JournaledEvent, frozen=True, tag="tool_finished"):
    """A tool call finished, and its result is stored."""

    call: str
    tool: str
    is_error: bool
    size: int
    """Length of the full result in characters."""
    duration_ms: int
    preview: str
    may_change_files: bool = False
    """True for a command or a write that may have changed a file. It is False for calls that failed, commands
    that only read, and writes of the content that the file already had."""


class PermissionDenied(JournaledEvent, frozen=True, tag="permission_denied"):
    """A tool call was refused by a rule, a mode, a hook or an answer."""

    call: str
    tool: str
    reason: str


class HookRan(JournaledEvent, frozen=True, tag="hook_ran"):
    """A hook ran for an event."""

    event: str
    hook: str
    """Preview of the command, URL or function."""
    origin: str
    duration_ms: int
    verdict: str
    """`went on`, `blocked`, `allow`, `ask`, `deny`, `stopped` or `failed`."""
    detail: str = ""
    background: bool = False
    """True if nobody waited for the hook, so its decision had no effect."""


class QuestionAsked(JournaledEvent, frozen=True, tag="asked"):
    """A person was asked a question; every surface shows it."""

    question: Question


class QuestionAnswered(JournaledEvent, frozen=True, tag="answered"):
    """A question was answered. The first answer counts."""

    question: str
    """Id of the question."""
    answer: Answer


class ConversationCompacted(JournaledEvent, frozen=True, tag="conversation_compacted"):
    """The conversation was summarized to free space in the context window."""

    trigger: str
    """`auto` if the window was full, `manual` if a person asked."""
    tokens_before: int


class FileChanged(JournaledEvent, frozen=True, tag="file_changed"):
    """A file tool changed a file; the old content is saved for `shoal undo`."""

    turn: int
    path: str


class TurnUndone(JournaledEvent, frozen=True, tag="undone"):
    """Files, and the conversation if `conversation` is set, were restored to the state before `turn`."""

    turn: int
    conversation: bool
    restored: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    left_alone: tuple[str, ...] = ()
    """Files that were not restored because somebody else has changed them since."""


class AgentStarted(JournaledEvent, frozen=True, tag="agent_started"):
    """An agent started or was resumed."""

    kind: str
    """Type of the agent, as listed by `shoal agents ls`."""
    name: str
    description: str
    parent: AgentId
    """Agent that started it."""
    call: str
    """Tool call that started it."""
    depth: int
    model: str
    mode: str
    background: bool
    cwd: str
    tools: tuple[str, ...] = ()
    color: str | None = None
    isolation: str | None = None
    resumed: bool = False
    team: str = ""
    """Team, if the agent is a teammate. A teammate can become idle and be woken until it is shut down."""


class AgentMovedToBackground(JournaledEvent, frozen=True, tag="agent_moved"):
    """An agent moved to the background; nobody waits for it any longer."""


class AgentEnded(JournaledEvent, frozen=True, tag="agent_ended"):
    """An agent ended. Its full result was stored first."""

    completion: AgentResult
    notice: str = ""
    """Notice that tells the lead about a teammate's end, with the completion's id; empty if there is none."""


class MemberWentIdle(JournaledEvent, frozen=True, tag="member_rested"):
    """A teammate finished a working period and is idle."""

    reason: IdleReason
    detail: str = ""


class MemberWoken(JournaledEvent, frozen=True, tag="member_woken"):
    """A teammate was woken because it has something to do."""


class MemberWentDown(JournaledEvent, frozen=True, tag="member_down"):
    """A teammate failed unexpectedly. It stays in the team and is started again."""

    cause: str


class WorktreeWorkRetained(JournaledEvent, frozen=True, tag="work_kept"):
    """The agent left work in a worktree."""

    work: RetainedWorktreeWork


class NotificationDelivered(JournaledEvent, frozen=True, tag="notified"):
    """This agent was notified of a completion, by the queue or by the named tool call."""

    completion: str
    """Id of the completion."""
    call: str = ""


class BackgroundShellStarted(JournaledEvent, frozen=True, tag="shell_started"):
    """A background command started."""

    facts: BackgroundShell


class BackgroundShellEnded(JournaledEvent, frozen=True, tag="shell_ended"):
    """A background command ended."""

    id: str
    """Id of the notification: `NotificationDelivered` confirms that the agent has it."""
    end: BackgroundShellResult


class ScheduleCreated(JournaledEvent, frozen=True, tag="schedule_made"):
    """A schedule was created: a prompt that repeats at set times."""

    schedule: Schedule


class ScheduleEnded(JournaledEvent, frozen=True, tag="schedule_ended"):
    """A schedule ended."""

    schedule: str
    how: ScheduleEndReason


class QueueItemAdded(JournaledEvent, frozen=True, tag="queued"):
    """An item was queued for this agent; its transcript shows the delivery."""

    item: str
    by: MessageAuthor
    """Author of the text."""
    text: str
    mode: InboxItemMode = "prompt"
    quiet: bool = False
    """True if it does not wake the agent; it is delivered together with the next item that wakes it."""
    content_file: str = ""
    """File with the whole content if it is more than the text, for example images."""


class QueueItemWithdrawn(JournaledEvent, frozen=True, tag="withdrawn"):
    """An item queued for this agent was withdrawn before delivery."""

    item: str


class NoteAdded(JournaledEvent, frozen=True, tag="noted"):
    """A note for the user, such as a dropped incomplete line or an ignored setting."""

    text: str


class MailPosted(JournaledEvent, frozen=True, tag="mail_posted"):
    """Mail was posted to an inbox or its overflow. `agent` is the run's lead; see `sender` and `to`."""

    team: str
    mail: str
    """Id of the mail."""
    sender: str
    to: str
    kind: str
    """`message`, or the type of a protocol body."""
    preview: str
    summary: str = ""
    fyi: bool = False


class MailTaken(JournaledEvent, frozen=True, tag="mail_taken"):
    """Mail from any sender entered its reader's conversation, or was acted on."""

    team: str
    mail: str
    sender: str
    to: str
    kind: str
    preview: str
    summary: str = ""
    posted: str = ""
    """Timestamp that the sender wrote."""


class TaskChanged(JournaledEvent, frozen=True, tag="task_changed"):
    """A task on the run's board changed; `agent` is the run's lead, even if another program made the
    change."""

    board: str
    task: str
    subject: str
    status: str
    """`pending`, `in_progress`, `completed` or `deleted`."""
    owner: str = ""
    blocked_by: tuple[str, ...] = ()
    rank: float | None = None
    """Position that a person gave it in its column; None means ordered by number."""


class WorkflowStarted(JournaledEvent, frozen=True, tag="workflow_started"):
    """A workflow started, or continued after its process ended."""

    workflow: str
    """Id of the workflow in its session."""
    name: str
    arguments: dict[str, Any]
    source: str = ""
    """File that defines it."""
    digest: str = ""
    """SHA-256 of that file."""
    resumed: bool = False
    rerun_from: int | None = None
    """Number of the first step that runs again on purpose; the earlier results of this step and all later
    steps are void."""
    script: str = ""
    """Program text of a workflow that a model wrote; empty if a file defines it."""
    max_agents: int | None = None
    """Number of agents that were approved for a script."""
    module: str = ""
    """Module that defines it, by the name under which Python imported it."""
    parent: str = ""
    """Workflow and number of the step that started it, as `WORKFLOW:STEP`; empty if no workflow did."""


class WorkflowPhaseStarted(JournaledEvent, frozen=True, tag="workflow_phase"):
    """A workflow started a phase, which names the following steps."""

    workflow: str
    phase: str


class WorkflowStepStarted(JournaledEvent, frozen=True, tag="workflow_step_started"):
    """A step of a workflow started for the first time, or again after its process ended."""

    workflow: str
    step: int
    """Number of the step, in the order in which steps first started."""
    path: str
    """Phase, functions and kind of the step."""
    digest: str
    """SHA-256 of its input."""
    phase: str = ""
    """Phase in which the step started."""
    preview: str = ""
    """Beginning of its input."""
    child: AgentId | None = None
    """Agent that runs the step; None if no agent does."""
    until: int | None = None
    """Unix time in milliseconds at which a waiting step ends."""
    input: dict[str, str | int] = {}
    """Parts of its input, shortened if they are long. A number refers to the step that has the same text."""


class WorkflowStepFinished(JournaledEvent, frozen=True, tag="workflow_step_finished"):
    """A step of a workflow has a result or an error, which the workflow gets again if it is resumed."""

    workflow: str
    step: int
    value: Any
    """Result as JSON."""
    error: str = ""
    """Error that the program got instead of a result. It counts if the program continued after it."""


class WorkflowEnded(JournaledEvent, frozen=True, tag="workflow_ended"):
    """A workflow returned, failed, or was stopped. A workflow that did not complete can be resumed."""

    workflow: str
    status: Literal["completed", "failed", "stopped"]
    detail: str = ""
    value: Any = None
    """Returned value as JSON."""
    refused: bool = False
    """True if it did not continue because its program changed: all recorded steps stay valid."""
    raised: tuple[int, ...] = ()
    """Numbers of the steps whose errors ended it. They run again if it is resumed."""


class PermissionModeChanged(JournaledEvent, frozen=True, tag="mode_changed"):
    """The permission mode or the model of the agent changed."""

    mode: str
    model: str = ""
    """Model for the next request, which may depend on the mode; empty if unknown."""


class BudgetThresholdReached(JournaledEvent, frozen=True, tag="budget_warned"):
    """A percentage of a limit was reached; each threshold is reported once."""

    limit: LimitKind
    percent: int
    spent: float
    of: float
    whose: str = ""
    """Type or agent that the limit belongs to; empty for the whole tree."""


TurnEndReason: TypeAlias = Literal[
    "done",
    "max_turns",
    "budget",
    "deadline",
    "interrupted",
    "blocked",
    "model_error",
    "store_error",
    "no_output",
    "error",
]


class TurnEnded(JournaledEvent, frozen=True, tag="turn_ended"):
    """The agent finished its turn or was stopped."""

    turn: int
    reason: TurnEndReason
    requests: int
    """Model requests in this turn."""
    detail: str = ""
    duration_ms: int = 0


class SessionEnded(JournaledEvent, frozen=True, tag="session_ended"):
    """The session ended normally; the last line of a run."""


class TextStreamed(LiveEvent, frozen=True, tag="heard"):
    """The model streamed a part of its answer."""

    kind: Literal["text", "thinking", "tool_input"]
    text: str
    reply: str = ""
    """Provider's id of the answer, if it is known."""


class PartialReplyDiscarded(LiveEvent, frozen=True, tag="discarded"):
    """The streamed part of the current answer was discarded because the request is being retried."""

    reason: str
    retry_in: float
    attempt: int
    status: int | None = None
    """HTTP status of the failure; None if there was no response."""


class MessageAdded(LiveEvent, frozen=True, tag="message_added"):
    """A complete message was added to the conversation, in the same form as in the transcript."""

    entry: EntryId
    message: Message
    by: MessageAuthor = "runtime"
    """Author of the message, as set by the runtime, regardless of what the message claims."""
    model: str = ""
    message_id: str = ""
    usage: Usage | None = None
    stop_reason: str = ""


class ToolOutputReturned(LiveEvent, frozen=True, tag="tool_returned"):
    """A tool call returned; contains the full result."""

    call: str
    tool: str
    result: ToolResultBlock
    data: Any = None
    """Structured data for programs, if the tool has any."""


class ToolProgressed(LiveEvent, frozen=True, tag="tool_progress"):
    """A long tool call reported its progress."""

    call: str
    text: str


class RunFinished(LiveEvent, frozen=True, tag="finished"):
    """A run finished: the final text, usage and cost for its caller."""

    reason: TurnEndReason
    text: str
    detail: str
    requests: int
    usage: Usage
    cost_usd: float | None
    duration_ms: int
    duration_api_ms: int
    """Part of the duration spent waiting for models."""
    limit: LimitKind | None = None
    """Budget limit that ended it, if any."""
    output: Any = None
    """Structured output, if one was requested."""
    error: Any = None


class UnknownJournalEvent(Struct, frozen=True, kw_only=True):
    """An event of unknown type or layout, written by a newer program, or damaged."""

    type: str
    raw: dict[str, Any]
    is_damaged: bool = False
    """True if the type is known, but not the layout."""


JournalEvent: TypeAlias = JournaledEvent | UnknownJournalEvent


class JournalRecord(Struct, frozen=True, kw_only=True):
    """An event in the journal with its time and offset. `next` is the offset of the following one."""

    offset: int
    next: int
    at: int
    event: JournalEvent
