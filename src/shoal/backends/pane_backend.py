"""Teammates with panes: our own run in a process that a pane shows, foreign programs in the pane itself."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from shoal.backends.process_backend import ChildProcessLog, ForkedChildSpec, ProcessBackend
from shoal.core.clock import Clock
from shoal.core.core_texts import format_end_reason
from shoal.core.errors import ProcessError
from shoal.core.task_groups import exit_task_group_without_wrapping
from shoal.core.teams.member_backends import (
    AGENT_ENVIRONMENT_MARKS,
    MemberBackend,
    MemberChannel,
    MemberLaunchArgs,
    MemberProcess,
    MemberProcessLaunchSpec,
    PaneExit,
    PaneSpec,
    PaneTerminal,
    TerminalMultiplexer,
)
from shoal.core.teams.roster import BackendType
from shoal.wire.launch_args_codec import build_member_launch_flags

_TERMINAL_VARIABLES = frozenset(
    {"TERM", "TERMCAP", "TMUX", "TMUX_PANE", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "COLUMNS", "LINES"}
)
"""Variables that a pane sets itself."""
_LOCALE = ("LANG", "LC_ALL", "LC_CTYPE", "NO_COLOR")
_VIEWER_VARIABLES = frozenset({"HOME", "PATH", "SHOAL_HOME", "CLAUDE_CONFIG_DIR", "PYTHONPATH", *_LOCALE})
"""Variables that a viewer needs; providers' keys are not among them."""
_KILL_TIMEOUT = 1.0
"""Seconds from KILL to the end of the pane."""

# Runs in the pane, in place of a viewer that the fork server forks: a forked process cannot be the leader of
# the pane's session, and a shell is small. It opens the pipe without waiting for a writer, forwards changes
# of the size, and ends with the viewer's status. If the viewer dies, or could not be forked, the pipe has no
# writer: then it runs the viewer as a program. If the lead is dead, nobody else removes what the lead set.
_VIEWER_SCRIPT = r"""
pipe=$1; lead=$2; shift 2
viewer=; status=
trap 'resized=1; [ -z "$viewer" ] || kill -s WINCH "$viewer" 2>/dev/null' WINCH
exec 3<>"$pipe" 4<"$pipe" 3>&-
rm -f "$pipe"
while [ -z "$status" ]; do
  resized=
  if read -r kind value <&4; then
    case $kind in
      viewer) viewer=$value ;;
      end) status=$value ;;
      gone) status=$value; lead= ;;
    esac
  elif [ -z "$resized" ]; then
    break
  fi
done
exec 4<&-
viewer=
[ -n "$status" ] || { "$@"; status=$?; }
if [ -n "$TMUX" ] && { [ -z "$lead" ] || ! kill -s 0 "$lead" 2>/dev/null; }; then
  tmux set-option -p -t "$TMUX_PANE" -u @shoal_owner \; \
    set-hook -p -t "$TMUX_PANE" -u pane-died \; set-option -p -t "$TMUX_PANE" -u remain-on-exit \; \
    if-shell -F -t "$TMUX_PANE" '#{P:#{@shoal_owner}}' '' "
      set-option -q -w -t '$TMUX_PANE' -u pane-border-status
      set-option -q -w -t '$TMUX_PANE' -u pane-border-format
      set-option -q -w -t '$TMUX_PANE' -u main-pane-width" 2>/dev/null
fi
exit "$status"
"""


class MemberProcessWithPane:
    """Process of one of our members, which runs with or without its pane."""

    def __init__(self, process: MemberProcess, panes: TerminalMultiplexer, pane: str) -> None:
        self.inner = process
        self._panes = panes
        self._pane = pane

    @property
    def pid(self) -> int:
        return self.inner.pid

    @property
    def pane(self) -> str:
        return self._pane or self.inner.pane

    @property
    def channel(self) -> MemberChannel | None:
        return self.inner.channel

    async def wait_until_exit(self) -> str:
        return await self.inner.wait_until_exit()

    async def stop(self, *, grace: float = 2.0) -> None:
        try:
            await self.inner.stop(grace=grace)
        finally:
            await self.close_pane()

    async def close_pane(self) -> None:
        if self._pane:
            with suppress(ProcessError):  # the next program that is shown reports the problem
                await self._panes.close_pane(self._pane)


