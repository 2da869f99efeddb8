"""Agent rows that fit any width, and the detail lines of one agent."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from shoal.app.run_view.view_rows import RunViewAgentRow, RunViewQuestionRow
from shoal.core.text.text_format import (
    format_count_with_noun,
    format_dollars,
    format_token_count,
    to_one_line,
)
from shoal.surfaces.tui.panels.cells import (
    ASKS,
    BAD,
    GOOD,
    MUTED,
    PanelTableColumn,
    Part,
    build_clean_line,
    fit_cell,
    fit_columns,
    format_cost,
    format_short_age,
    get_agent_colour,
    join_cells,
)
from shoal.surfaces.tui.question_summary import summarize_question

ENDED = frozenset({"completed", "failed", "killed", "gone"})
MARKS: dict[str, Part] = {
    "working": ("●", GOOD),
    "waiting": ("?", ASKS),
    "idle": ("○", MUTED),
    "down": ("✗", BAD),
    "completed": ("✓", MUTED),
    "failed": ("✗", BAD),
    "killed": ("■", MUTED),
    "gone": ("✗", BAD),
}
_WORDS = {"killed": "stopped"}

_MARK = PanelTableColumn("mark", "", 1)
_COLUMNS = (
    _MARK,
    PanelTableColumn("name", "agent", 17),
    PanelTableColumn("state", "state", 9, drop_order=4),
    PanelTableColumn("model", "model", 14, drop_order=1),
    PanelTableColumn("age", "heard", 5, right=True, drop_order=5),
    PanelTableColumn("tokens", "tokens", 6, right=True, drop_order=2),
    PanelTableColumn("cost", "cost", 8, right=True, drop_order=3),
)
_BOTH = 46
"""Minimum width at which the task and the current activity each have a column."""


def _choose_agent_columns(width: int) -> tuple[tuple[PanelTableColumn, ...], int]:
    return fit_columns(width, _COLUMNS, max(14, min(24, width // 3)))


def build_agent_column_titles(width: int) -> Content:
    columns, rest = _choose_agent_columns(width)
    cells = [fit_cell(Content(each.title), each.width, right=each.right) for each in columns]
    last = (
        Content("task")
        if rest < _BOTH
        else join_cells([fit_cell(Content("task"), rest * 2 // 5), Content("now")])
    )
    return join_cells(
        [
            *cells[: _count_leading_columns(columns)],
            fit_cell(last, rest),
            *cells[_count_leading_columns(columns) :],
        ]
    )


def build_agent_line(
    row: RunViewAgentRow, *, depth: int, now: int, width: int, question: RunViewQuestionRow | None
) -> Content:
    columns, rest = _choose_agent_columns(width)
    row_cells = _build_agent_cells(row, depth, now)
    cells = [fit_cell(row_cells[each.name], each.width, right=each.right) for each in columns]
    work_line = join_cells(
        [
            *cells[: _count_leading_columns(columns)],
            fit_cell(_describe_task_and_activity(row, question, rest), rest),
            *cells[_count_leading_columns(columns) :],
        ]
    )
    return work_line.stylize_before(MUTED) if row.state in ENDED else work_line


def _count_leading_columns(columns: Sequence[PanelTableColumn]) -> int:
    """Return the number of columns before the task."""
    return sum(each.name in ("mark", "name", "state") for each in columns)


def _build_agent_cells(row: RunViewAgentRow, depth: int, now: int) -> dict[str, Content]:
    indent = "  " * (min(depth, 5) - 1) + "└ " if depth else ""
    name = (row.name, f"bold {get_agent_colour(row.color)}" if row.state not in ENDED else MUTED)
    mark = MARKS.get(row.state, ("·", MUTED))
    return {
        "mark": build_clean_line(mark),
        "name": build_clean_line((indent, MUTED), name),
        "state": build_clean_line((_WORDS.get(row.state, row.state), mark[1])),
        "model": build_clean_line((shorten_model_name(row.model), MUTED)),
        "age": build_clean_line((format_time_since_last_heard(row, now), MUTED)),
        "tokens": build_clean_line((format_token_count(row.tokens) if row.tokens else "–", "")),
        "cost": build_clean_line((format_cost(row.usd, priced=row.priced), "")),
    }


def format_time_since_last_heard(row: RunViewAgentRow, now: int) -> str:
    return format_short_age(now - row.heard)


def shorten_model_name(model: str) -> str:
    """Return the model without its provider, which most agents share."""
    return to_one_line(model).rpartition(":")[2].removeprefix("claude-")


def _describe_task_and_activity(
    row: RunViewAgentRow, question: RunViewQuestionRow | None, width: int
) -> Content:
    task, activity = build_clean_line((to_one_line(row.task), "")), _describe_agent_activity(row, question)
    if width >= _BOTH:
        return join_cells([fit_cell(task, width * 2 // 5), activity])
    if question is not None:
        return activity
    if not activity or not task:
        return activity or task
    available_width = max(width * 2 // 5, width - activity.cell_length - 3)
    return build_clean_line(task.truncate(available_width, ellipsis=True), (" · ", MUTED), activity)


def _describe_agent_activity(row: RunViewAgentRow, question: RunViewQuestionRow | None) -> Content:
    """Describe its activity, whom it waits for, or why it ended."""
    if question is not None:
        return build_clean_line((f"? {summarize_question(question.question)}", ASKS))
    if row.waits_for:
        return build_clean_line((f"waiting for {', '.join(row.waits_for)}", MUTED))
    if row.state in ENDED:
        return build_clean_line((to_one_line(row.detail), BAD if row.state == "failed" else MUTED))
    return build_clean_line((row.doing, MUTED))


def build_agent_detail_lines(
    row: RunViewAgentRow, question: RunViewQuestionRow | None, now: int
) -> list[Content]:
    """Return all facts about one agent in three lines."""
    usage = f"{format_token_count(row.tokens)} tokens in {format_count_with_noun(row.requests, 'request')}"
    cost = f"{format_dollars(row.usd)}{'' if row.priced else ' plus unpriced requests'}"
    facts = [
        _WORDS.get(row.state, row.state),
        shorten_model_name(row.model),
        f"last event {format_short_age(now - row.heard)} ago",
        usage,
        cost,
        format_count_with_noun(row.tool_calls, "tool call"),
        "in the background" if row.background and row.state not in ENDED else "",
        row.kind if row.kind != row.name else "",
        f"team {row.team}" if row.team else "",
        f"mode {row.mode}" if row.mode else "",
    ]
    facts_line = " · ".join(to_one_line(each) for each in facts if each)
    return [
        build_clean_line(
            (to_one_line(row.name), f"bold {get_agent_colour(row.color)}"), (f"  {facts_line}", MUTED)
        ),
        build_clean_line(("task ", MUTED), (to_one_line(row.task) or "–", "")),
        build_clean_line(("now  ", MUTED), _describe_current_state(row, question)),
    ]


def _describe_current_state(row: RunViewAgentRow, question: RunViewQuestionRow | None) -> Content:
    parts: list[Content] = []
    if question is not None:
        parts.append(build_clean_line((f"asks: {summarize_question(question.question)}  (a answers)", ASKS)))
    elif row.doing:
        parts.append(build_clean_line((row.doing, "")))
    if row.waits_for:
        parts.append(build_clean_line((f"waiting for {', '.join(row.waits_for)}", ASKS)))
    if row.state in ENDED and row.detail:
        parts.append(build_clean_line((to_one_line(row.detail), BAD if row.state == "failed" else "")))
    return Content(" · ").join(parts) if parts else Content("–")
