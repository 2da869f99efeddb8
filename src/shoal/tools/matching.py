"""Filters lines with a regular expression written by a model."""

from __future__ import annotations

from shoal.core.errors import ProcessError, ShoalError
from shoal.core.tools import Site
from shoal.tools.aside import TooSlow, done_aside

_LIMIT = 5.0
_SCRIPT = r"""
import re, sys
try:
    pattern = re.compile(sys.argv[1])
except (re.error, OverflowError, RecursionError) as error:
    sys.exit(f"`filter` is not a regular expression: {error}.")
for line in sys.stdin:
    if pattern.search(line.rstrip("\n")):
        sys.stdout.write(line)
"""


class BadPattern(ShoalError):
    """The regular expression is invalid or too slow; the text is for the model."""


async def matching_lines(text: str, pattern: str, site: Site) -> str:
    """Return the lines that match. Runs in a subprocess, because a pattern can take forever."""
    try:
        status, found = await done_aside(("-c", _SCRIPT, pattern), text, site, seconds=_LIMIT)
    except TooSlow:
        raise BadPattern(f"`filter` was not done after {_LIMIT:g} s: use a simpler pattern.") from None
    except ProcessError as error:
        raise BadPattern(f"The output could not be searched. {error}") from error
    if status != 0:
        raise BadPattern(found.strip())
    return found
