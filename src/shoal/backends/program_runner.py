"""Runs small programs to completion for their output."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping, Sequence

from msgspec import Struct

from shoal.backends.backend_texts import format_backend_notice
from shoal.core.clock import Clock
from shoal.core.errors import ProcessError

RUN_TIMEOUT = 10.0


class ProgramRunResult(Struct, frozen=True, kw_only=True):
    status: int
    out: str
    err: str


async def run_program(
    words: Sequence[str], env: Mapping[str, str], clock: Clock, *, seconds: float = RUN_TIMEOUT
) -> ProgramRunResult:
    """Run a program. Raises `ProcessError` if it cannot start or takes longer than `seconds`."""
    try:
        process = await asyncio.create_subprocess_exec(
            *words, env=env, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
    except OSError as error:
        raise ProcessError(
            format_backend_notice("cannot_run", program=words[0], error=error.strerror)
        ) from error
    try:
        async with clock.deadline(seconds):
            out, err = await process.communicate()
    except TimeoutError:
        raise ProcessError(
            format_backend_notice("too_slow", program=words[0], action=words[1], seconds=f"{seconds:.0f}")
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return ProgramRunResult(
        status=process.returncode or 0, out=out.decode(errors="replace"), err=err.decode(errors="replace")
    )
