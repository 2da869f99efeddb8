"""Snapshot of the user's interactive shell, stored in a file that every command's shell sources."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from shoal.core.clock import Clock
from shoal.core.errors import ProcessError, ShoalError
from shoal.core.ports import ProcessLauncher, ProcessLaunchSpec

SNAPSHOT_TIMEOUT = 5.0
"""Seconds the startup files may take."""
_ABANDONED_AFTER = 60.0
"""Seconds after which a partial snapshot counts as abandoned; see `SNAPSHOT_TIMEOUT`."""
_END_MARK = b"# whole\n"

# Functions come before aliases, or sourcing them would expand the aliases inside. Functions with one leading
# underscore are completions, which no command needs.
_BASH_SCRIPT = r"""
umask 077
{
    echo 'unalias -a 2>/dev/null'
    while read -r _ _ name; do
        case $name in __*|[!_]*) declare -f -- "$name" ;; esac
    done < <(declare -F)
    while read -r line; do
        case $line in *login_shell|*restricted_shell) ;; *) echo "$line" ;; esac
    done < <(shopt -p)
    while read -r line; do
        case $line in *\ pipefail|*\ noclobber|*\ noglob|*\ braceexpand|*\ allexport) echo "$line" ;; esac
    done < <(set +o)
    echo 'shopt -s expand_aliases'
    alias -p
    printf 'export PATH=%q\n' "$PATH"
    echo '# whole'
} >| "$1" 2>/dev/null
exit 0
"""
_ZSH_SCRIPT = r"""
umask 077
{
    print -r -- 'unalias -a 2>/dev/null'
    for name in ${(k)functions}; do
        if [[ $name == __* || $name != _* ]]; then typeset -f -- "$name"; fi
    done
    for option in extendedglob nullglob globdots ksharrays shwordsplit noclobber pipefail; do
        if [[ -o $option ]]; then print -r -- "setopt $option"; fi
    done
    alias -L
    print -r -- "export PATH=${(q)PATH}"
    print -r -- '# whole'
} >| "$1" 2>/dev/null
exit 0
"""


class UserShell(Struct, frozen=True, kw_only=True):
    path: str
    kind: Literal["bash", "zsh", "sh"]


class ShellSnapshotFailedError(ShoalError):
    """No snapshot was taken, so commands lack the user's functions and aliases; the text says why."""


def find_user_shell(env: Mapping[str, str]) -> UserShell:
    """Return $CLAUDE_CODE_SHELL or $SHELL if it is bash or zsh; else bash, else sh."""
    for path in (env.get("CLAUDE_CODE_SHELL", ""), env.get("SHELL", ""), "/bin/bash", "/usr/bin/bash"):
        kind = path.rpartition("/")[2]
        if path.startswith("/") and kind in ("bash", "zsh") and os.access(path, os.X_OK):
            return UserShell(path=path, kind="zsh" if kind == "zsh" else "bash")
    return UserShell(path="/bin/sh", kind="sh")


def lock_shell_snapshot(snapshot: Path) -> int:
    """Lock the snapshot while this process lives, to show cleaners it is in use; return the descriptor."""
    fd = os.open(snapshot, os.O_RDONLY | os.O_CLOEXEC)
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return fd


class ShellSnapshotter(Struct, frozen=True, kw_only=True):
    """Takes the snapshot of a user's shell."""

    shell: UserShell
    directory: Path
    env: Mapping[str, str]
    processes: ProcessLauncher
    clock: Clock
    mark: str
    """Identifies the owner: snapshots that it, or a process that it started, has left are removed."""

    async def take_snapshot(self) -> Path:
        """Return the complete file, readable by its owner only. Raises `ShellSnapshotFailedError`."""
        script = {"bash": _BASH_SCRIPT, "zsh": _ZSH_SCRIPT}.get(self.shell.kind)
        if script is None:
            raise ShellSnapshotFailedError(f"{self.shell.path} has no startup files that could be captured")
        name = f"snapshot-{self.shell.kind}-{self.clock.now()}-{self.mark}.sh"
        partial = self.directory / f"{name}.part"
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            await self._run_snapshot_script(script, partial)
            if not partial.exists() or not partial.read_bytes().endswith(_END_MARK):
                raise ShellSnapshotFailedError(
                    f"{self.shell.path} ended before it had written its functions and aliases"
                )
            return partial.rename(self.directory / name)
        except (OSError, ProcessError) as error:
            raise ShellSnapshotFailedError(str(error)) from error
        finally:
            with contextlib.suppress(OSError):
                partial.unlink()

    def remove_leftover_snapshots(self) -> None:
        """Remove snapshots of processes with this mark or one below it, and abandoned partial ones."""
        with contextlib.suppress(OSError):
            for pattern in (f"snapshot-*-{self.mark}.sh*", f"snapshot-*-{self.mark}-*.sh*"):
                for snapshot in self.directory.glob(pattern):
                    snapshot.unlink(missing_ok=True)
            for partial in self.directory.glob("snapshot-*.sh.part"):
                if time.time() - partial.lstat().st_mtime > _ABANDONED_AFTER:
                    partial.unlink(missing_ok=True)

    async def _run_snapshot_script(self, script: str, partial: Path) -> None:
        devnull = os.open(os.devnull, os.O_WRONLY)
        try:
            process = await self.processes.start_process(
                ProcessLaunchSpec(
                    argv=(self.shell.path, "-i", "-c", script, self.shell.kind, str(partial)),
                    cwd=Path(self.env.get("HOME", "/")),
                    env=self.env,
                    stdout=devnull,
                    stderr=devnull,
                )
            )
        finally:
            os.close(devnull)
        try:
            async with self.clock.deadline(SNAPSHOT_TIMEOUT):
                await process.wait()
        except TimeoutError:
            raise ShellSnapshotFailedError(
                f"the startup files of {self.shell.path} took more than {SNAPSHOT_TIMEOUT:g} s"
            ) from None
        finally:
            await process.stop(grace=0.1)
