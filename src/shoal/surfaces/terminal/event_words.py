"""Texts for events: an agent started or ended, and notices for the person."""

from __future__ import annotations

from pathlib import Path

from shoal.app.picture.standing import Standing
from shoal.core.agents import Completion
from shoal.core.events import (
    PREVIEW,
    AgentEnded,
    AgentMoved,
    AgentStarted,
    BudgetWarned,
    ConversationCompacted,
    Discarded,
    Event,
    Noted,
    Undone,
    WorkKept,
)
from shoal.core.wording import count, many, one_line, seconds
from shoal.surfaces.terminal.paint import DIM, YELLOW, cut, whole_words
from shoal.surfaces.terminal.sentences import budget_warning

_WIDEST = 100


def noted(event: Event) -> tuple[str, str] | None:
    """Return the notice and its style; None for other events."""
    match event:
        case Discarded(reason=reason, retry_in=delay, attempt=attempt):
            return f"⟳ asked again in {seconds(delay)} (attempt {attempt}): {one_line(reason)}", YELLOW
        case ConversationCompacted(tokens_before=tokens):
            return f"the conversation goes on from a summary of itself ({tokens} tokens before)", DIM
        case Undone(turn=turn):
            return f"files are back to before turn {turn}", DIM
        case Noted(text=text):
            return one_line(text), YELLOW
        case BudgetWarned():
            return one_line(budget_warning(event)), YELLOW
        case _:
            return None


def agent_words(event: Event, it: Standing) -> str | None:
    """Describe the start or end of a background agent. The tool call describes a foreground agent.

    Work left in a worktree is described for both.
    """
    task = f": {one_line(it.task)}" if it.task else ""
    match event:
        case AgentStarted(background=True, resumed=resumed):
            how = "goes on" if resumed else "started"
            return f"agent {it.who} {how} in the background{task}"
        case AgentMoved():
            return f"agent {it.who} goes on in the background{task}"
        case AgentEnded(completion=done) if done.background:
            return f"agent {it.who} {ended_words(done)}{task}"
        case WorkKept(work=work):
            name = one_line(Path(work.path).name)
            return f"agent {it.who} left work in a worktree; bring it in with: shoal worktree merge {name}"
        case _:
            return None


def ended_words(done: Completion) -> str:
    """Describe how the agent ended and its usage."""
    calls = many(done.evidence.tool_calls, "tool call")
    how = "was stopped" if done.status == "killed" else done.status
    why = f", {cut(one_line(done.detail), _WIDEST)}" if done.detail else ""
    took = f"{calls}, {count(done.usage.total_tokens)} tokens, {seconds(done.duration_ms / 1000)}"
    return f"{how} ({took}{why})"


def previewed(text: str) -> str:
    """Mark a preview that the event truncated: keep whole words and append an ellipsis."""
    return text if len(text) < PREVIEW else whole_words(text) or f"{text}…"
