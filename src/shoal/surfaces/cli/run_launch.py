"""Launch of a run by commands that choose its start themselves and accept the flags of a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from shoal.surfaces.cli.flags import FLAG_SECTIONS, check_flag_conflicts, options_from_flags

if TYPE_CHECKING:
    from shoal.app.options import Options
    from shoal.app.session.session import Session

_START_FLAG_DEFAULTS = {
    "print_": False,
    "continue_last": False,
    "resume": None,
    "fork": False,
    "session_id": None,
    "title": None,
    "worktree": None,
    "init": False,
    "init_only": False,
    "maintenance": False,
    "forget": False,
}
_EXCLUDED_FLAGS = (*_START_FLAG_DEFAULTS, "input_format", "replay_user_messages", "permission_prompt_tool")
RUN_FLAGS: tuple[click.Option, ...] = tuple(
    option for _, options in FLAG_SECTIONS for option in options if option.name not in _EXCLUDED_FLAGS
)
"""Flags of a run, except those that choose how it starts or let a program drive it."""


def _complete_run_flags(flag_values: Mapping[str, Any], resume: str | None) -> dict[str, Any]:
    """Return all flags, with defaults for those that such commands do not have."""
    return {
        **_START_FLAG_DEFAULTS,
        "input_format": "text",
        "replay_user_messages": False,
        "permission_prompt_tool": None,
        **flag_values,
        "resume": resume,
    }


def build_options_from_run_flags(
    flag_values: Mapping[str, Any], *, resume: str | None, attended: bool
) -> Options:
    """Return the options of a session that the command drives itself."""
    flags = _complete_run_flags(flag_values, resume)
    check_flag_conflicts(flags, headless=not attended)
    return options_from_flags(flags, attended=attended)


def run_session_with_flags(
    flag_values: Mapping[str, Any],
    *,
    prompt: str | None = None,
    headless: bool,
    resume: str | None = None,
    prepare: Callable[[Session], Awaitable[str]] | None = None,
    adapt_options: Callable[[Options], Options] = lambda options: options,
) -> int:
    """Run and return the exit code. `prepare` returns the first prompt once the session is open."""
    flags = _complete_run_flags(flag_values, resume)
    headless = headless or flags["output_format"] != "text"
    check_flag_conflicts(flags, headless=headless)
    options = adapt_options(options_from_flags(flags, attended=not headless))
    if not headless:
        from shoal.surfaces.cli.interactive_session import run_interactive_session

        return run_interactive_session(options, prompt, prepare, plain=flags["plain"])
    from shoal.surfaces.cli.headless.headless_run import HeadlessRunRequest, run_headless
    from shoal.surfaces.cli.headless.output_formats import HeadlessOutputOptions

    output_options = HeadlessOutputOptions(
        format=flags["output_format"], partial_messages=flags["include_partial_messages"]
    )
    return run_headless(
        HeadlessRunRequest(
            options=options,
            prompt=prompt or "",
            output=output_options,
            quiet=flags["quiet"],
            verbose=flags["verbose"],
            prepare=prepare,
        )
    )
