"""Shell tools: run a command, read background output, stop background commands."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import Annotated

from msgspec import Meta

from shoal.core.errors import ProcessError
from shoal.core.filenames import shown
from shoal.core.ports import Process
from shoal.core.tools import Outcome, Site, Tool, failed
from shoal.tools.commands import follow
from shoal.tools.define import tool
from shoal.tools.matching import matching_lines
from shoal.tools.output import Output, Pipe
from shoal.tools.shells import Shell, Shells

DEFAULT_TIMEOUT = 120_000
LONGEST_TIMEOUT = 600_000
_GRACE = 0.5
_DYING = 2.0
"""Seconds to wait for processes that a sandboxed command left running; they exit within a millisecond."""
_WALLS = ("Read-only file system", "EROFS")
CONFINED = (
    "The command ran in a sandbox: it can write in the project, granted directories and $TMPDIR alone. "
    'A person can open more of it in settings.json: {"shoal": {"sandbox": {"writable": ["~/.cache"]}}}.'
)
_PROGRESS_EVERY = 0.2


def shell_tools(shells: Shells) -> tuple[Tool, ...]:
    return (_bash(shells), _bash_output(shells), _kill_shell(shells))


def _bash(shells: Shells) -> Tool:
    @tool(name="Bash", deadline=None)
    async def bash(
        command: Annotated[str, "The command line. It may have several lines."],
        site: Site,
        description: Annotated[str, "What it does, in five to ten words, for the person who watches."] = "",
        timeout: Annotated[  # noqa: ASYNC109 - the name models know
            int,
            Meta(ge=1, le=LONGEST_TIMEOUT),
            f"Milliseconds until it is ended; {DEFAULT_TIMEOUT} unless told, {LONGEST_TIMEOUT} at most.",
        ] = DEFAULT_TIMEOUT,
        run_in_background: Annotated[  # noqa: FBT002 - passed by keyword only
            bool, "Return at once and let it run: for servers and long jobs. BashOutput shows what it writes."
        ] = False,
    ) -> Outcome:
        """Run a command in the person's shell, without a terminal and with nothing on its input.

        Each call is a new shell. It starts in the directory where the last one ended, as long as that is
        inside the project; variables and functions set in one call are not there in the next. Output and
        errors come back together; where they are long the middle is cut out and the whole is in a file you
        can Read. What a command leaves running may end with it: for servers and long jobs there is
        run_in_background. Programs that ask questions or need a terminal do not work here: give their
        answers as options. To find, read or change files, the tools made for that are better than shell
        commands.
        """
        if not command.strip():
            return failed("The command is empty.")
        if "\0" in command:
            return failed("The command holds a NUL byte, which no command line can. Write it as \\0.")
        moved = _back_to_existing(site)
        try:
            if run_in_background:
                return _in_background(await shells.run_in_background(command, site))
            return await _Call(shells, site, moved).run(command, timeout / 1000)
        except ProcessError as error:
            return failed(f"The command was not run to its end. {error}")

    return bash


class _Call:
    """One command in the foreground."""

    def __init__(self, shells: Shells, site: Site, note: str) -> None:
        self._commands = shells.commands
        self._site = site
        self._output = Output(lambda: site.results.keep(f"{site.call_id}.txt", b""))
        self._notes = [note] if note else []

    async def run(self, command: str, seconds: float) -> Outcome:
        directory_file = self._commands.directory_file()
        pipe = Pipe(self._output.add)
        try:
            try:
                process = await self._commands.start(
                    command, self._site, pipe.writer, directory_file=directory_file
                )
            finally:
                pipe.handed_over()
            status = await self._watched(process, seconds)
            if self._commands.leave_nothing(self._site):
                await pipe.let_go(_DYING)
            held = pipe.finish()
            if status is None:
                self._notes.append(f"The command was ended after its time limit of {seconds:g} s.")
            else:
                self._notes.append(follow(directory_file, self._site))
                if held:
                    self._notes.append(
                        "A process it started still runs; what that writes from now on is lost. "
                        "For servers and long jobs use run_in_background."
                    )
            return self._outcome(status)
        finally:
            pipe.finish()
            self._output.close()
            directory_file.unlink(missing_ok=True)

    async def _watched(self, process: Process, seconds: float) -> int | None:
        """Return the exit status, or None if the command timed out."""
        try:
            async with asyncio.TaskGroup() as tasks:
                telling = tasks.create_task(self._tell_progress())
                ended = await self._ended(process, seconds)
                telling.cancel()
        except BaseException:
            # Usually a cancellation. A second one turns this stop into a KILL.
            with contextlib.suppress(ProcessError):
                await process.stop(grace=_GRACE)
            raise
        if isinstance(ended, ProcessError):
            raise ended
        return ended

    async def _ended(self, process: Process, seconds: float) -> int | ProcessError | None:
        """Return a `ProcessError` instead of raising it: a task group would wrap it in an exception group."""
        try:
            async with self._site.clock.deadline(seconds):
                return await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessError):
                await process.stop(grace=_GRACE)
            return None
        except ProcessError as error:
            return error

    async def _tell_progress(self) -> None:
        while True:
            await self._output.grown.wait()
            self._output.grown.clear()
            await self._site.progress(self._output.last_line())
            await self._site.clock.sleep(_PROGRESS_EVERY)

    def _outcome(self, status: int | None) -> Outcome:
        self._output.add(b"", final=True)
        if status:
            self._notes.append(_ended(status))
        text = self._output.text.strip("\n") or "(no output)"
        if status and self._commands.are_confined(self._site) and any(mark in text for mark in _WALLS):
            self._notes.append(CONFINED)
        notes = [f"[{note}]" for note in self._notes if note]
        return Outcome(
            content="\n".join([text, *notes]),
            is_error=status != 0,
            data={
                "exit_code": status,
                "timed_out": status is None,
                "cwd": shown(self._site.workspace.cwd),
                "output_file": None if self._output.file is None else str(self._output.file),
            },
        )


def _bash_output(shells: Shells) -> Tool:
    @tool(name="BashOutput", reads_only=True, deadline=10)
    async def bash_output(
        bash_id: Annotated[str, "The id that Bash gave."],
        site: Site,
        filter: Annotated[  # noqa: A002 - the name models know
            str | None, "A regular expression (Python): only lines in which it is found are shown."
        ] = None,
    ) -> Outcome:
        """Show what a background command wrote since you last looked, and whether it still runs."""
        shell = shells.find(bash_id)
        if shell is None:
            return failed(_unknown(bash_id, shells))
        if filter is None:
            fresh = shell.fresh()
        else:
            fresh = await shell.sifted(lambda text: matching_lines(text, filter, site))
        shells.seen(shell, site)
        return Outcome(
            content=f"{fresh.strip(chr(10)) or '(nothing new)'}\n[{_state(shell)}]",
            data={"status": shell.status, "exit_code": shell.exit_code},
        )

    return bash_output


def _kill_shell(shells: Shells) -> Tool:
    @tool(name="KillShell", deadline=10)
    async def kill_shell(shell_id: Annotated[str, "The id that Bash gave."], site: Site) -> Outcome:
        """End a background command and everything it started."""
        shell = shells.find(shell_id)
        if shell is None:
            return failed(_unknown(shell_id, shells))
        if shell.status != "running":
            return failed(f"There is nothing to end: {_state(shell)}")
        await shell.stop(f"it was stopped by {site.agent.name}", by=site.agent.agent)
        return Outcome(content=_state(shell))

    return kill_shell


def _back_to_existing(site: Site) -> str:
    """Move to the project root if the working directory was deleted; return a note about it."""
    gone = site.workspace.cwd
    if gone.is_dir():
        return ""
    site.workspace.move(site.workspace.root)
    return f"{shown(gone)} is gone: the working directory is {shown(site.workspace.cwd)}."


def _in_background(shell: Shell) -> Outcome:
    where = shown(shell.file) if shell.file else f"nowhere ({shell.output.where()})"
    return Outcome(
        content=f"Runs in the background as {shell.id}. Its output goes to {where}. "
        f"BashOutput shows what is new, KillShell ends it. A notification tells you of its end.",
        data={"shell_id": shell.id, "output_file": str(shell.file) if shell.file else None},
    )


def _state(shell: Shell) -> str:
    if shell.status == "running":
        return f"{shell.id} still runs."
    if shell.status == "lost":
        return f"{shell.id} was lost. {shell.trouble}"
    if shell.status == "stopped":
        return f"{shell.id} was ended on request. {shell.trouble}".rstrip()
    return f"{shell.id} has ended. {_ended(shell.exit_code or 0)}"


def _ended(status: int) -> str:
    if status >= 0:
        return f"Exit code {status}."
    try:
        return f"Ended by the signal {signal.Signals(-status).name}."
    except ValueError:
        return f"Ended by the signal {-status}."


def _unknown(identity: str, shells: Shells) -> str:
    known = ", ".join(f"{shell.id} ({shell.status})" for shell in shells.list())
    there_are = f"There are: {known}." if known else "There are none."
    return f"There is no background command {identity!r}. {there_are}"
