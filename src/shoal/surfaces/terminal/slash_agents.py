"""The `/agents` command: list, show, stop and message agents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shoal.core.errors import AgentRefused
from shoal.core.wording import clean, dollars, one_line, seconds
from shoal.surfaces.terminal.paint import BOLD, DIM, YELLOW, style_of
from shoal.surfaces.terminal.sentences import named, reached
from shoal.surfaces.terminal.standing_words import doing_words, numbers

if TYPE_CHECKING:
    from shoal.app.picture.standing import Standing
    from shoal.core.agents import Glimpse
    from shoal.surfaces.terminal.dialogue import Dialogue, Write

USAGE = "/agents, /agents show ID, stop ID|all, background [ID], send ID TEXT"
_LAST = 4_000
"""Bytes of an agent's output that are shown."""


async def agents(talk: Dialogue, words: str) -> None:
    match words.split(maxsplit=2):
        case []:
            _list(talk)
        case ["stop", "all"]:
            stopped = await talk.session.stop_all()
            talk.telling.note(f"Stopped: {named(stopped.ids)}." if stopped.ids else "Nothing is at work.")
        case ["stop", task]:
            what = await talk.session.stop_task(_meant(talk, task))
            talk.telling.note(f"Stopped {task}: {one_line(what)}")
        case ["show", agent]:
            _show(talk, _meant(talk, agent))
        case ["background", *which]:
            moved = talk.session.move_to_background(_meant(talk, which[0]) if which else None)
            if not moved:
                talk.telling.note("No agent is waited for.", YELLOW)
        case ["send", agent, text]:
            told = await talk.session.send(_meant(talk, agent), text)
            talk.telling.note(reached(told.name, told.how))
        case _:
            talk.telling.note(f"Say one of these: {USAGE}", YELLOW)


def _list(talk: Dialogue) -> None:
    standings = list(talk.standings.children())
    shells = [shell for shell in talk.session.parts.shells.list() if shell.status == "running"]
    if not standings and not shells:
        talk.telling.note("No agent has been started.")
        return
    with talk.telling.aside() as write:
        for each in (each for each in talk.standings.tree() if each in standings):
            _tell(write, each, talk.now)
        for shell in shells:
            write(f"  $ {shell.id}  {one_line(shell.command)}\n", DIM)
        write(f"  {USAGE}\n", DIM)


def _tell(write: Write, each: Standing, now: float) -> None:
    write(f"{'  ' * max(each.depth, 1)}● ", style_of(each.color))
    write(f"{each.who}", BOLD)
    write(f"  {one_line(each.task)}\n")
    took = numbers(each, now if each.live else each.since + _seconds(each))
    cost = dollars(each.usd if each.priced else None)
    doing = f"{each.state}: {doing_words(each)}" if each.live else each.state_words
    behind = " · in the background" if each.background and each.live else ""
    write(f"{'  ' * max(each.depth, 1)}  {each.agent} · {doing}{behind} · {took} · {cost}\n", DIM)


def _seconds(each: Standing) -> float:
    return each.completion.duration_ms / 1000 if each.completion else 0.0


def _show(talk: Dialogue, agent: str) -> None:
    glimpse = _known(talk, agent)
    text = _end_of(Path(glimpse.output)) if glimpse.output else ""
    with talk.telling.aside() as write:
        write(f"  {glimpse.output}  {glimpse.status}, {seconds(glimpse.seconds)}\n", DIM)
        for line in clean(text).splitlines():
            write(f"    {line}\n")


def _end_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(size - _LAST, 0))
            text = file.read().decode(errors="replace")
    except OSError:
        return "(It has not written anything yet.)"
    return text if size <= _LAST else f"… {text.split(chr(10), 1)[-1]}"


def _known(talk: Dialogue, agent: str) -> Glimpse:
    for each in talk.session.parts.crew.agents():
        if agent in (each.agent, each.name):
            return each
    raise AgentRefused(f"There is no agent {agent!r} in this session. /agents lists them.")


def _meant(talk: Dialogue, word: str) -> str:
    """Resolve a name, an id, or a unique prefix of an id."""
    known = talk.session.parts.crew.agents()
    if any(word in (each.agent, each.name) for each in known):
        return word
    begun = [each.agent for each in known if each.agent.startswith(word)]
    return begun[0] if len(begun) == 1 else word
