"""Transport to an MCP server that is a program: started by the session's guardian, one message per line."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import ExitStack
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from shoal.core.mcp import Program
from shoal.core.ports import Launch, Process
from shoal.tools.mcp.host import Host
from shoal.tools.mcp.sifting import is_unheard

CHUNK = 1 << 16
LONGEST_LINE = 16 << 20
"""Bytes of one message."""
MOST_GARBAGE = 1_000
"""Lines that are not messages."""
LOG_LIMIT = 5 << 20
LEAVING = 1.0
"""Seconds for the program to exit once its input is closed."""


class ProgramTransport:
    """Stdio transport; `on_ended` receives the reason when the program is gone."""

    def __init__(
        self,
        program: Program,
        host: Host,
        *,
        log: Path,
        ended: Callable[[str], None],
        note: Callable[[str], None],
    ) -> None:
        self._program = program
        self._host = host
        self._log = log
        self._ended = ended
        self._note = note
        self._garbage = 0
        self._leaving = False

    async def __aenter__(self) -> Any:
        self._incoming, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, self._outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        self._streams = (self._incoming, incoming, outgoing, self._outgoing)
        try:
            await self._start()
        except BaseException:
            self._close_streams()
            raise
        self._group = await asyncio.TaskGroup().__aenter__()
        self._tasks = [
            self._group.create_task(work) for work in (self._read(), self._write(), self._keep_log())
        ]
        return incoming, outgoing

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving = True
        self._stdin.close()
        try:
            await self._leave()
        finally:
            for task in self._tasks:
                task.cancel()
            await self._group.__aexit__(None, None, None)
            for pipe in (self._stdin, self._stdout_pipe, self._stderr_pipe):
                pipe.close()
            self._close_streams()

    async def _leave(self) -> None:
        try:
            async with self._host.clock.deadline(LEAVING):
                await self._process.wait()
        except TimeoutError:
            pass
        finally:
            # Also after it has exited: child processes may be left.
            await self._process.stop(grace=LEAVING)

    def _close_streams(self) -> None:
        for stream in self._streams:
            stream.close()

    async def _start(self) -> None:
        host, program = self._host, self._program
        cwd = _directory(host.root, program.cwd)
        pipes = [os.pipe() for _ in range(3)]
        (stdin, to_stdin), (from_stdout, stdout), (from_stderr, stderr) = pipes
        ours = [to_stdin, from_stdout, from_stderr]
        try:
            self._process: Process = await host.processes.start(
                Launch(
                    argv=(program.command, *program.args),
                    cwd=cwd,
                    env={**host.env, **program.env},
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                )
            )
        except BaseException:
            for fd in ours:
                os.close(fd)
            raise
        finally:
            for fd in (stdin, stdout, stderr):
                os.close(fd)
        ends = FileIO(to_stdin, "w"), FileIO(from_stdout), FileIO(from_stderr)
        try:
            await self._connect(*ends)
        except BaseException:
            for end in ends:
                end.close()
            await self._process.stop(grace=0)
            raise

    async def _connect(self, stdin: FileIO, stdout: FileIO, stderr: FileIO) -> None:
        self._outflow = _Outflow()
        loop = asyncio.get_running_loop()
        with ExitStack() as undo:
            self._stdin, _ = await loop.connect_write_pipe(lambda: self._outflow, stdin)
            undo.callback(self._stdin.abort)
            self._stdout, self._stdout_pipe = await _reader(stdout)
            undo.callback(self._stdout_pipe.close)
            self._stderr, self._stderr_pipe = await _reader(stderr)
            undo.pop_all()

    async def _read(self) -> None:
        try:
            why = await self._messages()
            if not self._leaving:
                # Before waiting callers learn that no answer will come, so that they get the reason.
                self._ended(why or await self._farewell())
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the receiver is closed
        finally:
            self._incoming.close()
        # It may still write, and must not block before it is stopped.
        while await self._stdout.read(CHUNK):
            pass

    async def _messages(self) -> str:
        """Forward messages until the output ends; return why reading stopped early, or ""."""
        buffer = bytearray()
        while chunk := await self._stdout.read(CHUNK):
            buffer += chunk
            if b"\n" in chunk:
                *lines, buffer = buffer.split(b"\n")
                for line in lines:
                    await self._pass_on(line)
                if self._garbage > MOST_GARBAGE:
                    return f"it wrote more than {MOST_GARBAGE:,} lines that are no messages"
            if len(buffer) > LONGEST_LINE:
                return f"it wrote a line of more than {LONGEST_LINE >> 20} MB"
        return ""

    async def _pass_on(self, line: bytearray) -> None:
        if not line.strip():
            return
        try:
            message = jsonrpc_message_adapter.validate_json(bytes(line), by_name=False)
        except ValueError:
            if not self._garbage:
                shown = line[:80].decode(errors="replace").strip()
                self._note(
                    f"it writes to its standard output what is no message, which is left out: {shown!r}"
                )
            self._garbage += 1
            return
        if not is_unheard(message):
            await self._incoming.send(SessionMessage(message))

    async def _farewell(self) -> str:
        try:
            async with self._host.clock.deadline(LEAVING):
                status = await self._process.wait()
        except TimeoutError:
            return "it closed its standard output"
        return f"exit status {status}" if status >= 0 else f"signal {-status}"

    async def _write(self) -> None:
        try:
            async for each in self._outgoing:
                text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                self._stdin.write(text.encode() + b"\n")
                await self._outflow.room()
        except (OSError, anyio.ClosedResourceError):
            pass
        finally:
            # Senders fail at once instead of waiting for an answer.
            self._outgoing.close()

    async def _keep_log(self) -> None:
        """Log standard error up to a limit; drop the rest, so that the program never blocks."""
        kept = 0
        while chunk := await self._stderr.read(CHUNK):
            if kept >= LOG_LIMIT:
                continue
            kept += len(chunk)
            more = b"\n[more is left out]\n" if kept >= LOG_LIMIT else b""
            try:
                self._log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
                with os.fdopen(os.open(self._log, flags, 0o600), "wb") as file:
                    file.write(chunk + more)
            except OSError:
                kept = LOG_LIMIT


def _directory(root: Path, named: str | None) -> Path:
    return root / Path(named or ".").expanduser()


class _Outflow(asyncio.BaseProtocol):
    """Write flow control of the program's standard input."""

    def __init__(self) -> None:
        self._room = asyncio.Event()
        self._room.set()
        self._lost = False

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._room.set()

    async def room(self) -> None:
        await self._room.wait()
        if self._lost:
            raise BrokenPipeError


async def _reader(pipe: FileIO) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    reader = asyncio.StreamReader(limit=CHUNK)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    return reader, transport
