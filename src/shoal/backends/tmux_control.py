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

from shoal.core.clock import Clock
from shoal.core.errors import ProcessError
from shoal.core.ports import Launch, Processes

ANSWERING = 10.0
"""Seconds for tmux to reply to a command; it usually takes a millisecond."""
_ENDING = 2.0
_GONE = "tmux is gone: its server ended, or let the client go."

# The client ends immediately when its session dies, because its input closes. Only then the guardian sends
# TERM, and the script closes the panes of its owner. It waits in `wait`, which handles a signal immediately;
# a foreground command that is being started may not.
_KEEPER = r"""
owner=$1; shift
tmux=$1; how=$2; where=$3
end() {
  "$tmux" "$how" "$where" list-panes -a -f "#{==:#{@shoal_owner},$owner}" -F '
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
sleep 5 &
wait
"""


class TmuxRefused(ProcessError):
    """tmux replied to a command with an error."""


class TmuxLost(ProcessError):
    """The client ended before the reply: the server is gone, or detached the client."""


class Answer(Struct, frozen=True):
    lines: tuple[str, ...]
    refused: bool = False
    lost: bool = False


Hear: TypeAlias = Callable[[Answer], None]


class TmuxControl:
    """Handle of one client. `on_notification` is called with the name of each notification."""

    def __init__(
        self,
        orders: int,
        news: int,
        *,
        clock: Clock,
        noticed: Callable[[str], None],
    ) -> None:
        self._orders = orders
        self._news = news
        self._clock = clock
        self._noticed = noticed
        self._loop = asyncio.get_running_loop()
        self._unsent = b""
        self._heard = b""
        self._block: tuple[str, list[str]] | None = None
        self._waiting: deque[Hear] = deque()
        self._gone = asyncio.Event()
        self._settled = asyncio.Event()
        self.complaint = ""
        """Last output that is neither a reply nor a notification, such as why it could not start."""
        for fd in (orders, news):
            os.set_blocking(fd, False)
        self._loop.add_reader(news, self._read)

    @classmethod
    async def start(
        cls,
        words: Sequence[str],
        processes: Processes,
        env: Mapping[str, str],
        *,
        owner: str,
        clock: Clock,
        noticed: Callable[[str], None],
    ) -> TmuxControl:
        """Start a client; `words` are tmux, the server, and the command that attaches to a session."""
        theirs_in, orders = os.pipe()
        news, theirs_out = os.pipe()
        launch = Launch(
            argv=("sh", "-c", _KEEPER, "sh", owner, *words),
            cwd=Path("/"),
            env=env,
            stdin=theirs_in,
            stdout=theirs_out,
            stderr=theirs_out,
        )
        try:
            await processes.start(launch)
        except BaseException:
            os.close(orders)
            os.close(news)
            raise
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        return cls(orders, news, clock=clock, noticed=noticed)

    @property
    def alive(self) -> bool:
        return not self._gone.is_set()

    async def attached(self) -> None:
        """Wait until the client is attached; earlier commands would belong to no session."""
        async with self._clock.deadline(ANSWERING):
            await self._settled.wait()
        if not self.alive:
            raise TmuxLost(self.complaint or _GONE)

    async def gone(self) -> None:
        await self._gone.wait()

    def send(self, words: Sequence[str], hear: Hear | None = None) -> None:
        """Send a command without waiting; commands run in order. Does nothing if the client is gone."""
        if not self.alive:
            return
        self._waiting.append(hear or _unheard)
        self._unsent += os.fsencode(" ".join(map(quoted, words))) + b"\n"
        self._write()

    async def ask(self, *words: str, late: Hear | None = None) -> tuple[str, ...]:
        """Return the lines of the reply. Raises `TmuxCommandError`, or `ProcessError` without a reply.

        `on_late_reply` is called with a reply that arrives after the wait has ended.
        """
        answered: asyncio.Future[Answer] = self._loop.create_future()

        def hear(answer: Answer) -> None:
            if not answered.done():
                answered.set_result(answer)
            elif late is not None:
                late(answer)

        if not self.alive:
            raise TmuxLost(_GONE)
        self.send(words, hear)
        try:
            async with self._clock.deadline(ANSWERING):
                answer = await answered
        except TimeoutError:
            raise ProcessError(f"tmux does not answer {words[0]}. Look whether its server hangs.") from None
        except asyncio.CancelledError:
            if late is not None and answered.done() and not answered.cancelled():
                late(answered.result())  # the reply arrived at that moment
            raise
        if answer.lost:
            raise TmuxLost(self.complaint or _GONE)
        if answer.refused:
            raise TmuxRefused(f"tmux refuses {words[0]}: {' '.join(answer.lines) or 'no reason is told'}.")
        return answer.lines

    async def close(self) -> None:
        """Detach from the server; its panes stay."""
        if self.alive:
            self.send(("detach-client",))
            with suppress(TimeoutError):
                async with self._clock.deadline(_ENDING):
                    await self._gone.wait()
        self._end()

    def _write(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._orders, self._unsent) :]
        except BlockingIOError:
            self._loop.add_writer(self._orders, self._write)
        except OSError:
            self._unsent = b""  # its end shows as the end of its output
        else:
            self._loop.remove_writer(self._orders)

    def _read(self) -> None:
        try:
            data = os.read(self._news, 1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            if self.alive:
                self._take(line.decode("utf-8", "surrogateescape"))
        if not data:
            self._end()

    def _take(self, line: str) -> None:
        kind, _, rest = line.partition(" ")
        if self._block is not None:
            mark, said = self._block
            if kind not in ("%end", "%error") or rest != mark:
                said.append(line)
                return
            self._block = None
            # The last digit is 1 for our own commands: hooks and the start of the client have replies too.
            if mark.endswith(" 1") and self._waiting:
                self._waiting.popleft()(Answer(tuple(said), refused=kind == "%error"))
        elif kind == "%begin":
            self._block = rest, []
        elif kind.startswith("%"):
            if kind == "%session-changed":
                self._settled.set()
            elif kind == "%exit":
                self._end()
            self._noticed(kind)
        elif line.strip():
            self.complaint = line.strip()

    def _end(self) -> None:
        if self._gone.is_set():
            return
        self._gone.set()
        self._settled.set()
        self._loop.remove_reader(self._news)
        self._loop.remove_writer(self._orders)
        os.close(self._news)
        os.close(self._orders)
        while self._waiting:
            self._waiting.popleft()(Answer((), refused=True, lost=True))


def _unheard(_: Answer) -> None: ...


def quoted(word: str) -> str:
    """Quote one word of a command, whatever it contains."""
    return '"' + "".join(map(_escaped, word)) + '"'


def _escaped(character: str) -> str:
    # A leading tilde would expand to a home directory, even in quotes.
    if character in '"\\$~' or character < " " or character == "\x7f":
        return f"\\{ord(character):03o}"
    return character
