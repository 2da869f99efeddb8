"""Client of a tmux server in control mode: commands, replies and notifications."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from shoal.backends.backend_texts import format_backend_notice
from shoal.core.clock import Clock
from shoal.core.errors import ProcessError
from shoal.core.ports import ProcessLauncher, ProcessLaunchSpec

REPLY_TIMEOUT = 10.0
"""Seconds allowed for tmux to reply to a command; it usually takes a millisecond."""
_DETACH_TIMEOUT = 2.0
_GONE = "tmux is gone: its server ended or detached the client."

# The client ends immediately when its session dies, because its input closes. Only then the guardian sends
# TERM, and the script closes the panes of its owner. It waits in `wait`, which handles a signal immediately;
# a foreground command that is being started may not. If the guardian was killed too, nobody sends TERM: then
# the script looks whether the lead is alive. Without -u, tmux joins the lines in the C locale.
_CLIENT_SCRIPT = r"""
owner=$1; lead=$2; shift 2
tmux=$1; how=$2; where=$3
end() {
  "$tmux" -u "$how" "$where" list-panes -a -f "#{==:#{@shoal_owner},$owner}" -F '
    set-option -q -w -t "#{window_id}" -u pane-border-status
    set-option -q -w -t "#{window_id}" -u pane-border-format
    set-option -q -w -t "#{window_id}" -u main-pane-width
    run-shell -b "kill -s KILL -- -#{pane_pid}"
    kill-pane -t "#{pane_id}"' | "$tmux" "$how" "$where" source-file -
  exit 0
}
trap '' PIPE
trap end TERM
"$@"
echo %exit
for pause in 1 4; do
  sleep "$pause" &
  wait
  kill -s 0 "$lead" 2>/dev/null || end
