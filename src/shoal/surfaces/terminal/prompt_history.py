"""History of prompts: one JSON string per line, readable only by this user."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from shoal.stores.files.home.home_paths import read_state_file

MAX_ENTRIES = 1_000
_decode = msgspec.json.Decoder(str).decode


def read_prompt_history(path: Path) -> list[str]:
    try:
        content = read_state_file(path)
    except OSError:
        return []
    texts: list[str] = []
    for line in content.splitlines()[-MAX_ENTRIES:]:
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            texts.append(_decode(line))
    return texts


def append_prompt_history(path: Path, text: str) -> None:
    """Append a prompt. A history that cannot be written is ignored."""
    with suppress(OSError, UnicodeEncodeError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, msgspec.json.encode(text) + b"\n")
        finally:
            os.close(fd)


def prepend_to_draft(text: str, draft: str) -> str:
    """Put the text before the half-typed draft, so that neither is lost."""
    return f"{text}\n{draft}" if draft else text