class ForeignMemberPaneProcess:
    """Foreign program that lives exactly as long as its pane."""

    channel: MemberChannel | None = None

    def __init__(self, panes: TerminalMultiplexer, pane: str, clock: Clock) -> None:
        self._panes = panes
        self.pane = pane
        self._clock = clock
        self.gone = False

    @property
    def pid(self) -> int:
        return self._panes.find_pane_pid(self.pane)

    async def wait_until_exit(self) -> str:
        end = await self._panes.wait_for_pane_exit(self.pane)
        self.gone = True
        return describe_pane_exit(end)

    async def stop(self, *, grace: float = 2.0) -> None:
        if not await self._panes.is_pane_alive(self.pane):
            self.gone = True
            return
        try:
            for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, _KILL_TIMEOUT)):
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, number)
                with suppress(TimeoutError):
                    async with self._clock.deadline(seconds):
                        await self.wait_until_exit()
                        return
        finally:
            await self._panes.close_pane(self.pane)
            self.gone = True


def describe_pane_exit(end: PaneExit) -> str:
    if end.all_gone:
        return format_end_reason("pane_program_ended")
    if end.status is None:
        return format_end_reason("pane_closed")
    if end.status < 0:
        return format_end_reason("killed_by_signal", signal=-end.status)
    return format_end_reason("ended_with_status", status=end.status)


class ForkedViewers:
    """Forks viewers of panes from the fork server of the members, with which they share memory.

    `entry` is `module:function`; `directory` contains the pipes through which viewers report their end.
    """

    def __init__(self, processes: ProcessBackend, entry: str, directory: Path) -> None:
        self._processes = processes
        self._entry = entry
        self._directory = directory

    @contextmanager
    def open_pipe(self, name: str) -> Iterator[tuple[Path, int]]:
        """Create a pipe; yield its path and a descriptor that keeps it open until the viewer has it."""
        path = self._directory / f".{name}.pane"
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            yield path, fd
        finally:
            os.close(fd)

    async def start_viewer(
        self, launch: MemberProcessLaunchSpec, terminal: PaneTerminal, env: Mapping[str, str], pipe: int
    ) -> None:
        """Fork the viewer of a member. Raises `ProcessError`."""
        name = launch.launch_args.name
        await self._processes.fork_helper(
            ForkedChildSpec(
                name=f"view-{name}",
                cwd=launch.cwd,
                env={**env, "TERM": terminal.term},
                channel=pipe,
                log=ChildProcessLog(self._directory / f".{name}.pane.log"),
                entry=self._entry,
                arguments=(launch.launch_args.session, name, terminal.path),
            )
        )


