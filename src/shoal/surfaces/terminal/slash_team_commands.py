"""The `/delegate` and `/to` commands: limit the lead to delegating, and talk to a teammate."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from msgspec import Struct

from shoal.app.session.delegate_mode import is_in_delegate_mode
from shoal.core.errors import AgentRequestRefused
from shoal.core.text.text_format import to_one_line
from shoal.runs.agent_registry import LEAD_NAMES
from shoal.surfaces.terminal.text_styles import YELLOW
from shoal.surfaces.terminal.user_messages import join_names

if TYPE_CHECKING:
    from shoal.app.session.session import Session
    from shoal.surfaces.terminal.terminal_controller import TerminalController


class AddressedAgent(Struct, frozen=True):
    """An agent, other than the lead, that the user talks to."""

    agent: str
    name: str


async def set_delegate_mode(controller: TerminalController, switch: str) -> None:
    states_by_switch = {"": not is_in_delegate_mode(controller.session), "on": True, "off": False}
    if switch not in states_by_switch:
        controller.notices.write_note(
            "/delegate switches the mode; /delegate on and /delegate off set it.", YELLOW
        )
        return
    controller.session.set_delegate_mode(enabled=states_by_switch[switch])


async def choose_addressee(controller: TerminalController, name: str) -> None:
    if name in LEAD_NAMES:
        controller.set_addressee(None)
        return
    addressees = list_addressees(controller.session)
    if not name:
        addressee_names = join_names([each.name for each in addressees]) if addressees else "nobody yet"
        controller.notices.write_note(
            f"/to NAME lets you talk to one of these members: {addressee_names}. /to lead or Esc brings "
            f"you back to the "
            "lead."
        )
        return
    controller.set_addressee(find_addressee(addressees, name.removeprefix("@")))


def parse_mention(session: Session, text: str) -> tuple[AddressedAgent, str] | None:
    """Parse `@name text` for a known agent; return None for any other prompt."""
    word, _, rest = text.partition(" ")
    if not word.startswith("@") or not rest.strip():
        return None
    name = word[1:].removesuffix(":")
    addressees = list_addressees(session)
    return next(((each, rest.strip()) for each in addressees if name in (each.name, each.agent)), None)


def suggest_addressee_correction(session: Session, text: str) -> str:
    """Return a correction for `@nmae text`, which would go to the lead; empty if no name is close."""
    word, _, rest = text.partition(" ")
    name = word[1:].removesuffix(":")
    # `@agent-name` asks the lead to start an agent.
    if not word.startswith("@") or word.startswith("@agent-") or not rest.strip():
        return ""
    close_matches = get_close_matches(name, [each.name for each in list_addressees(session)], n=1)
    return (
        f"There is no member {name!r}. Did you mean @{close_matches[0]}? Nothing was sent."
        if close_matches
        else ""
    )


def describe_agent_mentions(session: Session) -> list[tuple[str, str]]:
    """List what names a running agent, or asks the lead to start one, with descriptions."""
    running = [(f"@{each.name}", "agent") for each in list_addressees(session)]
    definitions = session.list_agent_definitions()
    return [*running, *((f"@agent-{each.name}", to_one_line(each.description)) for each in definitions)]


def list_addressees(session: Session) -> tuple[AddressedAgent, ...]:
    """List the teammates and the named agents."""
    teammates = [AddressedAgent(each.agent, each.name) for each in session.list_members()]
    agents = [AddressedAgent(each.agent, each.name) for each in session.list_subagents() if each.name]
    return (*teammates, *agents)


def find_addressee(addressees: tuple[AddressedAgent, ...], name: str) -> AddressedAgent:
    for addressee in addressees:
        if name in (addressee.name, addressee.agent):
            return addressee
    available_note = f" Members: {', '.join(each.name for each in addressees)}." if addressees else ""
    raise AgentRequestRefused(f"There is no member {name!r}.{available_note}")
