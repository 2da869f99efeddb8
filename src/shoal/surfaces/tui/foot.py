"""Lines at the top and bottom of the screen: agent, activity, usage, and key hints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from shoal.app.picture.rows import AgentRow
from shoal.core.ids import LEAD
from shoal.core.wording import count, dollars, many, one_line
from shoal.surfaces.terminal.paint import style_of
from shoal.surfaces.tui.blocks import ansi
from shoal.surfaces.tui.seat import Seat

_MODES = {
    "default": ("asks", "dim"),
    "acceptEdits": ("accepts edits", "magenta"),
    "plan": ("plans", "cyan"),
    "bypassPermissions": ("allows all", "bold red"),
    "dontAsk": ("never asks", "yellow"),
}
_KEYS = (("F2", "agents"), ("^T", "tasks"), ("F3", "mail"), ("F4", "questions"), ("/help", ""))
_LEAST = ("F3", "F4", "^T", "F2")
"""Keys in the order in which they are dropped if there is no room. An open question names its own key."""


def head_line(seat: Seat, columns: int) -> Text:
    """Return the top line: the shown agent."""
    row = seat.stage.picture.agent(seat.viewed)
    text = Text(no_wrap=True, overflow="ellipsis")
    if row is None or seat.viewed == LEAD:
        text.append(" shoal ", "bold reverse")
        text.append(f" {_short(seat.root)}", "dim")
        text.truncate(columns, overflow="ellipsis")
        return text
    back = "  F5 back to the lead "
    text.append(" ")
    text.append_text(ansi("● ", style_of(row.color)))
    text.append(row.name, "bold")
    text.append(f"  {_standing(row)}", "dim")
    text.truncate(max(columns - len(back), 20), overflow="ellipsis", pad=True)
    text.append(back, "dim")
    return text


def _standing(row: AgentRow) -> str:
    words = (
        row.kind,
        row.model,
        f"{row.state}{f': {one_line(row.doing)}' if row.doing else ''}",
        one_line(row.task),
    )
    return " · ".join(word for word in words if word)


def foot_line(seat: Seat, columns: int) -> Text:
    """Return the bottom line: state and usage on the left, as many keys as fit on the right."""
    facts = _facts(seat)
    left = _left(seat, facts)
    while left.cell_len > columns and facts:
        facts.pop()
        left = _left(seat, facts)
    for number in range(len(_KEYS)):
        keys = _keys(_LEAST[:number])
        if left.cell_len + keys.cell_len < columns:
            left.append(" " * (columns - left.cell_len - keys.cell_len))
            left.append_text(keys)
            break
    return left


def _left(seat: Seat, facts: Sequence[str]) -> Text:
    picture = seat.stage.picture
    text = Text(no_wrap=True, overflow="ellipsis")
    mode, style = _MODES.get(picture.run.mode, (picture.run.mode, "dim"))
    text.append(f" {mode}", style)
    if asked := len(picture.open_questions()):
        text.append(" ")
        text.append(f" ? {many(asked, 'question')}: F4 ", "bold reverse yellow")
    for fact in facts:
        text.append(" · ", "dim")
        text.append(fact, "dim")
    return text


def _keys(without: Sequence[str]) -> Text:
    text = Text()
    for key, name in (each for each in _KEYS if each[0] not in without):
        text.append(f" {key}", "bold")
        text.append(f" {name} " if name else " ", "dim")
    return text


def _facts(seat: Seat) -> list[str]:
    """List the facts, most important first: the last are dropped if there is no room."""
    picture = seat.stage.picture
    lead = picture.agent(LEAD)
    model = lead.model if lead is not None and lead.model else picture.run.model
    at_work = len(picture.standings.at_work())
    facts = [f"{many(at_work, 'agent')} at work"] if at_work else []
    facts += [one_line(model)] if model else []
    if picture.costs.tokens:
        facts.append(dollars(picture.costs.usd) + ("+" if picture.costs.unpriced else ""))
        facts.append(f"{count(picture.costs.tokens)} tokens")
    return [*facts, *seat.facts]


def activity_line(seat: Seat) -> Text:
    return Text(seat.doing, "dim", no_wrap=True, overflow="ellipsis")


def _short(path: Path) -> str:
    try:
        return str("~" / path.relative_to(Path.home()))
    except (ValueError, RuntimeError):
        return str(path)
