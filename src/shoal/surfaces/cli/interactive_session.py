"""Interactive session at a terminal, on the full screen or line by line."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from shoal.core.text.control_tags import format_typed_command
from shoal.core.text.text_format import to_one_line
from shoal.surfaces.cli.plain.input_prompt import InputPrompt, LiveInputPrompt, PlainInputPrompt
from shoal.surfaces.cli.plain.plain_terminal import PlainTerminalController
from shoal.surfaces.terminal.screen import LiveTerminalScreen, TerminalScreen, open_terminal_screen
from shoal.surfaces.terminal.slash_commands import list_slash_command_names
from shoal.surfaces.terminal.slash_team_commands import describe_agent_mentions
from shoal.surfaces.terminal.text_styles import BOLD, DIM, YELLOW, truncate_text
from shoal.surfaces.terminal.user_messages import describe_cut_off_agents

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.app.options import Options
    from shoal.app.session.session import Session
    from shoal.core.conversation.messages import Message
    from shoal.surfaces.terminal.session_loop import PreparePrompt

_INJECTED_PREFIXES = ("<teammate-message", "<agent-message", "<task-notification", "<system-reminder")
RECALL_WIDTH = 400
"""Maximum columns of the last prompt and answer shown when a session is resumed."""


def run_interactive_session(
    options: Options, prompt: str | None, prepare: PreparePrompt | None = None, *, plain: bool = False
) -> int:
    """Run until the user ends it and return the exit code; without a terminal, announce and run headless."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _run_headless_without_terminal(options, prompt)
    from shoal.app.settings.settings import resolve_shoal_home
    from shoal.surfaces.cli.setup_command import offer_model_setup
    from shoal.surfaces.cli.trust_command import ask_for_trust

    ask_for_trust(options)
    offer_model_setup(options)
    from shoal.surfaces.cli.terminal_mode import should_use_plain_terminal

    home = resolve_shoal_home(os.environ, Path.cwd())
    if plain or should_use_plain_terminal(
        options.cwd or Path.cwd(), options.settings, options.setting_sources
    ):
        return asyncio.run(run_plain_terminal(options, prompt, home, prepare))
    from shoal.surfaces.tui.launch import run_full_screen_sessions

    return asyncio.run(run_full_screen_sessions(options, prompt, home, prepare))


def _run_headless_without_terminal(options: Options, prompt: str | None) -> int:
    import click

    from shoal.surfaces.cli.headless.headless_run import HeadlessRunRequest, run_headless
    from shoal.surfaces.cli.headless.output_formats import HeadlessOutputOptions
    from shoal.surfaces.cli.headless.stdin import append_piped_input
    from shoal.surfaces.terminal.user_messages import print_user_message

    full_prompt = append_piped_input(prompt)
    if not full_prompt:
        command_path = click.get_current_context().command_path
        raise click.UsageError(f'Standard input is not a terminal. Pass a prompt: {command_path} -p "…"')
    print_user_message("Standard input is not a terminal, so Shoal runs headless, as with -p.")
    options = structs.replace(options, attended=False)
    return run_headless(
        HeadlessRunRequest(options=options, prompt=full_prompt, output=HeadlessOutputOptions())
    )


async def run_plain_terminal(
    options: Options, prompt: str | None, home: Path, prepare: PreparePrompt | None = None
) -> int:
    """Run the plain terminal until the user ends it, and return the exit code.

    `home` holds the prompt history. `prepare` returns the first prompt once the session is open.
    """
    from shoal.app.run_access.run_handle import load_agent_statuses
    from shoal.app.run_access.stored_runs import open_session_run
    from shoal.surfaces.terminal.session_loop import print_session_farewell, run_terminal_sessions

    screen = open_terminal_screen(sys.stdout)
    input_prompt: InputPrompt
    now: list[Session] = []
    """The running session."""
    if isinstance(screen, LiveTerminalScreen):
        input_prompt = LiveInputPrompt(
            screen,
            home / "shoal" / "history",
            lambda: [
                *list_slash_command_names(now),
                *(mention for session in now for mention, _ in describe_agent_mentions(session)),
            ],
            lambda: any(session.move_to_background() for session in now),
        )
    else:
        input_prompt = PlainInputPrompt(screen)

    async def open_terminal(session: Session) -> PlainTerminalController:
        now[:] = [session]
        _print_greeting(screen, session)
        run = open_session_run(session.store, session.id, home)
        await asyncio.to_thread(run.refresh)
        return PlainTerminalController(session, screen, input_prompt, load_agent_statuses(run))

    input_prompt.open()
    try:
        return await run_terminal_sessions(
            options,
            prompt,
            prepare,
            open_terminal=open_terminal,
            on_session_end=lambda session, stopped: print_session_farewell(screen, session, stopped),
        )
    finally:
        input_prompt.close()


def _print_greeting(screen: TerminalScreen, session: Session) -> None:
    screen.write("shoal", BOLD)
    screen.write(f"  {session.model_card.id} · {session.cwd}\n", DIM)
    for note in session.notes:
        screen.write(f"  {to_one_line(note)}\n", YELLOW)
    recovered = session.recovered
    if recovered is not None and recovered.cut_off_results:
        screen.write(f"  {describe_cut_off_agents(recovered.cut_off_results)}\n", YELLOW)
    screen.write("  /help lists the commands, Ctrl-D exits\n\n", DIM)
    _print_last_exchange(screen, session.messages)


def _print_last_exchange(screen: TerminalScreen, messages: Sequence[Message]) -> None:
    """Print the last prompt and the last answer of a resumed conversation."""
    prompts = (m.text for m in reversed(messages) if m.role == "user" and m.text)
    last_prompt = next((text for text in prompts if not text.startswith(_INJECTED_PREFIXES)), "")
    last_answer = next((m.text for m in reversed(messages) if m.role == "assistant" and m.text), "")
    if last_prompt:
        typed = to_one_line(format_typed_command(last_prompt))
        screen.write(f"› {truncate_text(typed, RECALL_WIDTH)}\n", DIM)
        screen.write(f"{truncate_text(to_one_line(last_answer), RECALL_WIDTH)}\n\n", DIM)
