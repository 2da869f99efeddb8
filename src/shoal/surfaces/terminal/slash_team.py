"""The `/delegate` and `/to` commands: limit the lead to delegating, and talk to a teammate."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from msgspec import Struct

from shoal.app.session.delegating import is_delegating
from shoal.core.errors import AgentRefused
from shoal.runs.roll import LEAD_NAMES
from shoal.surfaces.terminal.paint import YELLOW
from shoal.surfaces.terminal.sentences import named

if TYPE_CHECKING:
    from shoal.app.session.session import Session
    from shoal.surfaces.terminal.dialogue import Dialogue


class Addressee(Struct, frozen=True):
    """An agent, other than the lead, that the person talks to."""

    agent: str
    name: str


async def delegate(talk: Dialogue, word: str) -> None:
    switches = {"": not is_delegating(talk.session), "on": True, "off": False}
    if word not in switches:
        talk.telling.note("/delegate switches the mode; /delegate on and /delegate off set it.", YELLOW)
        return
    talk.session.delegate(on=switches[word])


async def to(talk: Dialogue, name: str) -> None:
    if name in LEAD_NAMES:
        talk.address(None)
        return
    known = addressees(talk.session)
    if not name:
        whom = named([each.name for each in known]) if known else "nobody yet"
        talk.telling.note(f"/to NAME lets you talk to one of: {whom}. /to lead and Esc lead back.")
        return
    talk.address(found(known, name.removeprefix("@")))


def addressed(session: Session, text: str) -> tuple[Addressee, str] | None:
    """Parse `@name text` for a known agent; return None for any other prompt."""
    word, _, rest = text.partition(" ")
    if not word.startswith("@") or not rest.strip():
        return None
    name = word[1:].removesuffix(":")
    known = addressees(session)
    return next(((each, rest.strip()) for each in known if name in (each.name, each.agent)), None)


def mistyped(session: Session, text: str) -> str:
    """Return a correction for `@nmae text`, which would go to the lead; empty if no name is close."""
    word, _, rest = text.partition(" ")
    name = word[1:].removesuffix(":")
    if not word.startswith("@") or not rest.strip():
        return ""
    near = get_close_matches(name, [each.name for each in addressees(session)], n=1)
    return f"There is nobody called {name!r}. Did you mean @{near[0]}? Nothing was said." if near else ""


def addressees(session: Session) -> tuple[Addressee, ...]:
    """List the teammates and the named agents."""
    teammates = [Addressee(each.agent, each.name) for each in session.parts.teams.members()]
    agents = [Addressee(each.agent, each.name) for each in session.parts.crew.agents() if each.name]
    return (*teammates, *agents)


def found(known: tuple[Addressee, ...], name: str) -> Addressee:
    for each in known:
        if name in (each.name, each.agent):
            return each
    there = f" There are: {', '.join(each.name for each in known)}." if known else ""
    raise AgentRefused(f"There is nobody called {name!r} to talk to.{there}")
