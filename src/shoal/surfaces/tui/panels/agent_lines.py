"""Agent rows that fit any width, and the detail lines of one agent."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from shoal.app.picture.rows import AgentRow, QuestionRow
from shoal.core.wording import count, dollars, many, one_line
from shoal.surfaces.tui.answering_words import asked
from shoal.surfaces.tui.panels.cells import (
    ASKS,
    BAD,
    GOOD,
    MUTED,
    Column,
    Part,
    age,
    cell,
    colour_of,
    columns_in,
    cost,
    joined,
    line,
)

ENDED = frozenset({"completed", "failed", "killed", "gone"})
MARKS: dict[str, Part] = {
    "working": ("●", GOOD),
    "waiting": ("?", ASKS),
    "idle": ("○", MUTED),
    "completed": ("✓", MUTED),
    "failed": ("✗", BAD),
    "killed": ("■", MUTED),
    "gone": ("✗", BAD),
}
_WORDS = {"killed": "stopped"}

_MARK = Column("mark", "", 1)
_COLUMNS = (
    _MARK,
    Column("name", "agent", 17),
    Column("state", "state", 9, goes=4),
    Column("model", "model", 14, goes=1),
    Column("age", "heard", 5, right=True, goes=5),
    Column("tokens", "tokens", 6, right=True, goes=2),
    Column("cost", "cost", 8, right=True, goes=3),
)
_BOTH = 46
"""Width from which on the task and the current activity have a column each."""


def _columns(width: int) -> tuple[tuple[Column, ...], int]:
    return columns_in(width, _COLUMNS, max(14, min(24, width // 3)))


def titles(width: int) -> Content:
    columns, rest = _columns(width)
    cells = [cell(Content(each.title), each.width, right=each.right) for each in columns]
    last = Content("task") if rest < _BOTH else joined([cell(Content("task"), rest * 2 // 5), Content("now")])
    return joined([*cells[: _lead(columns)], cell(last, rest), *cells[_lead(columns) :]])


def agent_line(row: AgentRow, *, depth: int, now: int, width: int, question: QuestionRow | None) -> Content:
    columns, rest = _columns(width)
    facts = _facts(row, depth, now)
    cells = [cell(facts[each.name], each.width, right=each.right) for each in columns]
    told = joined(
        [*cells[: _lead(columns)], cell(_about(row, question, rest), rest), *cells[_lead(columns) :]]
    )
    return told.stylize_before(MUTED) if row.state in ENDED else told


def _lead(columns: Sequence[Column]) -> int:
    """Return the number of columns before the task."""
    return sum(each.name in ("mark", "name", "state") for each in columns)


def _facts(row: AgentRow, depth: int, now: int) -> dict[str, Content]:
    branch = "  " * (min(depth, 5) - 1) + "└ " if depth else ""
    name = (row.name, f"bold {colour_of(row.color)}" if row.state not in ENDED else MUTED)
    mark = MARKS.get(row.state, ("·", MUTED))
    return {
        "mark": line(mark),
        "name": line((branch, MUTED), name),
        "state": line((_WORDS.get(row.state, row.state), mark[1])),
        "model": line((short_model(row.model), MUTED)),
        "age": line((last_heard(row, now), MUTED)),
        "tokens": line((count(row.tokens) if row.tokens else "–", "")),
        "cost": line((cost(row.usd, priced=row.priced), "")),
    }


def last_heard(row: AgentRow, now: int) -> str:
    return age(now - row.heard)


def short_model(model: str) -> str:
    """Return the model without its provider, which most agents share."""
    return one_line(model).rpartition(":")[2].removeprefix("claude-")


def _about(row: AgentRow, question: QuestionRow | None, width: int) -> Content:
    task, doing = line((one_line(row.task), "")), _doing(row, question)
    if width >= _BOTH:
        return joined([cell(task, width * 2 // 5), doing])
    if question is not None:
        return doing
    if not doing or not task:
        return doing or task
    room = max(width * 2 // 5, width - doing.cell_length - 3)
    return line(task.truncate(room, ellipsis=True), (" · ", MUTED), doing)


def _doing(row: AgentRow, question: QuestionRow | None) -> Content:
    """Describe its activity, whom it waits for, or why it ended."""
    if question is not None:
        return line((f"? {asked(question.question)}", ASKS))
    if row.waits_for:
        return line((f"waits for {', '.join(row.waits_for)}", MUTED))
    if row.state in ENDED:
        return line((one_line(row.detail), BAD if row.state == "failed" else MUTED))
    return line((row.doing, MUTED))


def detail_lines(row: AgentRow, question: QuestionRow | None, now: int) -> list[Content]:
    """Return all facts about one agent in three lines."""
    spent = f"{count(row.tokens)} tokens in {many(row.requests, 'request')}"
    money = f"{dollars(row.usd)}{'' if row.priced else ' and what has no price'}"
    facts = [
        _WORDS.get(row.state, row.state),
        short_model(row.model),
        f"heard {age(now - row.heard)} ago",
        spent,
        money,
        many(row.tool_calls, "tool call"),
        "in the background" if row.background and row.state not in ENDED else "",
        row.kind if row.kind != row.name else "",
        f"team {row.team}" if row.team else "",
        f"mode {row.mode}" if row.mode else "",
    ]
    told = " · ".join(one_line(each) for each in facts if each)
    return [
        line((one_line(row.name), f"bold {colour_of(row.color)}"), (f"  {told}", MUTED)),
        line(("task ", MUTED), (one_line(row.task) or "–", "")),
        line(("now  ", MUTED), _all_now(row, question)),
    ]


def _all_now(row: AgentRow, question: QuestionRow | None) -> Content:
    parts: list[Content] = []
    if question is not None:
        parts.append(line((f"asks: {asked(question.question)}  (a answers)", ASKS)))
    elif row.doing:
        parts.append(line((row.doing, "")))
    if row.waits_for:
        parts.append(line((f"waits for {', '.join(row.waits_for)}", ASKS)))
    if row.state in ENDED and row.detail:
        parts.append(line((one_line(row.detail), BAD if row.state == "failed" else "")))
    return Content(" · ").join(parts) if parts else Content("–")