class PaneBackend:
    """`members` starts our own processes; `viewer_command` returns the command for their panes.

    `record_process` records foreign programs, which others end if this process is killed; viewers end
    themselves.
    """

    def __init__(
        self,
        panes: TerminalMultiplexer,
        members: MemberBackend,
        viewer_command: Callable[[MemberLaunchArgs], tuple[str, ...]],
        clock: Clock,
        *,
        on_note: Callable[[str], None],
        record_process: Callable[[int], None],
        forked_viewers: ForkedViewers | None = None,
    ) -> None:
        self._panes = panes
        self._members = members
        self._forked_viewers = forked_viewers
        self._viewer_command = viewer_command
        self._clock = clock
        self._note = on_note
        self._record_process = record_process
        self._watch_group: asyncio.TaskGroup | None = None
        self._watchers: set[asyncio.Task[None]] = set()
        self._loss_reported = False

    @property
    def type(self) -> BackendType:
        return self._panes.type

    async def explain_unavailable(self) -> str:
        return await self._members.explain_unavailable() or await self._panes.explain_unavailable()

    async def start_setup(self) -> None:
        await self._members.start_setup()

    async def spawn_member(
        self, launch: MemberProcessLaunchSpec
    ) -> MemberProcessWithPane | ForeignMemberPaneProcess:
        if launch.program:
            argv = (*launch.program, *build_member_launch_flags(launch.launch_args))
            pane = await self._panes.open_pane(
                _build_pane_spec(launch, argv, {**launch.env, **AGENT_ENVIRONMENT_MARKS})
            )
            self._record_process(self._panes.find_pane_pid(pane))
            return ForeignMemberPaneProcess(self._panes, pane, self._clock)
        process = await self._members.spawn_member(launch)
        try:
            return MemberProcessWithPane(process, self._panes, await self._open_viewer_pane(launch))
        except BaseException:
            await process.stop(grace=0.0)
            raise

    def is_process_alive(self, process: MemberProcess) -> bool:
        if isinstance(process, MemberProcessWithPane):
            return self._members.is_process_alive(process.inner)
        return isinstance(process, ForeignMemberPaneProcess) and not process.gone

    async def aclose(self) -> None:
        for watcher in self._watchers:
            watcher.cancel()
        if self._watch_group is not None:
            await exit_task_group_without_wrapping(self._watch_group, None, None, None)
            self._watch_group = None
        try:
            await self._members.aclose()
        finally:
            with suppress(ProcessError):
                await self._panes.aclose()

    async def _open_viewer_pane(self, launch: MemberProcessLaunchSpec) -> str:
        """Open a pane for a member and return its id, or an empty text: the member runs without one."""
        name = launch.launch_args.name
        try:
            pane = await self._open_pane_with_viewer(launch)
        except (ProcessError, OSError) as error:
            self._note(f"{name} is working without a pane because Shoal could not open one: {error}")
            return ""
        self._loss_reported = False
        if self._watch_group is None:
            self._watch_group = asyncio.TaskGroup()
            await self._watch_group.__aenter__()
        watcher = self._watch_group.create_task(self._report_lost_pane(name, pane))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        return pane

    async def _open_pane_with_viewer(self, launch: MemberProcessLaunchSpec) -> str:
        env = {each: value for each, value in launch.env.items() if each in _VIEWER_VARIABLES}
        argv = self._viewer_command(launch.launch_args)
        viewers = self._forked_viewers
        if viewers is None:
            return await self._panes.open_pane(_build_pane_spec(launch, argv, env))
        with viewers.open_pipe(launch.launch_args.name) as (path, pipe):
            words = ("sh", "-c", _VIEWER_SCRIPT, "sh", str(path), str(os.getpid()), *argv)
            pane = await self._panes.open_pane(_build_pane_spec(launch, words, env))
            terminal = self._panes.find_pane_terminal(pane)
            if terminal is not None:
                with suppress(ProcessError):  # the pane runs the command instead
                    await viewers.start_viewer(launch, terminal, env, pipe)
        return pane

    async def _report_lost_pane(self, name: str, pane: str) -> None:
        """Report a lost pane, unless the user closed it."""
        end = await self._panes.wait_for_pane_exit(pane)
        if end.all_gone and not self._loss_reported:
            self._loss_reported = True
            self._note(
                f"{self.type} exited and closed all its panes. The teammates keep running without panes."
            )
        elif end.status:
            self._note(f"The pane that shows {name} failed: {describe_pane_exit(end)}. {name} continues.")


def _build_pane_spec(
    launch: MemberProcessLaunchSpec, argv: tuple[str, ...], env: Mapping[str, str]
) -> PaneSpec:
    return PaneSpec(
        title=launch.launch_args.name,
        color=launch.launch_args.color,
        argv=argv,
        cwd=launch.cwd,
        env={name: value for name, value in env.items() if name not in _TERMINAL_VARIABLES},
        split=launch.split,
    )
