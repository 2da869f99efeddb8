"""The `/tasks`, `/team`, `/permissions`, `/doctor`, `/resume` and `/export` commands."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from shoal.core.errors import ShoalError
from shoal.core.ids import SessionId
from shoal.core.wording import count, dollars, one_line
from shoal.surfaces.terminal.listings import fact_lines, rule_lines, session_lines
from shoal.surfaces.terminal.paint import BOLD, DIM, GREEN, RED, YELLOW, style_of
from shoal.surfaces.terminal.standing_words import doing_words

if TYPE_CHECKING:
    from shoal.core.tasks import Task
    from shoal.surfaces.terminal.dialogue import Dialogue

_MARKS = {"completed": ("✓", GREEN), "in_progress": ("▸", YELLOW), "pending": ("○", DIM)}


async def tasks(talk: Dialogue, _: str) -> None:
    """Show the team's board, or the session's if there is no team."""
    parts = talk.session.parts
    name = _team(talk) or talk.session.id
    every = list(await parts.between.board(name).list())
    if not every:
        talk.telling.note("There is no task on the board. Agents put some there, and so does: shoal task add")
        return
    still_open = {str(task.id) for task in every if task.status != "completed"}
    with talk.telling.aside() as write:
        for task in every:
            mark, style = _MARKS.get(task.status, ("?", ""))
            write(f"  {mark} ", style)
            write(f"#{task.id} {one_line(task.subject)}")
            write(f"{_about(task, still_open)}\n", DIM)


def _about(task: Task, still_open: set[str]) -> str:
    waits = [f"#{each}" for each in task.blocked_by if each in still_open]
    words = (one_line(task.owner or ""), f"waits for {', '.join(waits)}" if waits else "")
    return "".join(f"  {word}" for word in words if word)


def _team(talk: Dialogue) -> str:
    from shoal.team.teams import SessionTeams

    teams = talk.session.parts.teams
    return teams.led_name if isinstance(teams, SessionTeams) else ""


async def team(talk: Dialogue, _: str) -> None:
    """Show the members of the team and their activity."""
    name = _team(talk)
    members = [each for each in talk.standings.tree() if each.facts is not None and each.facts.team]
    if not name and not members:
        talk.telling.note("There is no team. Ask for one, or begin with one: shoal team start NAME")
        return
    with talk.telling.aside() as write:
        write(f"  team {name or members[0].facts.team if members and members[0].facts else name}\n", BOLD)
        for each in members:
            write("  ● ", style_of(each.color))
            write(f"{each.who}  ")
            doing = f"{each.state}: {doing_words(each)}" if each.live else each.state_words
            cost = dollars(each.usd if each.priced else None)
            write(f"{one_line(doing)} · {count(each.tokens)} tokens · {cost}\n", DIM)


async def permissions(talk: Dialogue, mode: str) -> None:
    """Show the rules; with the name of a mode, switch to it."""
    from shoal.app.views.permissions import session_view
    from shoal.core.permissions import Mode

    if mode:
        known = {each.lower(): each for each in get_args(Mode)}
        if mode.lower() not in known:
            talk.telling.note(f"There is no mode {mode}. There are: {', '.join(known.values())}.", YELLOW)
            return
        talk.session.set_mode(known[mode.lower()])
        talk.telling.note(f"The mode is {known[mode.lower()]}.")
        return
    with talk.telling.aside() as write:
        for line in rule_lines(session_view(talk.session), colours=False):
            write(f"  {line}\n")


async def doctor(talk: Dialogue, _: str) -> None:
    from shoal.app.doctor.doctor import examine

    cwd = talk.session.parts.workspace.root
    facts = await asyncio.to_thread(examine, os.environ, cwd)
    with talk.telling.aside() as write:
        for line in fact_lines(facts, colours=False):
            write(f"  {line}\n", RED if line.strip().startswith("BAD") else "")


async def resume(talk: Dialogue, name: str) -> None:
    """End this session and resume another; without a name, list the sessions."""
    from shoal.stores.files.locks import is_held
    from shoal.stores.files.sessions import find_session, list_sessions

    home, here = talk.session.parts.settings.home, talk.session.id
    if not name:
        found = list_sessions(home, str(talk.session.parts.workspace.root), limit=11)
        others = [each for each in found if each.session != here][:10]
        with talk.telling.aside() as write:
            for line in session_lines(others):
                write(f"  {line}\n")
            told = "/resume ID goes on with one; its first characters are enough."
            write(f"  {told if others else 'There is no other session of this directory.'}\n", DIM)
        return
    session = SessionId(find_session(home, name).stem)
    if session == here:
        talk.telling.note("That is this session.", YELLOW)
    elif is_held(home, session):
        talk.telling.note(f"A process works on it: shoal attach {session[:8]} takes you there.", YELLOW)
    else:
        talk.resume = session
        talk.end("resumed")


async def export(talk: Dialogue, name: str) -> None:
    """Write the conversation to a Markdown file; never overwrite a file."""
    from shoal.surfaces.terminal.conversation_pages import pages

    session = talk.session
    text = "\n".join(pages(session.agent.conversation.messages, str(session.id)))
    place = session.parts.workspace.root / (name or f"shoal-{session.id[:8]}.md")
    try:
        await asyncio.to_thread(_write_new, place, text)
    except FileExistsError:
        talk.telling.note(f"{place} is there already; nothing was written. Name another file.", YELLOW)
    except OSError as error:
        raise ShoalError(f"{place} cannot be written: {error.strerror}.") from error
    else:
        talk.telling.note(f"The conversation is in {place}.")


def _write_new(place: Path, text: str) -> None:
    with place.open("x", encoding="utf-8", errors="replace") as file:
        file.write(text)
