"""Entry point of this package: turns a command into its simple commands."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from shoal.policy.policy_texts import format_shell_reason
from shoal.policy.shell.simple_commands import UNKNOWN_PATH, ShellCommandAnalysis, SimpleShellCommand

if TYPE_CHECKING:
    from shoal.policy.shell.shell_syntax import UnjudgeableCommandError
    from shoal.policy.shell.syntax_walker import ShellSyntaxWalker

_MAX_KEPT_LENGTH = 2_000
__all__ = ["UNKNOWN_PATH", "ShellCommandAnalysis", "SimpleShellCommand", "analyze_shell_command"]


def analyze_shell_command(command: str) -> ShellCommandAnalysis:
    """Return what a shell command would run; accepts any text and sets `trouble` if it cannot be judged."""
    # Otherwise its text alone decides.
    may_use_home = "~" in command or "cd" in command
    return _analyze(command) if may_use_home or len(command) > _MAX_KEPT_LENGTH else _analyze_once(command)


@lru_cache(maxsize=256)
def _analyze_once(command: str) -> ShellCommandAnalysis:
    return _analyze(command)


def _analyze(command: str) -> ShellCommandAnalysis:
    walker_class, unjudgeable = _load_syntax_walker()
    walker = walker_class()
    broken: str | None = None
    try:
        walker.walk_script(command)
    except unjudgeable as reason:
        broken = str(reason)
    except Exception as error:  # noqa: BLE001 - a command that breaks the analysis needs approval and never runs without it
        broken = format_shell_reason("failed_analysis", error=type(error).__name__)
    walker.add_evaluated_commands()
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
def _load_syntax_walker() -> tuple[type[ShellSyntaxWalker], type[UnjudgeableCommandError]]:
    """Import on the first command: a session that runs none does not pay for the parser and its tables."""
    from shoal.policy.shell.shell_syntax import UnjudgeableCommandError
    from shoal.policy.shell.syntax_walker import ShellSyntaxWalker

    return ShellSyntaxWalker, UnjudgeableCommandError


def _mark_shadowed_by_function(part: SimpleShellCommand, functions: set[str]) -> SimpleShellCommand:
    """Mark a command whose name the command line itself defines as a function."""
    if part.words and part.words[0] in functions:
        reason = format_shell_reason("own_function", name=part.words[0])
        return replace(part, argv=None, read_only=False, why=reason)
    return part
