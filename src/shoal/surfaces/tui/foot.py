"""The lines at the edges of the screen: who is shown, what is under way, what it took, which keys."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from shoal.app.picture.picture import Picture
from shoal.app.picture.rows import AgentRow
from shoal.core.ids import LEAD
from shoal.core.wording import count, dollars, one_line
from shoal.surfaces.cli.agent_rows import colour
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


def head_line(seat: Seat, columns: int) -> Text:
    """Who is shown."""
    picture = seat.stage.picture
    row = picture.agent(seat.viewed)
    text = Text(no_wrap=True, overflow="ellipsis")
    if row is None or seat.viewed == LEAD:
        text.append(" shoal ", "bold reverse")
        text.append(f" {_short(seat.root)}", "dim")
    else:
        text.append(" ")
        text.append_text(ansi("● ", colour(row.color)))
        text.append(row.name, "bold")
        text.append(f"  {_standing(row)}", "dim")
        text.append("  F5 back to the lead", "dim")
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
    """What holds and what it took on the left; the keys on the right as far as there is room."""
    picture = seat.stage.picture
    left = Text(no_wrap=True, overflow="ellipsis")
    mode, style = _MODES.get(picture.run.mode, (picture.run.mode, "dim"))
    left.append(f" {mode}", style)
    for fact in _facts(seat, picture):
        left.append(" · ", "dim")
        left.append(fact, "dim")
    if asked := len(picture.open_questions()):
        left.append(" ")
        left.append(f" ? {asked} question{'s' if asked > 1 else ''}: F4 ", "bold reverse yellow")
    keys = Text()
    for key, name in _KEYS:
        keys.append(f" {key}", "bold")
        keys.append(f" {name} " if name else " ", "dim")
    room = columns - left.cell_len - keys.cell_len
    while room < 1 and keys:
        keys = Text("/help ", "dim") if keys.cell_len > 6 else Text()
        room = columns - left.cell_len - keys.cell_len
    left.append(" " * max(room, 0))
    left.append_text(keys)
    return left


def _facts(seat: Seat, picture: Picture) -> list[str]:
    lead = picture.agent(LEAD)
    model = lead.model if lead is not None and lead.model else picture.run.model
    facts = [one_line(model)] if model else []
    if picture.costs.tokens:
        facts += [f"{count(picture.costs.tokens)} tokens"]
        facts += [dollars(picture.costs.usd) + ("+" if picture.costs.unpriced else "")]
    facts += seat.facts
    at_work = len(picture.standings.at_work())
    if at_work:
        facts.append(f"{at_work} agent{'s' if at_work > 1 else ''} at work")
    return facts


def activity_line(seat: Seat) -> Text:
    return Text(seat.doing, "dim", no_wrap=True, overflow="ellipsis")


def _short(path: Path) -> str:
    try:
        return f"~/{path.relative_to(Path.home())}"
    except (ValueError, RuntimeError):
        return str(path)
