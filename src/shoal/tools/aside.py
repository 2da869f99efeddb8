"""Runs Python in a subprocess that can be killed, for work on untrusted text that might never finish."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from shoal.core.errors import ProcessError
from shoal.core.ports import Launch, Process
from shoal.core.tools import Site
from shoal.tools.output import Pipe
from shoal.tools.plaintext import plain

_LARGEST = 32 * 1024 * 1024


class TooSlow(ProcessError):
    """The subprocess was killed at its deadline."""


async def done_aside(arguments: Sequence[str], text: str, site: Site, *, seconds: float) -> tuple[int, str]:
    """Run Python (standard library only) with `text` as its input; return its exit status and output.

    Raises `SubprocessTimeout` or another `ProcessError`.
    """
    import tempfile

    written = bytearray()
    pipe = Pipe(lambda data: written.extend(data[: _LARGEST - len(written)]))
    try:
        with tempfile.TemporaryFile() as given:
            given.write(text.encode(errors="replace"))
            given.seek(0)
            try:
                process = await site.processes.start(
                    Launch(
                        argv=(sys.executable, "-I", "-S", "-X", "utf8", *arguments),
                        cwd=Path("/"),
                        env={},
                        stdin=given.fileno(),
                        stdout=pipe.writer,
                        stderr=pipe.writer,
                    )
                )
            finally:
                pipe.handed_over()
            status = await _ended_in_time(process, site, seconds)
    finally:
        pipe.finish()
    return status, plain(bytes(written))


async def _ended_in_time(process: Process, site: Site, seconds: float) -> int:
    try:
        async with site.clock.deadline(seconds):
            return await process.wait()
    except TimeoutError:
        raise TooSlow(f"It was not done after {seconds:g} s.") from None
    finally:
        await process.stop(grace=0)
