"""What happens in a run. `Journaled` events are the record; the others are for whoever looks right now."""

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
"""Characters of a text that an event carries; the whole of it is in the transcript."""


class Event(Struct, frozen=True, kw_only=True, tag_field="type", tag="event", gc=False):
    agent: AgentId


class Journaled(Event, frozen=True, tag="journaled"):
    """Appended to the journal before anyone is told."""


class Live(Event, frozen=True, tag="live"):
    """Told, never kept."""


class SessionStarted(Journaled, frozen=True, tag="session_started"):
    """A session began, or was resumed; the first line of each run."""

    session: SessionId
    cwd: str
    model: str
    mode: str
    """The permission mode."""
    tools: tuple[str, ...]
    resumed: bool = False
    version: str = ""
    budget_usd: float | None = None
    """Of the whole run; None is no limit."""
    budget_tokens: int | None = None
    model_named: str = ""
    """By which name the model was asked for when the session was opened; empty where settings say it."""


class TurnStarted(Journaled, frozen=True, tag="turn_started"):
    """The agent was given something to do."""

    turn: int
    prompt: str
    """A preview."""
    after: EntryId | None = None
    """Where the conversation stood, for going back there; None at its very start."""


class RequestSent(Journaled, frozen=True, tag="request_sent"):
    """A model is asked. What it will probably cost is set aside."""

    request: RequestId
    model: str


class RequestSettled(Journaled, frozen=True, tag="request_settled"):
    """A model answered, and the provider told what it took."""

    request: RequestId
    model: str
    usage: Usage
    cost_usd: float | None
    """None where the price of the model is not known."""
    duration_ms: int


class RequestFailed(Journaled, frozen=True, tag="request_failed"):
    """A request failed. A `billed` one may cost something nobody told us: it is listed as unsettled."""

    request: RequestId
    reason: str
    billed: bool
    retry_in: float | None = None
    """Seconds after which it is asked again; None where it is not."""


class AssistantSaid(Journaled, frozen=True, tag="assistant_said"):
    """A whole answer of the model is in the transcript."""

    entry: EntryId
    preview: str
    tool_uses: int
    """Calls in it."""


class ToolStarted(Journaled, frozen=True, tag="tool_started"):
    """A tool call begins."""

    call: str
    """The id that the model gave the call."""
    tool: str
    preview: str
    """Of its input."""


class ToolFinished(Journaled, frozen=True, tag="tool_finished"):
    """A tool call ended, and its result is kept."""

    call: str
    tool: str
    is_error: bool
    size: int
    """Characters of the whole result."""
    duration_ms: int
    preview: str


class PermissionDenied(Journaled, frozen=True, tag="permission_denied"):
    """A tool call was not made: a rule, a mode, a hook or an answer forbade it."""

    call: str
    tool: str
    reason: str


class HookRan(Journaled, frozen=True, tag="hook_ran"):
    """A hook was told of something, and this is what came of it."""

    event: str
    hook: str
    """A preview of what was run."""
    origin: str
    duration_ms: int
    verdict: str
    """`went on`, `blocked`, `allow`, `ask`, `deny`, `stopped` or `failed`."""
    detail: str = ""
    background: bool = False
    """Whether nobody waited for it: what it decided had no effect."""


class Asked(Journaled, frozen=True, tag="asked"):
    """A person is asked something; every surface shows it."""

    question: Question


class Answered(Journaled, frozen=True, tag="answered"):
    """A question has its answer. The first one stands."""

    question: str
    """Its id."""
    answer: Answer


class ConversationCompacted(Journaled, frozen=True, tag="conversation_compacted"):
    """The conversation was summarised, to have room again."""

    trigger: str
    """`auto` at a full window, `manual` by a person."""
    tokens_before: int


class FileChanged(Journaled, frozen=True, tag="file_changed"):
    """A file tool changes a file; what it was is kept for `shoal undo`."""

    turn: int
    path: str


class Undone(Journaled, frozen=True, tag="undone"):
    """Files, and if `conversation` the conversation too, are as they were before `turn`."""

    turn: int
    conversation: bool
    restored: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    left_alone: tuple[str, ...] = ()
    """Files that were changed since by somebody else."""


class AgentStarted(Journaled, frozen=True, tag="agent_started"):
    """An agent began its job, or was resumed to go on with it."""

    kind: str
    """Its type, as `shoal agents ls` lists them."""
    name: str
    description: str
    parent: AgentId
    """Who started it."""
    call: str
    """The tool call that started it."""
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
    """Of a teammate: it goes idle and is woken, until it is shut down."""


class AgentMoved(Journaled, frozen=True, tag="agent_moved"):
    """It runs in the background from here on; nobody waits for it."""


class AgentEnded(Journaled, frozen=True, tag="agent_ended"):
    """An agent ended. Its whole result was stored before."""

    completion: Completion
    notice: str = ""
    """What the lead is told of a teammate's end, under the completion's id; empty where it is not told."""


class MemberRested(Journaled, frozen=True, tag="member_rested"):
    """A teammate ended a working period and is idle."""

    reason: IdleReason
    detail: str = ""


