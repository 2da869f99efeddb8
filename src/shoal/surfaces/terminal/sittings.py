"""Loop over the sessions at one terminal: `/clear` and `/resume` end one session and start another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from shoal.core.wording import count, dollars
from shoal.surfaces.terminal.paint import DIM, YELLOW
from shoal.surfaces.terminal.sentences import stopped_agents

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import TypeAlias

    from shoal.app.options import Options
    from shoal.app.session.session import Session
    from shoal.core.agents import Glimpse
    from shoal.surfaces.terminal.dialogue import Dialogue
    from shoal.surfaces.terminal.screen import Screen

    Prepare: TypeAlias = Callable[[Session], Awaitable[str]]
    Sit: TypeAlias = Callable[[Session], Awaitable[Dialogue]]
    Leave: TypeAlias = Callable[[Session, Sequence[Glimpse]], None]


async def sittings(
    options: Options, prompt: str | None, prepare: Prepare | None, *, sit: Sit, leave: Leave
) -> int:
    """Run sessions until the person leaves; return the exit status.

    `prepare_prompt` returns the first prompt once the session is open. `open_terminal` shows an open session.
    `on_session_end` is called with a session that ends and with its stopped agents.
    """
    from shoal.app.session.session import Session

    options = structs.replace(options, attended=True)
    while True:
        async with Session(options) as session:
            dialogue = await sit(session)
            outcome = await dialogue.go(prompt if prepare is None else await prepare(session))
            session.parts.occasions.ending = "prompt_input_exit" if outcome == "ended" else "clear"
            leave(session, await session.stop_agents())
        if outcome == "ended":
            return dialogue.status
        prompt = prepare = None
        fresh = {"resume": dialogue.resume or None, "continue_last": False, "fork": False, "session_id": None}
        begun = "startup" if dialogue.resume else "clear"
        options = structs.replace(options, begun=begun, **fresh)


def say_farewell(screen: Screen, session: Session, stopped: Sequence[Glimpse]) -> None:
    """Print the usage, the stopped agents, and how to resume the session."""
    screen.fresh_line()
    if stopped:
        screen.write(f"{stopped_agents(stopped)}\n", YELLOW)
        screen.write("  In the session, /agents send ID TEXT lets one go on.\n", DIM)
    if session.turn == 0:
        return
    purse = session.agent.purse.tree
    screen.write(
        f"  {dollars(purse.usd if purse.priced else None)} · {count(purse.usage.total_tokens)} tokens\n", DIM
    )
    screen.write("  Go on with: ", DIM)
    screen.write(f"shoal --resume {session.id}\n")
