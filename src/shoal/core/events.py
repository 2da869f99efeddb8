"""Events of a run. `JournaledEvent`s are stored; the others are only for live observers."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from shoal.core.agents import Completion, KeptWork
from shoal.core.bodies import IdleReason
from shoal.core.caps import Limit
from shoal.core.ids import AgentId, EntryId, RequestId, SessionId
from shoal.core.messages import Message, ToolResult
from shoal.core.questions import Answer, Question
from shoal.core.schedules import Schedule, ScheduleEnd
from shoal.core.shells import ShellEnd, ShellFacts
from shoal.core.usage import Usage

Speaker: TypeAlias = Literal["person", "model", "tool", "runtime", "agent"]
ItemMode: TypeAlias = Literal["prompt", "bash", "task-notification", "orphaned-permission"]
PREVIEW = 200
"""Characters of a text in an event; the transcript has the full text."""


class Event(Struct, frozen=True, kw_only=True, tag_field="type", tag="event", gc=False):
    agent: AgentId


class Journaled(Event, frozen=True, tag="journaled"):
    """Event that is appended to the journal before it is published."""


class Live(Event, frozen=True, tag="live"):
    """Event that is published and never stored."""


class SessionStarted(Journaled, frozen=True, tag="session_started"):
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
    """Budget of the whole run; None is no limit."""
    budget_tokens: int | None = None
    model_named: str = ""
    """Name under which the caller requested the model; empty if it comes from settings."""


class TurnStarted(Journaled, frozen=True, tag="turn_started"):
    """The agent got new input."""

    turn: int
    prompt: str
    """Preview of the prompt."""
    after: EntryId | None = None
    """Last entry before the turn, for rewinding; None at the start of the conversation."""


class RequestSent(Journaled, frozen=True, tag="request_sent"):
    """A request was sent to a model. Its estimated cost is reserved."""

    request: RequestId
    model: str


class RequestSettled(Journaled, frozen=True, tag="request_settled"):
    """A model answered, and the provider reported the usage."""

    request: RequestId
    model: str
    usage: Usage
    cost_usd: float | None
    """Cost in dollars; None if the price of the model is unknown."""
    duration_ms: int


class RequestFailed(Journaled, frozen=True, tag="request_failed"):
    """A request failed. A `billed` one may cost an unknown amount: it is listed as unsettled."""

    request: RequestId
    reason: str
    billed: bool
    retry_in: float | None = None
    """Seconds until the retry; None if there is none."""


class AssistantSaid(Journaled, frozen=True, tag="assistant_said"):
    """A complete reply of the model is in the transcript."""

    entry: EntryId
    preview: str
    tool_uses: int
    """Number of tool calls in the reply."""


class ToolStarted(Journaled, frozen=True, tag="tool_started"):
    """A tool call started."""

    call: str
    """Id that the model gave the call."""
    tool: str
    preview: str
    """Preview of the input."""


class ToolFinished(Journaled, frozen=True, tag="tool_finished"):
    """A tool call finished, and its result is stored."""

    call: str
    tool: str
    is_error: bool
    size: int
    """Characters of the full result."""
    duration_ms: int
    preview: str


class PermissionDenied(Journaled, frozen=True, tag="permission_denied"):
    """A tool call was refused by a rule, a mode, a hook or an answer."""

    call: str
    tool: str
    reason: str


class HookRan(Journaled, frozen=True, tag="hook_ran"):
    """A hook ran on an event."""

    event: str
    hook: str
    """Preview of the command, URL or function."""
    origin: str
    duration_ms: int
    verdict: str
    """`went on`, `blocked`, `allow`, `ask`, `deny`, `stopped` or `failed`."""
    detail: str = ""
    background: bool = False
    """True if nobody waited for it: its decision had no effect."""


class Asked(Journaled, frozen=True, tag="asked"):
    """A person was asked a question; every surface shows it."""

    question: Question


class Answered(Journaled, frozen=True, tag="answered"):
    """A question was answered. The first answer counts."""

    question: str
    """Id of the question."""
    answer: Answer


class ConversationCompacted(Journaled, frozen=True, tag="conversation_compacted"):
    """The conversation was summarized to free space in the window."""

    trigger: str
    """`auto` for a full window, `manual` by a person."""
    tokens_before: int


class FileChanged(Journaled, frozen=True, tag="file_changed"):
    """A file tool changed a file; the old content is saved for `shoal undo`."""

    turn: int
    path: str


class Undone(Journaled, frozen=True, tag="undone"):
    """Files, and the conversation if `conversation` is set, were restored to the state before `turn`."""

    turn: int
    conversation: bool
    restored: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    left_alone: tuple[str, ...] = ()
    """Files that somebody else has changed since."""


class AgentStarted(Journaled, frozen=True, tag="agent_started"):
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
    """Team of a teammate, which goes idle and is woken until it is shut down."""


class AgentMoved(Journaled, frozen=True, tag="agent_moved"):
    """An agent moved to the background; nobody waits for it any longer."""


class AgentEnded(Journaled, frozen=True, tag="agent_ended"):
    """An agent ended. Its full result was stored before."""

    completion: Completion
    notice: str = ""
    """Notice to the lead about a teammate's end, under the id of the completion; empty if there is none."""


