"""Transport to an MCP server that is a program: started by the session's guardian, one message per line."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from contextlib import ExitStack
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from shoal.core.extensions.mcp_servers import McpStdioConfig
from shoal.core.ports import ChildProcessHandle, ProcessLaunchSpec
from shoal.core.user_environment import get_user_environment
from shoal.tools.mcp.client_context import McpClientContext
from shoal.tools.mcp.filtering_transport import is_ignored_mcp_notification

CHUNK = 1 << 16
MAX_LINE_BYTES = 16 << 20
"""Maximum number of bytes in one message. The call whose answer is longer fails; the server stays."""
MAX_SKIPPED_BYTES = 64 << 20
"""Maximum number of bytes of a longer message; after more, the line is taken for endless."""
_EDGE_BYTES = 512
"""Number of bytes at the start and at the end of a long message in which its id is searched."""
_ID = rb'"id"\s*:\s*(\d{1,18}|"[^"\\]{1,100}")'
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"'
_ID_AT_START = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb"\s*,\s*)?" + _ID)
_ID_AT_END = re.compile(_ID + rb"\s*(?:,\s*" + _VERSION + rb"\s*)?\}\s*$")
MAX_GARBAGE_LINES = 1_000
"""Maximum number of lines that are not messages."""
MAX_LOG_BYTES = 5 << 20
EXIT_TIMEOUT = 1.0
"""Seconds allowed for the program to exit once its input is closed."""


class McpStdioTransport:
    """Stdio transport; `on_ended` receives the reason when the program is gone."""

    def __init__(
        self,
        program: McpStdioConfig,
        client_context: McpClientContext,
        *,
        log: Path,
        on_ended: Callable[[str], None],
        note: Callable[[str], None],
    ) -> None:
        self._program = program
        self._client_context = client_context
        self._log = log
        self._on_ended = on_ended
        self._note = note
        self._garbage_lines = 0
        self._is_closing = False

    async def __aenter__(self) -> Any:
        self._incoming, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, self._outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        self._streams = (self._incoming, incoming, outgoing, self._outgoing)
        try:
            await self._start_process()
        except BaseException:
            self._close_streams()
            raise
        self._group = await asyncio.TaskGroup().__aenter__()
        self._tasks = [
            self._group.create_task(work)
            for work in (
                self._read_standard_output(),
                self._write_standard_input(),
                self._log_standard_error(),
            )
        ]
        return incoming, outgoing

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closing = True
        self._stdin.close()
        try:
            await self._wait_for_exit_or_stop()
        finally:
            for task in self._tasks:
                task.cancel()
            await self._group.__aexit__(None, None, None)
            for pipe in (self._stdin, self._stdout_pipe, self._stderr_pipe):
                pipe.close()
            self._close_streams()

    async def _wait_for_exit_or_stop(self) -> None:
        try:
            async with self._client_context.clock.deadline(EXIT_TIMEOUT):
                await self._process.wait()
        except TimeoutError:
            pass
        finally:
            # Also after it has exited: child processes may be left.
            await self._process.stop(grace=EXIT_TIMEOUT)

    def _close_streams(self) -> None:
        for stream in self._streams:
            stream.close()

    async def _start_process(self) -> None:
        client_context, program = self._client_context, self._program
        cwd = client_context.root / get_user_environment(client_context.env).expand_home(program.cwd or ".")
        pipes = [os.pipe() for _ in range(3)]
        (stdin, to_stdin), (from_stdout, stdout), (from_stderr, stderr) = pipes
        own_descriptors = [to_stdin, from_stdout, from_stderr]
        try:
            self._process: ChildProcessHandle = await client_context.processes.start_process(
                ProcessLaunchSpec(
                    argv=(program.command, *program.args),
                    cwd=cwd,
                    env={**client_context.env, **program.env},
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                )
            )
        except BaseException:
            for fd in own_descriptors:
                os.close(fd)
            raise
        finally:
            for fd in (stdin, stdout, stderr):
                os.close(fd)
        pipe_files = FileIO(to_stdin, "w"), FileIO(from_stdout), FileIO(from_stderr)
        try:
            await self._connect_pipes(*pipe_files)
        except BaseException:
            for pipe_file in pipe_files:
                pipe_file.close()
            await self._process.stop(grace=0)
            raise

    async def _connect_pipes(self, stdin: FileIO, stdout: FileIO, stderr: FileIO) -> None:
        self._flow_control = _McpStdinWriteFlowControl()
        loop = asyncio.get_running_loop()
        with ExitStack() as cleanup:
            self._stdin, _ = await loop.connect_write_pipe(lambda: self._flow_control, stdin)
            cleanup.callback(self._stdin.abort)
            self._stdout, self._stdout_pipe = await _open_pipe_reader(stdout)
            cleanup.callback(self._stdout_pipe.close)
            self._stderr, self._stderr_pipe = await _open_pipe_reader(stderr)
            cleanup.pop_all()

    async def _read_standard_output(self) -> None:
        try:
            reason = await self._read_messages()
            if not self._is_closing:
                # Before waiting callers learn that no answer will come, so that they get the reason.
                self._on_ended(reason or await self._describe_program_exit())
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the receiver is closed
        finally:
            self._incoming.close()
        # It may still write, and must not block before it is stopped.
        while await self._stdout.read(CHUNK):
            pass

    async def _read_messages(self) -> str:
        """Forward messages until the output ends; return why reading stopped early, or ""."""
        buffer = bytearray()
        skipped = 0
        """Number of bytes of the current line that were dropped between its two ends."""
        while chunk := await self._stdout.read(CHUNK):
            buffer += chunk
            if b"\n" in chunk:
                *lines, rest = buffer.split(b"\n")
                for number, line in enumerate(lines):
                    if skipped and not number:
                        await self._refuse_long_message(line)
                    else:
                        await self._forward_message(line)
                buffer, skipped = rest, 0
                if self._garbage_lines > MAX_GARBAGE_LINES:
                    return f"it wrote more than {MAX_GARBAGE_LINES:,} lines that are not messages"
            if skipped or len(buffer) > MAX_LINE_BYTES:
                length = len(buffer)
                del buffer[_EDGE_BYTES:-_EDGE_BYTES]
                skipped += length - len(buffer)
                if skipped > MAX_SKIPPED_BYTES:
                    return f"it wrote a line of more than {MAX_SKIPPED_BYTES >> 20} MB"
        return ""

    async def _refuse_long_message(self, edges: bytearray) -> None:
        """Answer the call of a message that was too long with an error."""
        found = _ID_AT_START.match(edges) or _ID_AT_END.search(edges)
        self._note(f"it sent a message of more than {MAX_LINE_BYTES >> 20} MB, which is ignored")
        if found is not None:
            error = f'{{"code":-32000,"message":"The answer is longer than {MAX_LINE_BYTES >> 20} MB."}}'
            answer = b'{"jsonrpc":"2.0","id":%s,"error":%s}' % (found[1], error.encode())
            await self._incoming.send(
                SessionMessage(jsonrpc_message_adapter.validate_json(answer, by_name=False))
            )

    async def _forward_message(self, line: bytearray) -> None:
        if not line.strip():
            return
        try:
            message = jsonrpc_message_adapter.validate_json(bytes(line), by_name=False)
        except ValueError:
            if not self._garbage_lines:
                excerpt = line[:80].decode(errors="replace").strip()
                self._note(
                    f"its standard output contains a line that is not a message and is ignored: {excerpt!r}"
                )
            self._garbage_lines += 1
            return
        if not is_ignored_mcp_notification(message):
            await self._incoming.send(SessionMessage(message))

    async def _describe_program_exit(self) -> str:
        try:
            async with self._client_context.clock.deadline(EXIT_TIMEOUT):
                status = await self._process.wait()
        except TimeoutError:
            return "it closed its standard output"
        return f"exit status {status}" if status >= 0 else f"signal {-status}"

    async def _write_standard_input(self) -> None:
        try:
            async for item in self._outgoing:
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                self._stdin.write(text.encode() + b"\n")
                await self._flow_control.wait_until_writable()
        except (OSError, anyio.ClosedResourceError):
            pass
        finally:
            # Senders fail at once instead of waiting for an answer.
            self._outgoing.close()

    async def _log_standard_error(self) -> None:
        """Log standard error up to a limit; drop the rest, so that the program never blocks."""
        logged = 0
        while chunk := await self._stderr.read(CHUNK):
            if logged >= MAX_LOG_BYTES:
                continue
            logged += len(chunk)
            notice = b"\n[more is left out]\n" if logged >= MAX_LOG_BYTES else b""
            try:
                self._log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
                with os.fdopen(os.open(self._log, flags, 0o600), "wb") as file:
                    file.write(chunk + notice)
            except OSError:
                logged = MAX_LOG_BYTES


class _McpStdinWriteFlowControl(asyncio.BaseProtocol):
    """Write flow control of the program's standard input."""

    def __init__(self) -> None:
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._is_lost = False

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._can_write.set()

    async def wait_until_writable(self) -> None:
        await self._can_write.wait()
        if self._is_lost:
            raise BrokenPipeError


async def _open_pipe_reader(pipe: FileIO) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    reader = asyncio.StreamReader(limit=CHUNK)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    return reader, transport
