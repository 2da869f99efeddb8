"""Launch of a run by commands that choose its start themselves and accept the flags of a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from shoal.surfaces.cli.flags import SECTIONS, check_together, options_from

if TYPE_CHECKING:
    from shoal.app.options import Options
    from shoal.app.session.session import Session

_BEGINNING = {
    "print_": False,
    "continue_last": False,
    "resume": None,
    "fork": False,
    "session_id": None,
    "forget": False,
}
_NOT_HERE = (*_BEGINNING, "input_format", "replay_user_messages", "permission_prompt_tool")
RUN_FLAGS: tuple[click.Option, ...] = tuple(
    option for _, options in SECTIONS for option in options if option.name not in _NOT_HERE
)
"""Flags of a run, without those that choose its start or let a program drive it."""


def run_with(
    given: Mapping[str, Any],
    *,
    prompt: str | None = None,
    headless: bool,
    resume: str | None = None,
    prepare: Callable[[Session], Awaitable[str]] | None = None,
    adapt: Callable[[Options], Options] = lambda options: options,
) -> int:
    """Run and return the exit code. `prepare` returns the first prompt once the session is open."""
    flags = {
        **_BEGINNING,
        "input_format": "text",
        "replay_user_messages": False,
        "permission_prompt_tool": None,
        **given,
        "resume": resume,
    }
    headless = headless or flags["output_format"] != "text"
    check_together(flags, headless=headless)
    options = adapt(options_from(flags, attended=not headless))
    if not headless:
        from shoal.surfaces.cli.interactive import interactive

        return interactive(options, prompt, prepare, plain=flags["plain"])
    from shoal.surfaces.cli.headless.output import Wanted
    from shoal.surfaces.cli.headless.run import Job
    from shoal.surfaces.cli.headless.run import headless as run_headless

    wanted = Wanted(format=flags["output_format"], partial_messages=flags["include_partial_messages"])
    return run_headless(
        Job(
            options=options,
            prompt=prompt or "",
            output=wanted,
            quiet=flags["quiet"],
            verbose=flags["verbose"],
            prepare=prepare,
        )
    )
