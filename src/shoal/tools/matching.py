"""Searches text with a pattern of a model's making, in a process that can be ended."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from shoal.core.errors import ProcessError, ShoalError
from shoal.core.ports import Launch, Process
from shoal.core.tools import Site
from shoal.tools.output import Output, Pipe

_LIMIT = 5.0
_SCRIPT = """
import re, sys
try:
    pattern = re.compile(sys.argv[1])
except (re.error, OverflowError, RecursionError) as error:
    sys.exit(f"`filter` is not a regular expression: {error}.")
for line in sys.stdin:
    if pattern.search(line.rstrip("\\n")):
        sys.stdout.write(line)
"""


class BadPattern(ShoalError):
    """The text is for the model."""


async def matching_lines(text: str, pattern: str, site: Site) -> str:
    """A pattern can take for ever to find nothing: so it is not tried in our own process."""
    import tempfile

    found = Output(lambda: Path(os.devnull), limit=2 * len(text) + 1000)
    pipe = Pipe(found.add)
    with tempfile.TemporaryFile() as given:
        given.write(text.encode())
        given.seek(0)
        try:
            process = await site.processes.start(
                Launch(
                    argv=(sys.executable, "-I", "-S", "-X", "utf8", "-c", _SCRIPT, pattern),
                    cwd=Path("/"),
                    env={},
                    stdin=given.fileno(),
                    stdout=pipe.writer,
                    stderr=pipe.writer,
                )
            )
            status = await _ended_in_time(process, site)
        except ProcessError as error:
            raise BadPattern(f"The output could not be searched. {error}") from error
        finally:
            pipe.handed_over()
            pipe.finish()
    found.close()
    if status != 0:
        raise BadPattern(found.text.strip())
    return found.text


async def _ended_in_time(process: Process, site: Site) -> int:
    try:
        async with site.clock.deadline(_LIMIT):
            return await process.wait()
    except TimeoutError:
        raise BadPattern(f"`filter` was not done after {_LIMIT:g} s: use a simpler pattern.") from None
    finally:
        await process.stop(grace=0)
