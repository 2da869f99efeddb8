"""Rows of a run view: the displayed data of agents, tasks, mail, questions and costs."""

from __future__ import annotations

from msgspec import Struct

from shoal.core.permissions.questions import Answer, Question


class RunViewSummaryRow(Struct, frozen=True, kw_only=True):
    session: str = ""
    cwd: str = ""
    model: str = ""
    mode: str = ""
    version: str = ""
    began: int = 0
    """Unix time in milliseconds, like all times here."""
    last: int = 0
    """Time of the last event."""
    ended: bool = False
    """True if it ended cleanly; a run whose process died never reports its end."""
    turns: int = 0
    prompt: str = ""
    """First prompt of the user."""
    teams: tuple[str, ...] = ()
    budget_usd: float | None = None
    budget_tokens: int | None = None


class RunViewAgentRow(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    kind: str
    state: str
    """`working`, `waiting`, `idle`, `completed`, `failed`, `killed` or `gone`."""
    doing: str
    task: str
    """Current task, in the agent's own words or from the board."""
    model: str
    mode: str
    color: str
    parent: str
    team: str
    depth: int
    background: bool
    since: int
    heard: int
    """Time of its last event."""
    tokens: int
    usd: float
    priced: bool
    requests: int
    tool_calls: int
    question: str
    """Id of the question it waits for."""
    waits_for: tuple[str, ...] = ()
    """Names of the owners of open tasks that block its own tasks."""
    detail: str = ""
    """Reason why it ended."""
    workflow: str = ""
    """Id of the workflow that started it."""
    phase: str = ""
    """Phase of that workflow."""


class RunViewPhase(Struct, frozen=True, kw_only=True):
    """Phase of a workflow."""

    name: str
    agents: int = 0
    finished: int = 0
    """Number of agents whose steps have a result."""


class RunViewWorkflowRow(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    status: str = "running"
    """`running`, `completed`, `failed`, `stopped` or `interrupted`."""
    phase: str = ""
    """Current phase."""
    phases: tuple[RunViewPhase, ...] = ()
    steps: int = 0
    finished: int = 0
    """Number of steps that have a result."""
    began: int = 0
    ended: int = 0
    """Time of its last end; 0 before that."""
    detail: str = ""
    """Reason why it ended."""


class RunViewTaskRow(Struct, frozen=True, kw_only=True):
    board: str
    id: str
    subject: str
    status: str
    owner: str = ""
    blocked_by: tuple[str, ...] = ()
    rank: float | None = None
    changed: int = 0
    usd: float = 0.0
    tokens: int = 0
    moves: tuple[tuple[int, str, str], ...] = ()
    """Time, status and owner of each change of status or owner."""


class RunViewMailRow(Struct, frozen=True, kw_only=True):
    id: str
    team: str
    sender: str
    to: str
    kind: str
    text: str
    """Start of the text."""
    summary: str = ""
    fyi: bool = False
    posted: int = 0
    taken: int = 0
    """Time it was taken; 0 before that."""


class RunViewQuestionRow(Struct, frozen=True, kw_only=True):
    id: str
    agent: str
    name: str
    asked: int
    question: Question
    answered: int = 0
    """Time of the answer; 0 while it is open."""
    answer: Answer | None = None


class RunViewCostRow(Struct, frozen=True, kw_only=True):
    """Cost of one agent with one model for one task; totals are sums of these."""

    agent: str
    name: str
    kind: str
    model: str
    board: str
    task: str
    """Number on that board; both are empty for costs outside tasks."""
    requests: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_written_tokens: int
    usd: float
    unpriced: int
    """Number of requests with an unknown price."""
    phase: str = ""
    """Name of the workflow and phase that the agent works for; empty for other agents."""


class CumulativeSpendPoint(Struct, frozen=True, kw_only=True):
    """Total spend of the run at the end of a time span."""

    at: int
    """Start of the span."""
    usd: float
    tokens: int


class RunViewNoteRow(Struct, frozen=True, kw_only=True):
    number: int
    at: int
    agent: str
    text: str
    kind: str = "note"
    """`note`, `warning`, `unsettled` (a request of unknown cost) or `unknown` (an unreadable event)."""


class ViewDelta(Struct, frozen=True, kw_only=True):
    """All rows that changed between two journal offsets; a row replaces the one with its key.

    The keys are: agents `id`, tasks `board` and `id`, letters `team`, `to` and `id`, questions `id`, costs
    `agent`, `model`, `board` and `task`, spend `at`, notes `number`, workflows `id`. A task whose status is
    `deleted` has to be removed. Of letters, questions and notes only the latest are included; the totals
    count all.
    """

    since: int
    offset: int
    """Offset of the next delta."""
    at: int
    """Time of the last event in it."""
    live: bool = False
    """True if a process works on the run."""
    run: RunViewSummaryRow | None = None
    agents: tuple[RunViewAgentRow, ...] = ()
    tasks: tuple[RunViewTaskRow, ...] = ()
    letters: tuple[RunViewMailRow, ...] = ()
    questions: tuple[RunViewQuestionRow, ...] = ()
    costs: tuple[RunViewCostRow, ...] = ()
    spend: tuple[CumulativeSpendPoint, ...] = ()
    notes: tuple[RunViewNoteRow, ...] = ()
    workflows: tuple[RunViewWorkflowRow, ...] = ()
    letters_in_all: int = 0
    letters_unread: int = 0
    questions_in_all: int = 0