class MemberRested(Journaled, frozen=True, tag="member_rested"):
    """A teammate finished a working period and is idle."""

    reason: IdleReason
    detail: str = ""


class MemberWoken(Journaled, frozen=True, tag="member_woken"):
    """A teammate was woken because it has something to do."""


class WorkKept(Journaled, frozen=True, tag="work_kept"):
    """The agent left work in a worktree."""

    work: KeptWork


class Notified(Journaled, frozen=True, tag="notified"):
    """This agent was notified of a completion, by the queue or by the named tool call."""

    completion: str
    """Id of the completion."""
    call: str = ""


class ShellStarted(Journaled, frozen=True, tag="shell_started"):
    """A background command started."""

    facts: ShellFacts


class ShellEnded(Journaled, frozen=True, tag="shell_ended"):
    """A background command ended."""

    id: str
    """Id of the notification: `NotificationDelivered` confirms that the agent has it."""
    end: ShellEnd


class ScheduleMade(Journaled, frozen=True, tag="schedule_made"):
    """A schedule was created: a prompt that repeats at set times."""

    schedule: Schedule


class ScheduleEnded(Journaled, frozen=True, tag="schedule_ended"):
    """A schedule ended."""

    schedule: str
    how: ScheduleEnd


class Queued(Journaled, frozen=True, tag="queued"):
    """An item was queued for this agent; its transcript shows the delivery."""

    item: str
    by: Speaker
    """Author of the text."""
    text: str
    mode: ItemMode = "prompt"
    quiet: bool = False
    """True if it does not wake the agent: it is delivered with an item that does."""


class Withdrawn(Journaled, frozen=True, tag="withdrawn"):
    """A queued item of this agent was withdrawn without delivery."""

    item: str


class Noted(Journaled, frozen=True, tag="noted"):
    """A note for the person: a torn line dropped, a setting ignored."""

    text: str


class MailPosted(Journaled, frozen=True, tag="mail_posted"):
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


class MailTaken(Journaled, frozen=True, tag="mail_taken"):
    """Mail entered its reader's conversation, or was acted on; whoever posted it."""

    team: str
    mail: str
    sender: str
    to: str
    kind: str
    preview: str
    summary: str = ""
    posted: str = ""
    """Timestamp as the sender wrote it."""


class TaskChanged(Journaled, frozen=True, tag="task_changed"):
    """A task of the run's board changed, whoever changed it; `agent` is the run's lead."""

    board: str
    task: str
    subject: str
    status: str
    """`pending`, `in_progress`, `completed` or `deleted`."""
    owner: str = ""
    blocked_by: tuple[str, ...] = ()
    rank: float | None = None
    """Position that a person gave it in its column; None is by number."""


class ModeChanged(Journaled, frozen=True, tag="mode_changed"):
    """The permission mode of the agent changed."""

    mode: str


class BudgetWarned(Journaled, frozen=True, tag="budget_warned"):
    """A percentage of a limit was reached; each threshold is reported once."""

    limit: Limit
    percent: int
    spent: float
    of: float
    whose: str = ""
    """Type or agent that the limit belongs to; empty for the whole tree."""


EndReason: TypeAlias = Literal[
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


class TurnEnded(Journaled, frozen=True, tag="turn_ended"):
    """The agent finished its turn or was stopped."""

    turn: int
    reason: EndReason
    requests: int
    """Model requests in this turn."""
    detail: str = ""
    duration_ms: int = 0


class SessionEnded(Journaled, frozen=True, tag="session_ended"):
    """The session ended normally; the last line of a run."""


class Heard(Live, frozen=True, tag="heard"):
    """The model streamed a part of its answer."""

    kind: Literal["text", "thinking", "tool_input"]
    text: str


class Discarded(Live, frozen=True, tag="discarded"):
    """The streamed part of the current answer was discarded: the request is retried."""

    reason: str
    retry_in: float
    attempt: int


class MessageAdded(Live, frozen=True, tag="message_added"):
    """A complete message entered the conversation, as in the transcript."""

    entry: EntryId
    message: Message
    by: Speaker = "runtime"
    """Author of the message, set by the runtime whatever the message claims."""
    model: str = ""
    message_id: str = ""
    usage: Usage | None = None
    stop_reason: str = ""


class ToolReturned(Live, frozen=True, tag="tool_returned"):
    """A tool call returned; holds the full result."""

    call: str
    tool: str
    result: ToolResult
    data: Any = None
    """Structured data for programs, if the tool has any."""


class ToolProgress(Live, frozen=True, tag="tool_progress"):
    """A long tool call reported its progress."""

    call: str
    text: str


class Finished(Live, frozen=True, tag="finished"):
    """A run finished: the final text, usage and cost for its caller."""

    reason: EndReason
    text: str
    detail: str
    requests: int
    usage: Usage
    cost_usd: float | None
    duration_ms: int
    duration_api_ms: int
    """Part of the duration spent waiting for models."""
    limit: Limit | None = None
    """Budget limit that ended it, if any."""
    output: Any = None
    """Structured output, if one was requested."""
    error: Any = None
