"""Filters lines with a regular expression written by a model."""

from __future__ import annotations

from shoal.core.errors import ProcessError, ShoalError
from shoal.core.tools import ToolContext
from shoal.tools.python_subprocess import PythonSubprocessTimeoutError, run_python_subprocess

_TIMEOUT = 5.0
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


class InvalidRegexError(ShoalError):
    """The regular expression is invalid or too slow; the text is for the model."""


async def filter_lines_by_regex(text: str, pattern: str, context: ToolContext) -> str:
    """Return the lines that match. Runs in a subprocess, because a pattern can take forever."""
    try:
        status, output = await run_python_subprocess(
            ("-c", _SCRIPT, pattern), text, context, seconds=_TIMEOUT
        )
    except PythonSubprocessTimeoutError:
        raise InvalidRegexError(
            f"`filter` was not done after {_TIMEOUT:g} s: use a simpler pattern."
        ) from None
    except ProcessError as error:
        raise InvalidRegexError(f"The output could not be searched. {error}") from error
    if status != 0:
        raise InvalidRegexError(output.strip())
    return output
