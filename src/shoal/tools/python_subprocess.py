"""Runs Python in a subprocess that can be killed, for work on untrusted text that might never finish."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from shoal.core.conversation.tools import ToolContext
from shoal.core.errors import ProcessError
from shoal.core.ports import ChildProcessHandle, ProcessLaunchSpec
from shoal.core.user_environment import get_user_environment
from shoal.tools.command_output import CommandOutputPipe
from shoal.tools.terminal_text import decode_terminal_text
from shoal.tools.tool_texts import format_tool_text

_MAX_OUTPUT_BYTES = 32 * 1024 * 1024


class PythonSubprocessTimeoutError(ProcessError):
    """The subprocess was killed at its deadline."""


async def run_python_subprocess(
    arguments: Sequence[str], text: str, context: ToolContext, *, seconds: float
) -> tuple[int, str]:
    """Run Python (standard library only) with `text` as its input; return its exit status and output.

    Raises `PythonSubprocessTimeoutError` or another `ProcessError`.
    """
    import tempfile

    output = bytearray()
    pipe = CommandOutputPipe(lambda data: output.extend(data[: _MAX_OUTPUT_BYTES - len(output)]))
    try:
        with tempfile.TemporaryFile(dir=get_user_environment(context.env).temporary_directory) as input_file:
            input_file.write(text.encode(errors="replace"))
            input_file.seek(0)
            try:
                process = await context.processes.start_process(
                    ProcessLaunchSpec(
                        argv=(sys.executable, "-I", "-S", "-X", "utf8", *arguments),
                        cwd=Path("/"),
                        env={},
                        stdin=input_file.fileno(),
                        stdout=pipe.writer,
                        stderr=pipe.writer,
                    )
                )
            finally:
                pipe.close_writer()
            status = await _wait_until_deadline(process, context, seconds)
    finally:
        pipe.read_rest_and_close()
    return status, decode_terminal_text(bytes(output))


async def _wait_until_deadline(process: ChildProcessHandle, context: ToolContext, seconds: float) -> int:
    try:
        async with context.clock.deadline(seconds):
            return await process.wait()
    except TimeoutError:
        raise PythonSubprocessTimeoutError(
            format_tool_text("WebFetch", "slow_process", seconds=f"{seconds:g}")
        ) from None
    finally:
        await process.stop(grace=0)