done
"""


class TmuxCommandError(ProcessError):
    """tmux replied to a command with an error."""


class TmuxDisconnectedError(ProcessError):
    """The client ended before the reply: the server is gone, or detached the client."""


class TmuxCommandReply(Struct, frozen=True):
    lines: tuple[str, ...]
    refused: bool = False
    lost: bool = False


ReplyHandler: TypeAlias = Callable[[TmuxCommandReply], None]


class TmuxControlClient:
    """Handle of one client. `on_notification` is called with the name of each notification."""

    def __init__(
        self,
        input_fd: int,
        output_fd: int,
        *,
        clock: Clock,
        on_notification: Callable[[str], None],
    ) -> None:
        self._input_fd = input_fd
        self._output_fd = output_fd
        self._clock = clock
        self._on_notification = on_notification
        self._loop = asyncio.get_running_loop()
        self._unsent = b""
        self._received = b""
        self._block: tuple[str, list[str]] | None = None
        self._reply_handlers: deque[ReplyHandler] = deque()
        self._gone = asyncio.Event()
        self._attached = asyncio.Event()
        self.last_error = ""
        """Last output that is neither a reply nor a notification, such as why it could not start."""
        for fd in (input_fd, output_fd):
            os.set_blocking(fd, False)
        self._loop.add_reader(output_fd, self._read_available)

    @classmethod
    async def start(
        cls,
        words: Sequence[str],
        processes: ProcessLauncher,
        env: Mapping[str, str],
        *,
        owner: str,
        clock: Clock,
        on_notification: Callable[[str], None],
    ) -> TmuxControlClient:
        """Start a client; `words` are tmux, the server, and the command that attaches to a session."""
        child_stdin, input_end = os.pipe()
        output_end, child_stdout = os.pipe()
        launch = ProcessLaunchSpec(
            argv=("sh", "-c", _CLIENT_SCRIPT, "sh", owner, str(os.getpid()), *words),
            cwd=Path("/"),
            env=env,
            stdin=child_stdin,
            stdout=child_stdout,
            stderr=child_stdout,
        )
        try:
            await processes.start_process(launch)
        except BaseException:
            os.close(input_end)
            os.close(output_end)
            raise
        finally:
            os.close(child_stdin)
            os.close(child_stdout)
        return cls(input_end, output_end, clock=clock, on_notification=on_notification)

    @property
    def is_alive(self) -> bool:
        return not self._gone.is_set()

    async def wait_until_attached(self) -> None:
        """Wait until the client is attached; earlier commands would belong to no session."""
        async with self._clock.deadline(REPLY_TIMEOUT):
            await self._attached.wait()
        if not self.is_alive:
            raise TmuxDisconnectedError(self.last_error or _GONE)

    async def wait_until_disconnected(self) -> None:
        await self._gone.wait()

    def send_command(self, words: Sequence[str], on_reply: ReplyHandler | None = None) -> None:
        """Send a command without waiting; commands run in order. Does nothing if the client is gone."""
        if not self.is_alive:
            return
        self._reply_handlers.append(on_reply or _ignore_tmux_reply)
        self._unsent += " ".join(map(quote_tmux_word, words)).encode("utf-8", "surrogateescape") + b"\n"
        self._write_pending()

    async def run_command(self, *words: str, on_late_reply: ReplyHandler | None = None) -> tuple[str, ...]:
        """Return the lines of the reply. Raises `TmuxCommandError`, or `ProcessError` without a reply.

        `on_late_reply` is called with a reply that arrives after the wait has ended.
        """
        future: asyncio.Future[TmuxCommandReply] = self._loop.create_future()

        def receive_reply(answer: TmuxCommandReply) -> None:
            if not future.done():
                future.set_result(answer)
            elif on_late_reply is not None:
                on_late_reply(answer)

        if not self.is_alive:
            raise TmuxDisconnectedError(_GONE)
        self.send_command(words, receive_reply)
        try:
            async with self._clock.deadline(REPLY_TIMEOUT):
                answer = await future
        except TimeoutError:
            raise ProcessError(format_backend_notice("tmux_silent", command=words[0])) from None
        except asyncio.CancelledError:
            if on_late_reply is not None and future.done() and not future.cancelled():
                on_late_reply(future.result())  # the reply arrived at that moment
            raise
        if answer.lost:
            raise TmuxDisconnectedError(self.last_error or _GONE)
        if answer.refused:
            raise TmuxCommandError(
                format_backend_notice(
                    "tmux_refused", command=words[0], reason=" ".join(answer.lines) or "no reason given"
                )
            )
        return answer.lines

    async def close(self) -> None:
        """Detach from the server; its panes stay."""
        if self.is_alive:
            self.send_command(("detach-client",))
            with suppress(TimeoutError):
                async with self._clock.deadline(_DETACH_TIMEOUT):
                    await self._gone.wait()
        self._mark_disconnected()

    def _write_pending(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._input_fd, self._unsent) :]
        except BlockingIOError:
            self._loop.add_writer(self._input_fd, self._write_pending)
        except OSError:
            self._unsent = b""  # its end shows as the end of its output
        else:
            self._loop.remove_writer(self._input_fd)

    def _read_available(self) -> None:
        try:
            data = os.read(self._output_fd, 1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            if self.is_alive:
                self._process_output_line(line.decode("utf-8", "surrogateescape"))
        if not data:
            self._mark_disconnected()

    def _process_output_line(self, line: str) -> None:
        kind, _, rest = line.partition(" ")
        if self._block is not None:
            reply_id, reply_lines = self._block
            if kind not in ("%end", "%error") or rest != reply_id:
                reply_lines.append(line)
                return
            self._block = None
            # The last digit is 1 for our own commands: hooks and the start of the client have replies too.
            if reply_id.endswith(" 1") and self._reply_handlers:
                self._reply_handlers.popleft()(TmuxCommandReply(tuple(reply_lines), refused=kind == "%error"))
        elif kind == "%begin":
            self._block = rest, []
        elif kind.startswith("%"):
            if kind == "%session-changed":
                self._attached.set()
            elif kind == "%exit":
                self._mark_disconnected()
            self._on_notification(kind)
        elif line.strip():
            self.last_error = line.strip()

    def _mark_disconnected(self) -> None:
        if self._gone.is_set():
            return
        self._gone.set()
        self._attached.set()
        self._loop.remove_reader(self._output_fd)
        self._loop.remove_writer(self._input_fd)
        os.close(self._output_fd)
        os.close(self._input_fd)
        while self._reply_handlers:
            self._reply_handlers.popleft()(TmuxCommandReply((), refused=True, lost=True))


def _ignore_tmux_reply(_: TmuxCommandReply) -> None: ...


def quote_tmux_word(word: str) -> str:
    """Quote one word of a command, whatever it contains."""
    return '"' + "".join(map(_escape_tmux_character, word)) + '"'


def _escape_tmux_character(character: str) -> str:
    # A leading tilde would expand to a home directory, even in quotes.
    if character in '"\\$~' or character < " " or character == "\x7f":
        return f"\\{ord(character):03o}"
    return character
