"""Loop over the sessions at one terminal: `/clear` and `/resume` end one session and start another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from shoal.core.text.text_format import format_dollars, format_token_count
from shoal.surfaces.terminal.text_styles import DIM, YELLOW
from shoal.surfaces.terminal.user_messages import describe_stopped_agents

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import TypeAlias

    from shoal.app.options import Options
    from shoal.app.session.session import Session
    from shoal.core.agents.subagents import AgentStatusSnapshot
    from shoal.core.permissions.permission_changes import PermissionMode
    from shoal.surfaces.terminal.screen import TerminalScreen
    from shoal.surfaces.terminal.terminal_controller import TerminalController

    PreparePrompt: TypeAlias = Callable[[Session], Awaitable[str]]
    OpenTerminal: TypeAlias = Callable[[Session], Awaitable[TerminalController]]
    OnSessionEnd: TypeAlias = Callable[[Session, Sequence[AgentStatusSnapshot]], None]


async def run_terminal_sessions(
    options: Options,
    prompt: str | None,
    prepare_prompt: PreparePrompt | None,
    *,
    open_terminal: OpenTerminal,
    on_session_end: OnSessionEnd,
) -> int:
    """Run sessions until the user leaves; return the exit status.

    `prepare_prompt` returns the first prompt once the session is open. `open_terminal` shows an open session.
    `on_session_end` is called with a session that ends and with its stopped agents.
    """
    from shoal.app.session.session import Session

    options = structs.replace(options, attended=True)
    mode: PermissionMode | None = None
    while True:
        async with Session(options) as session:
            if mode is not None and mode != session.permission_mode:
                session.set_mode(mode)
            controller = await open_terminal(session)
            outcome = await controller.run_until_user_leaves(
                prompt if prepare_prompt is None else await prepare_prompt(session)
            )
            session.set_end_reason("prompt_input_exit" if outcome == "ended" else "clear")
            on_session_end(session, await session.stop_agents())
        if outcome == "ended":
            return controller.status
        prompt = prepare_prompt = None
        new_options = {
            "resume": controller.resume_session or None,
            "continue_last": False,
            "fork": False,
            "session_id": None,
        }
        start_source = "startup" if controller.resume_session else "clear"
        mode = None
        if start_source == "clear":
            # Only the conversation is new: the user's choices stay.
            mode = session.permission_mode
            options = structs.replace(options, model=session.chosen_model or options.model)
        options = structs.replace(options, begun=start_source, **new_options)


def print_session_farewell(
    screen: TerminalScreen, session: Session, stopped: Sequence[AgentStatusSnapshot]
) -> None:
    """Print the usage, the stopped agents, and how to resume the session."""
    screen.end_line()
    if stopped:
        screen.write(f"{describe_stopped_agents(stopped)}\n", YELLOW)
        screen.write("  To resume one, use /agents send ID TEXT in the session.\n", DIM)
    if session.turn == 0:
        return
    spending = session.spending
    screen.write(
        f"  {format_dollars(spending.usd)} · {format_token_count(spending.usage.total_tokens)} tokens\n",
        DIM,
    )
    screen.write("  Resume it:  ", DIM)
    screen.write(f"shoal --resume {session.id}\n")
