"""Runs the git program with a timeout and without the programs that a repository's configuration names."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from shoal.core.clock import Clock
from shoal.core.errors import ProcessError, WorktreeError
from shoal.core.ports import ProcessLauncher, ProcessLaunchSpec
from shoal.core.user_environment import get_user_environment
from shoal.workspaces.git_program_settings import (
    GitProgramSettings,
    parse_git_settings,
    replace_repository_programs,
)
from shoal.workspaces.workspace_texts import format_workspace_notice

COMMAND_TIMEOUT = 120.0
"""Timeout in seconds for one git command; a checkout of a large repository takes a while."""
_STOP_GRACE = 2.0
# Hooks and file monitors may be in the tree, where agents write.
_SAFE_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    # Otherwise creating a branch writes .git/config, and concurrent calls compete for its lock.
    "branch.autoSetupMerge=false",
    "log.showSignature=false",
)
# In front of the arguments: a driver that an attribute selects is not run even if the user configured it.
_SAFE_ARGUMENTS = dict.fromkeys(("diff", "log", "show"), ("--no-ext-diff", "--no-textconv"))
_ALLOWED_PROTOCOLS = "file:http:https:ssh"
"""Protocols for objects that a partial clone lacks. Others run a program that the address names."""
_SERVER_VARIABLES = {
    "GIT_ALLOW_PROTOCOL": "file:git:https:ssh",
    # Nobody is asked for a password, neither in a terminal nor in a window.
    "GIT_ASKPASS": "",
    "SSH_ASKPASS_REQUIRE": "never",
    # A repository on this machine does not fetch what it lacks itself, with its own programs.
    "GIT_NO_LAZY_FETCH": "1",
}
_LIST_SETTINGS = ("config", "--list", "--show-scope", "-z")
_MARKER_KEY = "shoal.marker"
"""Setting that shows in the list if git reads settings from the environment, as it has done since 2.31."""
_SETTLED_AGE = 1_000_000_000
"""Nanoseconds after which a change to a file certainly changes its timestamps too."""
_FileSignature: TypeAlias = tuple[int, int, int] | None
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

    def __init__(
        self,
        env: Mapping[str, str],
        clock: Clock,
        *,
        timeout: float = COMMAND_TIMEOUT,
        processes: ProcessLauncher | None = None,
    ) -> None:
        """With `processes`, commands may talk to servers, for which their helpers can wait forever.

        The helpers end with the command, and both end with this process.
        """
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
            "GIT_ALLOW_PROTOCOL": _ALLOWED_PROTOCOLS,
            **({} if processes is None else _SERVER_VARIABLES),
        }
        self._clock = clock
        self._timeout = timeout
        self._processes = processes
        self._inherited_fds: tuple[int, ...] = ()
        self._harmless: dict[GitDirectories, tuple[_FileSignature, ...]] = {}
        """State of the configuration files of repositories that name no programs."""

    def create_server_runner(self, timeout: float, processes: ProcessLauncher) -> GitRunner:
        """Return a runner for commands that talk to servers. They read no input."""
        return GitRunner(self._env, self._clock, timeout=timeout, processes=processes)

    def set_inherited_descriptors(self, *fds: int) -> None:
        """Let every git process from now on inherit these descriptors, and with them their locks."""
        self._inherited_fds = fds

    async def __call__(
        self, *arguments: str, at: GitDirectories | Path, stdin: bytes = b"", settings: Sequence[str] = ()
    ) -> GitCommandResult:
        """Run git. Raises `WorktreeError` if it fails."""
        result = await self.try_run(*arguments, at=at, stdin=stdin, settings=settings)
        if result.status != 0:
            raise WorktreeError(
                format_workspace_notice(
                    "git_failed", command=arguments[0], error=result.error or f"exit code {result.status}"
                )
            )
        return result

    async def try_run(
        self, *arguments: str, at: GitDirectories | Path, stdin: bytes = b"", settings: Sequence[str] = ()
    ) -> GitCommandResult:
        """Run git and return any result. Raises `WorktreeError` if it cannot run or times out."""
        found = await self._find_repository_programs(at)
        if isinstance(found, GitCommandResult):
            return found
        arguments = (arguments[0], *_SAFE_ARGUMENTS.get(arguments[0], ()), *arguments[1:])
        return await self._run(arguments, at, stdin, settings, found.replacements)

    async def list_disabled_filters(self, *, at: GitDirectories | Path) -> tuple[str, ...]:
        """Return the filters that the repository configures as required, which are not run."""
        found = await self._find_repository_programs(at)
        if isinstance(found, GitCommandResult):
            raise WorktreeError(
                format_workspace_notice("git_config_failed", error=found.error or f"exit code {found.status}")
            )
        return found.disabled_filters

    async def _find_repository_programs(
        self, at: GitDirectories | Path
    ) -> GitProgramSettings | GitCommandResult:
        """Return what replaces the programs of the repository; if git cannot list them, git's result."""
        signatures = _read_config_signatures(at)
        if isinstance(at, GitDirectories) and signatures and self._harmless.get(at) == signatures:
            return GitProgramSettings()
        now = time.time_ns()
        listing = await self._run(_LIST_SETTINGS, at, b"", (), ((_MARKER_KEY, "1"),))
        if listing.status != 0:
            return listing
        try:
            settings = parse_git_settings(listing.out)
        except ValueError as error:
            raise WorktreeError(format_workspace_notice("git_config_unreadable", error=error)) from error
        if all(each.key != _MARKER_KEY for each in settings):
            raise WorktreeError(format_workspace_notice("old_git"))
        found = replace_repository_programs(settings)
        is_settled = all(each is None or now - each[0] > _SETTLED_AGE for each in signatures)
        if isinstance(at, GitDirectories) and is_settled and found == GitProgramSettings():
            self._harmless[at] = signatures
        return found

    async def _run(
        self,
        arguments: Sequence[str],
        at: GitDirectories | Path,
        stdin: bytes,
        settings: Sequence[str],
        replacements: Sequence[tuple[str, str]],
    ) -> GitCommandResult:
        cwd, variables = _resolve_git_location(at)
        options = [part for setting in (*_SAFE_SETTINGS, *settings) for part in ("-c", setting)]
        command = (*options, *arguments)
        env = {**self._env, **variables, **_build_settings_environment(replacements)}
        if self._processes is not None:
            return await self._run_guarded(self._processes, command, arguments[0], cwd, env)
        try:
            process = await asyncio.create_subprocess_exec(
                "git",
                *command,
                cwd=cwd,
                env=env,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=self._inherited_fds,
            )
        except FileNotFoundError as error:
            if error.filename not in (None, "git"):
                raise WorktreeError(
                    format_workspace_notice("git_directory_missing", directory=cwd)
                ) from error
            raise WorktreeError(format_workspace_notice("no_git")) from error
        except OSError as error:
            raise WorktreeError(
                format_workspace_notice("git_not_run", directory=cwd, error=error.strerror or error)
            ) from error
        try:
            async with self._clock.deadline(self._timeout):
                out, err = await process.communicate(stdin)
        except TimeoutError:
            raise self._create_timeout_error(arguments[0]) from None
        finally:
            if process.returncode is None:
                await _stop_process(process)
        return GitCommandResult(process.returncode or 0, out, _parse_git_error(err))

    async def _run_guarded(
        self, processes: ProcessLauncher, command: Sequence[str], name: str, cwd: Path, env: Mapping[str, str]
    ) -> GitCommandResult:
        """Run git so that it and its helpers cannot outlive this process, even if it is killed."""
        directory = get_user_environment(env).temporary_directory
        # Not pipes: a helper that stays behind would keep them open.
        from tempfile import TemporaryFile

        with TemporaryFile(dir=directory) as out, TemporaryFile(dir=directory) as err:
            launch = ProcessLaunchSpec(
                argv=("git", *command), cwd=cwd, env=env, stdout=out.fileno(), stderr=err.fileno()
            )
            try:
                process = await processes.start_process(launch)
                try:
                    async with self._clock.deadline(self._timeout):
                        status = await process.wait()
                finally:
                    await process.stop(grace=0)
            except ProcessError as error:
                raise WorktreeError(
                    format_workspace_notice("git_not_run", directory=cwd, error=error)
                ) from error
            except TimeoutError:
                raise self._create_timeout_error(name) from None
            out.seek(0)
            err.seek(0)
            return GitCommandResult(status, out.read(), _parse_git_error(err.read()))

    def _create_timeout_error(self, command: str) -> WorktreeError:
        return WorktreeError(
            format_workspace_notice("git_too_slow", command=command, seconds=f"{self._timeout:g}")
        )


def _resolve_git_location(at: GitDirectories | Path) -> tuple[Path, dict[str, str]]:
    return (at.tree, at.build_git_environment()) if isinstance(at, GitDirectories) else (at, {})


def _build_settings_environment(settings: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return variables that set git's settings: unlike `-c` they take keys with an equals sign."""
    variables = {"GIT_CONFIG_COUNT": str(len(settings))}
    for at, (key, value) in enumerate(settings):
        variables |= {f"GIT_CONFIG_KEY_{at}": key, f"GIT_CONFIG_VALUE_{at}": value}
    return variables


def _read_config_signatures(at: GitDirectories | Path) -> tuple[_FileSignature, ...]:
    """Return the state of the repository's configuration files; empty if they have to be found first."""
    if isinstance(at, Path):
        return ()
    return tuple(map(_read_file_signature, (at.common / "config", at.entry / "config.worktree")))


def _read_file_signature(path: Path) -> _FileSignature:
    try:
        found = path.stat()
    except OSError:
        return None
    # Unlike the time of the last write, this time cannot be set back.
    return found.st_ctime_ns, found.st_ino, found.st_size


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
