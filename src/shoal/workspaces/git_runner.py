"""Runs the git program with a timeout and without settings that make it run other programs."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from shoal.core.clock import Clock
from shoal.core.errors import WorktreeError

COMMAND_TIMEOUT = 120.0
"""Seconds for one git command; a checkout of a large repository takes a while."""
_STOP_GRACE = 2.0
# Hooks and file monitors may be in the tree, where agents write. Filters and merge drivers stay as the
# user configured them: without them files would have different content.
_SAFE_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    # Otherwise creating a branch writes .git/config, and concurrent calls compete for its lock.
    "branch.autoSetupMerge=false",
)
# Shoal decides which repository git works on; the configuration that git reads stays the user's.
_PASSED_VARIABLES = frozenset(
    {"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH", "GIT_SSL_CAINFO"}
    | {f"GIT_{who}_{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
)


class GitCommandResult(Struct, frozen=True):
    """Output and exit status of a git command."""

    status: int
    out: bytes
    error: str

    @property
    def text(self) -> str:
        return os.fsdecode(self.out).strip("\n")

    @property
    def names(self) -> tuple[str, ...]:
        """Entries of NUL-separated output."""
        return tuple(os.fsdecode(name) for name in self.out.split(b"\0") if name)


class GitDirectories(Struct, frozen=True, kw_only=True):
    """Location that git works on, set explicitly and not found by a .git file, which an agent can write."""

    entry: Path
    """Directory of this working tree's HEAD and index."""
    common: Path
    tree: Path
    index: Path | None = None

    def build_git_environment(self) -> dict[str, str]:
        variables = {
            "GIT_DIR": str(self.entry),
            "GIT_COMMON_DIR": str(self.common),
            "GIT_WORK_TREE": str(self.tree),
        }
        return variables if self.index is None else {**variables, "GIT_INDEX_FILE": str(self.index)}


class GitRunner:
    """`env` is the user's environment; git does not receive variables that name another repository."""

    def __init__(self, env: Mapping[str, str], clock: Clock, *, timeout: float = COMMAND_TIMEOUT) -> None:
        self._env = {
            **{
                name: value
                for name, value in env.items()
                if name in _PASSED_VARIABLES or not name.startswith("GIT_")
            },
            "LC_ALL": "C",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_EDITOR": "true",
        }
        self._clock = clock
        self._timeout = timeout
        self._inherited_fds: tuple[int, ...] = ()

    def set_inherited_descriptors(self, *fds: int) -> None:
        """Let every git process from now on inherit these descriptors, and with them their locks."""
        self._inherited_fds = fds

    async def __call__(
        self, *arguments: str, at: GitDirectories | Path, stdin: bytes = b"", settings: Sequence[str] = ()
    ) -> GitCommandResult:
        """Run git. Raises `WorktreeError` if it fails."""
        result = await self.try_run(*arguments, at=at, stdin=stdin, settings=settings)
        if result.status != 0:
            raise WorktreeError(f"git {arguments[0]} failed: {result.error or f'exit code {result.status}'}")
        return result

    async def try_run(
        self, *arguments: str, at: GitDirectories | Path, stdin: bytes = b"", settings: Sequence[str] = ()
    ) -> GitCommandResult:
        """Run git and return any result. Raises `WorktreeError` if it cannot run or times out."""
        cwd, variables = _resolve_git_location(at)
        options = [part for setting in (*_SAFE_SETTINGS, *settings) for part in ("-c", setting)]
        try:
            process = await asyncio.create_subprocess_exec(
                "git",
                *options,
                *arguments,
                cwd=cwd,
                env={**self._env, **variables},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=self._inherited_fds,
            )
        except FileNotFoundError as error:
            if error.filename not in (None, "git"):
                raise WorktreeError(f"git cannot work in {cwd}: it does not exist.") from error
            raise WorktreeError("Worktrees need the program git, which is not installed.") from error
        except OSError as error:
            raise WorktreeError(f"git cannot be run in {cwd}: {error.strerror or error}.") from error
        return await self._wait_for_exit(process, arguments[0], stdin)

    async def _wait_for_exit(
        self, process: asyncio.subprocess.Process, command: str, stdin: bytes
    ) -> GitCommandResult:
        try:
            async with self._clock.deadline(self._timeout):
                out, err = await process.communicate(stdin)
        except TimeoutError:
            raise WorktreeError(f"git {command} did not end within {self._timeout:g} s.") from None
        finally:
            if process.returncode is None:
                await _stop_process(process)
        return GitCommandResult(process.returncode or 0, out, _parse_git_error(err))


def _resolve_git_location(at: GitDirectories | Path) -> tuple[Path, dict[str, str]]:
    return (at.tree, at.build_git_environment()) if isinstance(at, GitDirectories) else (at, {})


async def _stop_process(process: asyncio.subprocess.Process) -> None:
    """Stop the process with TERM first, so that git removes its lock files."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_GRACE):
                await process.wait()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()


def _parse_git_error(err: bytes) -> str:
    lines = [line for line in os.fsdecode(err).splitlines() if line.strip() and not line.startswith("hint:")]
    return "\n".join(line.removeprefix("fatal: ").removeprefix("error: ") for line in lines).strip()