class MemberWoken(Journaled, frozen=True, tag="member_woken"):
    """A teammate has something to do."""


class WorkKept(Journaled, frozen=True, tag="work_kept"):
    """The agent left work in a worktree."""

    work: KeptWork


class Notified(Journaled, frozen=True, tag="notified"):
    """This agent has been told of a completion: by the queue, or by the tool call named."""

    completion: str
    """The id of what it was told of."""
    call: str = ""


class ShellStarted(Journaled, frozen=True, tag="shell_started"):
    """A command runs in the background."""

    facts: ShellFacts


class ShellEnded(Journaled, frozen=True, tag="shell_ended"):
    """A command in the background ended."""

    id: str
    """Of the news of it: `Notified` says that its agent has it."""
    end: ShellEnd


class ScheduleMade(Journaled, frozen=True, tag="schedule_made"):
    """A prompt will come back at set times."""

    schedule: Schedule


class ScheduleEnded(Journaled, frozen=True, tag="schedule_ended"):
    """A schedule is over."""

    schedule: str
    how: ScheduleEnd


class Queued(Journaled, frozen=True, tag="queued"):
    """Something waits for this agent; its transcript tells when it got it."""

    item: str
    by: Speaker
    """Whose words they are."""
    text: str
    mode: ItemMode = "prompt"
    quiet: bool = False
    """Whether the agent does not start because of it: it comes with what starts it."""


class Withdrawn(Journaled, frozen=True, tag="withdrawn"):
    """What waited for this agent waits no longer, and was not delivered."""

    item: str


class Noted(Journaled, frozen=True, tag="noted"):
    """Something a person should know: a torn line dropped, a setting ignored."""

    text: str


class MailPosted(Journaled, frozen=True, tag="mail_posted"):
    """A message is in an inbox, or kept behind it. `agent` is the run's lead; the names tell who."""

    team: str
    mail: str
    """Its identity."""
    sender: str
    to: str
    kind: str
    """`message`, or the type of a letter of the protocol."""
    preview: str
    summary: str = ""
    fyi: bool = False


class MailTaken(Journaled, frozen=True, tag="mail_taken"):
    """A message is in its reader's conversation, or was acted on; whoever posted it."""

    team: str
    mail: str
    sender: str
    to: str
    kind: str
    preview: str
    summary: str = ""
    posted: str = ""
    """When, as its writer wrote it."""


class TaskChanged(Journaled, frozen=True, tag="task_changed"):
    """A task of the run's board stands so now, whoever changed it; `agent` is the run's lead."""

    board: str
    task: str
    subject: str
    status: str
    """`pending`, `in_progress`, `completed` or `deleted`."""
    owner: str = ""
    blocked_by: tuple[str, ...] = ()
    rank: float | None = None
    """Where a person wants it among the tasks of its column; None is by number."""


class ModeChanged(Journaled, frozen=True, tag="mode_changed"):
    """The agent works in another permission mode from here on."""

    mode: str


class BudgetWarned(Journaled, frozen=True, tag="budget_warned"):
    """So many percent of a limit are spent; each mark is told once."""

    limit: Limit
    percent: int
    spent: float
    of: float
    whose: str = ""
    """The type or the agent whose limit it is; nothing for the whole tree."""


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
    """The agent has nothing more to do, or was stopped."""

    turn: int
    reason: EndReason
    requests: int
    """To the model, in this turn."""
    detail: str = ""
    duration_ms: int = 0


class SessionEnded(Journaled, frozen=True, tag="session_ended"):
    """The last line of a run that ended in order."""


class Heard(Live, frozen=True, tag="heard"):
    """The model is answering."""

    kind: Literal["text", "thinking", "tool_input"]
    text: str


class Discarded(Live, frozen=True, tag="discarded"):
    """What was heard of the current answer does not count: it is asked again."""

    reason: str
    retry_in: float
    attempt: int


class MessageAdded(Live, frozen=True, tag="message_added"):
    """A whole message entered the conversation, as the transcript has it."""

    entry: EntryId
    message: Message
    by: Speaker = "runtime"
    """Whose words these are: the runtime says it, whatever the message says of itself."""
    model: str = ""
    message_id: str = ""
    usage: Usage | None = None
    stop_reason: str = ""


class ToolReturned(Live, frozen=True, tag="tool_returned"):
    """What a tool call gave back, whole."""

    call: str
    tool: str
    result: ToolResult
    data: Any = None
    """For programs, where the tool has some."""


class ToolProgress(Live, frozen=True, tag="tool_progress"):
    """A tool call that takes long tells how far it is."""

    call: str
    text: str


class Finished(Live, frozen=True, tag="finished"):
    """The end of a run for its caller: the final text, and what it took."""

    reason: EndReason
    text: str
    detail: str
    requests: int
    usage: Usage
    cost_usd: float | None
    duration_ms: int
    duration_api_ms: int
    """Of it, waiting for models."""
    limit: Limit | None = None
    """Which limit of the purse ended it, if one did."""
    output: Any = None
    """The answer in the form that was asked for."""
    error: Any = None
