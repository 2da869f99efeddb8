"""Sandbox policy of shell commands, and the port that enforces it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from shoal.core.ports import ProcessLaunchSpec


class SandboxPolicy(Struct, frozen=True, kw_only=True):
    """Path access of a command. Paths not listed are read-only. The innermost listed path applies.

    For a path listed twice, hidden wins over writable, and writable over read-only.
    """

    writable: tuple[Path, ...]
    read_only: tuple[Path, ...] = ()
    """Read-only paths inside writable ones: files that run or decide outside the sandbox later."""
    always_read_only: tuple[Path, ...] = ()
    """Read-only even if listed as writable. A sandbox that cannot enforce this must not be used."""
    hidden: tuple[Path, ...] = ()
    hidden_if_possible: tuple[Path, ...] = ()
    """Also hidden, by a sandbox that can hide paths inside a writable directory."""
    sealed_repositories: dict[Path, Path] = {}
    """Git directories that track a hidden path, with that path. They are read-only if it is hidden, because
    git would record its removal."""
    marked_repositories: dict[Path, tuple[Path, ...]] = {}
    """Git directories that track hidden paths, with these. Their index has marks that make git leave the
    paths alone, so they are writable."""
    replaced_directories: dict[Path, Path] = {}
    """Directories in repositories, with those that commands read instead, if the sandbox can do it."""
    git_settings: dict[str, str] = {}
    """Settings of git for commands, if a repository is marked."""
    hidden_sockets: tuple[Path, ...] = ()
    """Also hidden: sockets of programs that would act for a command outside the sandbox."""
    readable: tuple[Path, ...] = ()
    """Readable paths inside hidden ones."""
    network: bool = True
    has_private_temp: bool = False
    """True if $TMPDIR of a command is the scratch directory of its launch."""
    uncreatable: tuple[Path, ...] = ()
    """Paths that commands must not create, as far as the sandbox can prevent it; no effect if they exist."""
    watched: tuple[Path, ...] = ()
    """Directories that are searched after a command for files that make other programs run something."""


class RepositoryMarks(Protocol):
    """Makes git leave hidden files alone while commands run."""

    async def acquire(self, repositories: Mapping[Path, Sequence[Path]]) -> tuple[Path, ...]:
        """Mark the hidden files, for one more command. Return the git directories where that failed."""
        ...

    async def release(self) -> tuple[Path, ...]:
        """End the use by one command. Return the hidden files of which git has another version now."""
        ...


class SandboxStatus(Protocol):
    @property
    def can_skip_permission_question(self) -> bool:
        """True if the settings allow confined commands to run without a question."""
        ...


class Sandbox(SandboxStatus, Protocol):
    """Confines commands; availability is detected on first use and then cached."""

    @property
    def is_active(self) -> bool:
        """True if commands are confined. The first access tests it, which takes some milliseconds."""
        ...

    @property
    def ends_all_processes(self) -> bool:
        """True if the end of a command ends every process it started."""
        ...

    async def detect_availability(self) -> None:
        """Detect availability without blocking the event loop."""
        ...

    async def wrap_launch(self, launch: ProcessLaunchSpec, scratch: Path | None = None) -> ProcessLaunchSpec:
        """Return the confined launch; unchanged if the sandbox is optional and unavailable.

        The command can write to the directory `scratch`.

        Raises `ProcessError` if the requested policy cannot be enforced. Call `finish_command` after the
        command has ended, or if it was not started.
        """
        ...

    async def begin_command(self) -> None:
        """Remember what is in the watched directories before a command."""
        ...

    async def finish_command(self) -> tuple[str, ...]:
        """Clean up after a command, and describe the files it created that make programs run."""
        ...
