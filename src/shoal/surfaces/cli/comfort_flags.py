"""Flags of Claude Code that only add convenience: Shoal accepts them, prints a note and does nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import click
from click import Option

_NOTES_KEY = "shoal.comfort_flags"
_SWITCH_VALUES = ("true", "false", "1", "0", "on", "off", "yes", "no")
_OFF_VALUES = frozenset({"false", "0", "off", "no"})


class ComfortFlag(NamedTuple):
    name: str
    advice: str
    value: Literal["none", "required", "switch"] = "none"
    """Value on the command line; a switch may be followed by true or false."""


COMFORT_FLAGS = (
    ComfortFlag("--advisor", "Shoal has no advisor model", "required"),
    ComfortFlag("--enable-auto-mode", "auto mode behaves like default mode"),
    ComfortFlag("--exclude-dynamic-system-prompt-sections", "the system prompt does not change"),
    ComfortFlag("--mcp-debug", "use --debug=mcp"),
    ComfortFlag("--prefill", "the input starts empty", "required"),
    ComfortFlag("--prompt-suggestions", "Shoal does not suggest prompts", "switch"),
    ComfortFlag(
        "--remote-control-session-name-prefix", "`shoal web` controls a run from a browser", "required"
    ),
    ComfortFlag("--tmux", "start Shoal in tmux yourself"),
)


def build_comfort_options() -> tuple[Option, ...]:
    """Build the hidden options. Their callbacks collect the notes for `list_comfort_flag_notes`."""
    return tuple(map(_build_option, COMFORT_FLAGS))


def _build_option(flag: ComfortFlag) -> Option:
    def add_note(ctx: click.Context, _: click.Parameter, value: bool | str | None) -> None:  # noqa: FBT001 - click passes it positionally
        is_given = value not in (None, False) and str(value).lower() not in _OFF_VALUES
        if is_given and not ctx.resilient_parsing:
            ctx.meta.setdefault(_NOTES_KEY, []).append(f"{flag.name} has no effect: {flag.advice}.")

    words = [flag.name, f"comfort_{flag.name.strip('-').replace('-', '_')}"]
    text = "Accepted for compatibility; has no effect."
    if flag.value == "none":
        return Option(words, is_flag=True, hidden=True, expose_value=False, callback=add_note, help=text)
    return Option(words, hidden=True, expose_value=False, callback=add_note, help=text)


def list_comfort_flag_notes() -> tuple[str, ...]:
    """Return a sentence about each of these flags on the command line."""
    ctx = click.get_current_context(silent=True)
    notes: Sequence[str] = () if ctx is None else ctx.meta.get(_NOTES_KEY, ())
    return tuple(notes)


def complete_switch(word: str, following: str | None) -> str:
    """Return the word of a command line, with a value if it is a switch that has none."""
    is_switch = any(flag.name == word and flag.value == "switch" for flag in COMFORT_FLAGS)
    is_value = following is not None and following.lower() in _SWITCH_VALUES
    return f"{word}=true" if is_switch and not is_value else word
