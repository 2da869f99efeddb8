"""Result of analyzing a shell command: its simple commands and whether each only reads."""

from __future__ import annotations

from contextvars import ContextVar

from msgspec import Struct

UNKNOWN_PATH = "/(unknown)"
"""Stands for a path, or its directory, that is known only at run time.

It is absolute and does not exist, so it never counts as inside a project.
"""
shell_home: ContextVar[str | None] = ContextVar("shell_home", default=None)
"""What `~` means in the command that is being analyzed; None if it is not known."""


def may_use_home(command: str) -> bool:
    """Return True unless a command means the same for every home directory."""
    return "~" in command or "cd" in command


class SimpleShellCommand(Struct, frozen=True, kw_only=True):
    """One simple command.

    `argv` is None if a word is known only at run time, or if something else decides what happens (an
    assignment before it, a function of that name, a flag that runs another program): no allow rule may cover
    it. `words` are its words as far as they are known, for forbidding rules; `globs` are the indexes of those
    that are wildcard patterns, `outer` are the words of the commands that run it, and `code` is text that it
    may run (None: known only at run time). `reads` and `writes` are the
    files named by redirections or as arguments of a known command, joined to the directory of a preceding
    `cd`, or UNKNOWN_PATH; with `follows_links`, the former include all files below them, also through links.
    `changes` are those of `writes` that its arguments name. `read_only` already
    accounts for unknown words; it describes the command without its redirections, which are in `writes`.
    """

    text: str
    argv: tuple[str, ...] | None
    via: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    read_only: bool = False
    follows_links: bool = False
    found_name: str = "*"
    """Pattern for the names of links that `find` passes to it."""
    why: str = ""
    words: tuple[str | None, ...] = ()
    globs: tuple[int, ...] = ()
    outer: tuple[tuple[str | None, ...], ...] = ()
    code: tuple[str | None, ...] = ()
    places: tuple[str, ...] = ("",)
    """Directories that it may run in, relative to that of the command line."""


class ShellCommandAnalysis(Struct, frozen=True, kw_only=True):
    """Simple commands of a command line; `trouble` says why it cannot be judged and needs approval.

    With `is_complete`, `parts` are all that it runs even so; otherwise it may run anything. Without
    `are_paths_known`, it may read and write other files than those of its parts.
    """

    parts: tuple[SimpleShellCommand, ...]
    trouble: str | None = None
    is_complete: bool = True
    are_paths_known: bool = True
