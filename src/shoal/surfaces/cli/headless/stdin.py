"""Standard input: a prompt piped in, or lines of the stream-json protocol."""

from __future__ import annotations

import asyncio
import os
import select
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import click

from shoal.surfaces.terminal.sentences import say

PATIENCE = 1.0
"""Seconds of silence on an open pipe after which a person is told what is waited for."""
CHUNK = 1 << 16


def piped() -> bool:
    """Whether something other than a person at a terminal is on standard input."""
    try:
        return not os.isatty(0) and not _is_null(0)
    except OSError:
        return False  # closed by whoever started us


def read_prompt() -> str:
    """All of standard input as text; what is not UTF-8 is replaced, and that is told."""
    if not select.select([0], [], [], PATIENCE)[0]:
        say("waiting for the prompt on standard input (end it with Ctrl-D, or run with </dev/null)")
    parts = []
    while part := os.read(0, CHUNK):
        parts.append(part)
    return as_text(b"".join(parts), "Standard input")


def with_piped(prompt: str | None) -> str:
    """The prompt, and behind it what is piped in; empty where there is neither."""
    parts = (prompt or "", read_prompt() if piped() else "")
    return "\n\n".join(part for part in parts if part.strip())


def as_text(raw: bytes, what: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        say(f"{what} is not UTF-8 from byte {error.start} on: what cannot be read is replaced by \ufffd")
        return raw.decode(errors="replace")


def argument_text(argument: str) -> str:
    """An argument as text: the system hands over bytes, and they need not be UTF-8."""
    return as_text(os.fsencode(argument), "The prompt")


def text_to_send(argument: str) -> str:
    """What a command is to pass on: its argument, or with `-` all of standard input."""
    said = read_prompt() if argument == "-" else as_text(os.fsencode(argument), "The text")
    if not said.strip():
        raise click.UsageError("There is no text to send.")
    return said


async def lines(fd: int = 0) -> AsyncIterator[bytes]:
    """The lines of a descriptor as they come, without blocking the loop or changing the descriptor's mode."""
    rest = b""
    while chunk := await _chunk(fd):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line
    if rest:
        yield rest


async def _chunk(fd: int) -> bytes:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(fd, ready.set)
    except PermissionError:
        return os.read(fd, CHUNK)  # a regular file: it cannot be waited for and never blocks
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)
    return os.read(fd, CHUNK)


def _is_null(fd: int) -> bool:
    status = os.fstat(fd)
    return stat.S_ISCHR(status.st_mode) and os.path.samestat(status, Path(os.devnull).stat())
