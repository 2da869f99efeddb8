"""Lines at the top and bottom of the screen: agent, activity, usage, and key hints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from shoal.app.run_view.view_rows import RunViewAgentRow
from shoal.core.ids import LEAD_ID
from shoal.core.text.text_format import (
    format_count_with_noun,
    format_dollars,
    format_token_count,
    to_one_line,
)
from shoal.surfaces.terminal.text_styles import get_agent_style
from shoal.surfaces.tui.block_widgets import convert_ansi_styled_to_rich_text
from shoal.surfaces.tui.run_client import TuiRunClient

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


def build_head_line(run_client: TuiRunClient, columns: int) -> Text:
    """Return the top line: the shown agent."""
    row = run_client.presenter.run_view.find_agent_row(run_client.viewed)
    text = Text(no_wrap=True, overflow="ellipsis")
    if row is None or run_client.viewed == LEAD_ID:
        text.append(" shoal ", "bold reverse")
        text.append(f" {_shorten_home_path(run_client.root)}", "dim")
        text.truncate(columns, overflow="ellipsis")
        return text
    back_hint = "  F5 back to the lead "
    text.append(" ")
    text.append_text(convert_ansi_styled_to_rich_text("● ", get_agent_style(row.color)))
    text.append(row.name, "bold")
    text.append(f"  {_describe_agent(row)}", "dim")
    text.truncate(max(columns - len(back_hint), 20), overflow="ellipsis", pad=True)
    text.append(back_hint, "dim")
    return text


def _describe_agent(row: RunViewAgentRow) -> str:
    facts = (
        row.kind,
        row.model,
        f"{row.state}{f': {to_one_line(row.doing)}' if row.doing else ''}",
        to_one_line(row.task),
    )
    return " · ".join(word for word in facts if word)


def build_foot_line(run_client: TuiRunClient, columns: int) -> Text:
    """Return the bottom line: state and usage on the left, as many keys as fit on the right."""
    facts = _list_footer_facts(run_client)
    left_part = _build_foot_left_part(run_client, facts)
    while left_part.cell_len > columns and facts:
        facts.pop()
        left_part = _build_foot_left_part(run_client, facts)
    for number in range(len(_KEYS)):
        keys = _build_key_hints(_LEAST[:number])
        if left_part.cell_len + keys.cell_len < columns:
            left_part.append(" " * (columns - left_part.cell_len - keys.cell_len))
            left_part.append_text(keys)
            break
    return left_part


def _build_foot_left_part(run_client: TuiRunClient, facts: Sequence[str]) -> Text:
    run_view = run_client.presenter.run_view
    text = Text(no_wrap=True, overflow="ellipsis")
    mode, style = _MODES.get(run_view.run.mode, (run_view.run.mode, "dim"))
    text.append(f" {mode}", style)
    if question_count := len(run_view.list_open_questions()):
        text.append(" ")
        text.append(f" ? {format_count_with_noun(question_count, 'question')}: F4 ", "bold reverse yellow")
    for fact in facts:
        text.append(" · ", "dim")
        text.append(fact, "dim")
    return text


def _build_key_hints(excluded_keys: Sequence[str]) -> Text:
    text = Text()
    for key, name in (each for each in _KEYS if each[0] not in excluded_keys):
        text.append(f" {key}", "bold")
        text.append(f" {name} " if name else " ", "dim")
    return text


def _list_footer_facts(run_client: TuiRunClient) -> list[str]:
    """List the facts, most important first: the last are dropped if there is no room."""
    run_view = run_client.presenter.run_view
    lead = run_view.find_agent_row(LEAD_ID)
    model = lead.model if lead is not None and lead.model else run_view.run.model
    working_count = len(run_view.statuses.list_working_agents())
    facts = [f"{format_count_with_noun(working_count, 'agent')} at work"] if working_count else []
    facts += [to_one_line(model)] if model else []
    if run_view.costs.tokens:
        facts.append(format_dollars(run_view.costs.usd) + ("+" if run_view.costs.unpriced else ""))
        facts.append(f"{format_token_count(run_view.costs.tokens)} tokens")
    return [*facts, *run_client.footer_facts]


def build_activity_line(run_client: TuiRunClient) -> Text:
    return Text(run_client.activity_text, "dim", no_wrap=True, overflow="ellipsis")


def _shorten_home_path(path: Path) -> str:
    try:
        return str("~" / path.relative_to(Path.home()))
    except (ValueError, RuntimeError):
        return str(path)
