"""Standard input: a prompt piped in, or lines of the stream-json protocol."""

from __future__ import annotations

import asyncio
import os
import select
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import click

from shoal.surfaces.terminal.user_messages import print_user_message

SILENCE_TIMEOUT = 1.0
"""Seconds of silence on an open pipe before Shoal prints what it is waiting for."""
CHUNK_SIZE = 1 << 16


def is_stdin_piped() -> bool:
    """Return True if standard input is neither a terminal nor /dev/null."""
    try:
        return not os.isatty(0) and not _is_dev_null(0)
    except OSError:
        return False  # closed by our parent


def read_prompt_from_stdin() -> str:
    """Read all of standard input as text; invalid UTF-8 is replaced and reported."""
    if not select.select([0], [], [], SILENCE_TIMEOUT)[0]:
        print_user_message(
            "waiting for the prompt on standard input (end it with Ctrl-D, or run with </dev/null)"
        )
    parts = []
    while part := os.read(0, CHUNK_SIZE):
        parts.append(part)
    return decode_utf8_with_warning(b"".join(parts), "Standard input")


def append_piped_input(prompt: str | None) -> str:
    """Return the prompt followed by the piped input; empty if there is neither."""
    parts = (prompt or "", read_prompt_from_stdin() if is_stdin_piped() else "")
    return "\n\n".join(part for part in parts if part.strip())


def decode_utf8_with_warning(raw: bytes, what: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        print_user_message(
            f"{what} is not valid UTF-8 starting at byte {error.start}; invalid bytes are replaced by �"
        )
        return raw.decode(errors="replace")


def decode_prompt_argument(argument: str) -> str:
    """Decode an argument: the system passes bytes, which need not be UTF-8."""
    return decode_utf8_with_warning(os.fsencode(argument), "The prompt")


def read_text_argument_or_stdin(argument: str) -> str:
    """Return the text that a command sends: its argument, or with `-` all of standard input."""
    text = (
        read_prompt_from_stdin()
        if argument == "-"
        else decode_utf8_with_warning(os.fsencode(argument), "The text")
    )
    if not text.strip():
        raise click.UsageError("There is no text to send.")
    return text


async def read_lines_from_descriptor(fd: int = 0) -> AsyncIterator[bytes]:
    """Yield the lines of a descriptor without blocking the loop or changing the descriptor's mode."""
    rest = b""
    while chunk := await _read_chunk(fd):
        *complete_lines, rest = (rest + chunk).split(b"\n")
        for line in complete_lines:
            yield line
    if rest:
        yield rest


async def _read_chunk(fd: int) -> bytes:
    loop = asyncio.get_running_loop()
    readable_event = asyncio.Event()
    try:
        loop.add_reader(fd, readable_event.set)
    except PermissionError:
        return os.read(fd, CHUNK_SIZE)  # a regular file cannot be polled and never blocks
    try:
        await readable_event.wait()
    finally:
        loop.remove_reader(fd)
    return os.read(fd, CHUNK_SIZE)


def _is_dev_null(fd: int) -> bool:
    status = os.fstat(fd)
    return stat.S_ISCHR(status.st_mode) and os.path.samestat(status, Path(os.devnull).stat())
