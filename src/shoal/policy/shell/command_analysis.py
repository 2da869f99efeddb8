"""Entry point of this package: turns a command into its simple commands."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from shoal.policy.policy_texts import format_shell_reason
from shoal.policy.shell.simple_commands import (
    UNKNOWN_PATH,
    ShellCommandAnalysis,
    SimpleShellCommand,
    may_use_home,
    shell_home,
)

if TYPE_CHECKING:
    from shoal.policy.shell.shell_syntax import UnjudgeableCommandError
    from shoal.policy.shell.syntax_walker import ShellSyntaxWalker

_MAX_KEPT_LENGTH = 2_000
__all__ = ["UNKNOWN_PATH", "ShellCommandAnalysis", "SimpleShellCommand", "analyze_shell_command"]


def analyze_shell_command(command: str, home: str | None = None) -> ShellCommandAnalysis:
    """Return what a shell command would run; accepts any text and sets `trouble` if it cannot be judged.

    `home` is the directory that `~` means; by default that of the analysis that this one is part of, or else
    unknown.
    """
    if not may_use_home(command):
        home = None
    elif home is None:
        home = shell_home.get()
    return (
        _analyze_for_home(command, home) if len(command) > _MAX_KEPT_LENGTH else _analyze_once(command, home)
    )


def _analyze_for_home(command: str, home: str | None) -> ShellCommandAnalysis:
    if home is None:
        return _analyze(command)
    token = shell_home.set(home)
    try:
        return _analyze(command)
    finally:
        shell_home.reset(token)


_analyze_once = lru_cache(maxsize=256)(_analyze_for_home)


def _analyze(command: str) -> ShellCommandAnalysis:
    walker_class, unjudgeable, list_reading_commands = _load_syntax_walker()
    if (known_parts := list_reading_commands(command)) is not None:
        return ShellCommandAnalysis(parts=known_parts)
    walker = walker_class()
    broken: str | None = None
    try:
        walker.walk_script(command)
    except unjudgeable as reason:
        broken = str(reason)
    except Exception as error:  # noqa: BLE001 - a command that breaks the analysis needs approval and never runs without it
        broken = format_shell_reason("failed_analysis", error=type(error).__name__)
    walker.finish_walk(command)
    parts = walker.parts
    if walker.functions:
        parts = [_mark_shadowed_by_function(part, walker.functions) for part in parts]
    return ShellCommandAnalysis(
        parts=tuple(parts),
        trouble=walker.trouble or broken,
        is_complete=broken is None,
        are_paths_known=broken is None and not walker.are_paths_unknown,
    )


@cache
def _load_syntax_walker() -> tuple[
    type[ShellSyntaxWalker],
    type[UnjudgeableCommandError],
    Callable[[str], tuple[SimpleShellCommand, ...] | None],
]:
    """Import on the first command: a session that runs none does not pay for the parser and its tables."""
    from shoal.policy.shell.plain_lines import list_reading_commands
    from shoal.policy.shell.shell_syntax import UnjudgeableCommandError
    from shoal.policy.shell.syntax_walker import ShellSyntaxWalker

    return ShellSyntaxWalker, UnjudgeableCommandError, list_reading_commands


def _mark_shadowed_by_function(part: SimpleShellCommand, functions: set[str]) -> SimpleShellCommand:
    """Mark a command whose name the command line itself defines as a function."""
    if part.words and part.words[0] in functions:
        reason = format_shell_reason("own_function", name=part.words[0])
        return replace(part, argv=None, read_only=False, why=reason)
    return part
