"""Runs ripgrep as a child process and reads a bounded part of its output."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from shoal.core.conversation.tools import ToolContext
from shoal.core.ports import ProcessLaunchSpec
from shoal.core.user_environment import get_user_environment

NEVER_SEARCHED = (".git", ".hg", ".svn", ".jj")
_CHUNK = 256 * 1024
_MAX_ERROR_BYTES = 2000


class RipgrepResult(Struct, frozen=True, kw_only=True):
    output: bytes
    error_text: str
    status: int
    truncated: bool
    """True if the output was cut off."""
    left_out: int = 0
    """Number of files removed from the output because a rule makes them unreadable."""


def find_ripgrep(context: ToolContext) -> str | None:
    """Return the path of rg, from PATH or Python's scripts directory, or None."""
    import shutil
    import sysconfig

    found = shutil.which("rg", path=context.env.get("PATH"))
    return found or shutil.which("rg", path=sysconfig.get_path("scripts"))


async def run_ripgrep(
    context: ToolContext, arguments: Sequence[str], *, rg: str, cwd: Path, max_bytes: int
) -> RipgrepResult:
    """Run `rg arguments` and return its output; rg is stopped after `max_bytes`."""
    import tempfile

    read_fd, write_fd = os.pipe()
    temporary = get_user_environment(context.env).temporary_directory
    with os.fdopen(read_fd, "rb", buffering=0) as pipe, tempfile.TemporaryFile(dir=temporary) as error_file:
        try:
            process = await context.processes.start_process(
                ProcessLaunchSpec(
                    # --no-config: the user's own ripgrep settings must not change a tool's results.
                    argv=(rg, "--no-config", *arguments),
                    cwd=cwd,
                    env=context.env,
                    stdout=write_fd,
                    stderr=error_file.fileno(),
                )
            )
        finally:
            os.close(write_fd)
        has_ended = False
        try:
            output = await _read_pipe_up_to_limit(pipe, max_bytes + 1)
            is_truncated = len(output) > max_bytes
            status = await (process.stop(grace=0.1) if is_truncated else process.wait())
            has_ended = True
        finally:
            if not has_ended:
                await process.stop(grace=0.1)
        error_file.seek(0)
        error_text = error_file.read(_MAX_ERROR_BYTES).decode(errors="backslashreplace").strip()
    return RipgrepResult(
        output=output[:max_bytes], error_text=error_text, status=status, truncated=is_truncated
    )


async def _read_pipe_up_to_limit(pipe: object, max_bytes: int) -> bytes:
    reader = asyncio.StreamReader(limit=_CHUNK)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    chunks: list[bytes] = []
    size = 0
    try:
        while size < max_bytes and (chunk := await reader.read(_CHUNK)):
            chunks.append(chunk)
            size += len(chunk)
    finally:
        transport.close()
    return b"".join(chunks)
