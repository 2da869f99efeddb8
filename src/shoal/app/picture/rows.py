"""The rows of a picture: what a surface shows of an agent, a task, a letter, a question, a cost."""

from __future__ import annotations

from msgspec import Struct

from shoal.core.questions import Answer, Question


class RunRow(Struct, frozen=True, kw_only=True):
    session: str = ""
    cwd: str = ""
    model: str = ""
    mode: str = ""
    version: str = ""
    began: int = 0
    """Milliseconds of Unix time, as all times here."""
    last: int = 0
    """When the last event happened."""
    ended: bool = False
    """In order; a run whose process died never says so."""
    turns: int = 0
    prompt: str = ""
    """What the person asked for first."""
    teams: tuple[str, ...] = ()
    budget_usd: float | None = None
    budget_tokens: int | None = None


class AgentRow(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    kind: str
    state: str
    """`working`, `waiting`, `idle`, `completed`, `failed`, `killed` or `gone`."""
    doing: str
    task: str
    """What it is to do, in its own words or those of the board."""
    model: str
    mode: str
    color: str
    parent: str
    team: str
    depth: int
    background: bool
    since: int
    heard: int
    """When its last event happened."""
    tokens: int
    usd: float
    priced: bool
    requests: int
    tool_calls: int
    question: str
    """The id of the question it waits for."""
    waits_for: tuple[str, ...] = ()
    """Names of those whose open tasks hold up its own."""
    detail: str = ""
    """Why it ended."""


class TaskRow(Struct, frozen=True, kw_only=True):
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
    """When it came into which status, and whose it was then."""


class LetterRow(Struct, frozen=True, kw_only=True):
    id: str
    team: str
    sender: str
    to: str
    kind: str
    text: str
    """Its beginning."""
    summary: str = ""
    fyi: bool = False
    posted: int = 0
    taken: int = 0
    """0 while it is not."""


class QuestionRow(Struct, frozen=True, kw_only=True):
    id: str
    agent: str
    name: str
    asked: int
    question: Question
    answered: int = 0
    """0 while it is open."""
    answer: Answer | None = None


class CostRow(Struct, frozen=True, kw_only=True):
    """What one agent spent on one model for one task of the board; the sums follow from these."""

    agent: str
    name: str
    kind: str
    model: str
    board: str
    task: str
    """Its number on that board; nothing of both for what belongs to none."""
    requests: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_written_tokens: int
    usd: float
    unpriced: int
    """Requests whose price is not known."""


class SpendPoint(Struct, frozen=True, kw_only=True):
    """What the whole run had spent by the end of a span of time."""

    at: int
    """Where the span begins."""
    usd: float
    tokens: int


class NoteRow(Struct, frozen=True, kw_only=True):
    number: int
    at: int
    agent: str
    text: str
    kind: str = "note"
    """`note`, `warning`, `unsettled` (a request of unknown cost) or `unknown` (an unreadable event)."""


class Frame(Struct, frozen=True, kw_only=True):
    """All rows that changed between two places of the journal; a row replaces the one with its key.

    The keys are: agents `id`, tasks `board` and `id`, letters `team`, `to` and `id`, questions `id`, costs
    `agent`, `model`, `board` and `task`, spend `at`, notes `number`. A task whose status is `deleted` is to
    be taken away. Of letters, questions and notes the latest are told; the sums are of all.
    """

    since: int
    offset: int
    """Where the next frame begins."""
    at: int
    """Of the last event in it."""
    live: bool = False
    """Whether a process works on the run."""
    run: RunRow | None = None
    agents: tuple[AgentRow, ...] = ()
    tasks: tuple[TaskRow, ...] = ()
    letters: tuple[LetterRow, ...] = ()
    questions: tuple[QuestionRow, ...] = ()
    costs: tuple[CostRow, ...] = ()
    spend: tuple[SpendPoint, ...] = ()
    notes: tuple[NoteRow, ...] = ()
    letters_in_all: int = 0
    letters_unread: int = 0
    questions_in_all: int = 0
