"""What is known of a shell command before it runs: its simple commands and whether each only reads."""

from __future__ import annotations

from msgspec import Struct

UNKNOWN_PATH = "/(unknown)"
"""Stands for a path, or the directory of one, that is only known when the command runs.

It is absolute and names nothing, so whoever asks whether it lies inside a project hears no.
"""


class Part(Struct, frozen=True, kw_only=True):
    """One simple command.

    `argv` is None where a word is only known when it runs, and where something beside the words decides
    what happens (an assignment before it, a function of that name, a flag that runs another program): no
    allow rule may cover it. `words` are its words as far as they are known, for rules that forbid.
    `reads` and `writes` are the files it names by redirection or as arguments of a known command, after a
    `cd` joined to its directory, or UNKNOWN_PATH; `changes` are those of `writes` that its arguments name.
    `read_only` already accounts for words that are not known; it speaks of the command without its
    redirections, which are `writes`.
    """

    text: str
    argv: tuple[str, ...] | None
    via: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    read_only: bool = False
    why: str = ""
    words: tuple[str | None, ...] = ()


class Analysis(Struct, frozen=True, kw_only=True):
    """Every simple command found; `trouble` says why the whole cannot be judged, so that it is asked."""

    parts: tuple[Part, ...]
    trouble: str | None = None
