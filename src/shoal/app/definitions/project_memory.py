"""Notes that were kept about a project, their index, and the settings about instructions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from shoal.app.definitions.instructions import InstructionExclusions
from shoal.app.model_notices import format_session_notice
from shoal.app.settings.project_directories import iter_project_directories
from shoal.app.settings.settings import Settings
from shoal.core.ids import slugify_project_path
from shoal.core.text.control_tags import escape_control_tags

INDEX_NAME = "MEMORY.md"
MAX_LINES = 200
MAX_BYTES = 25_000
_DISABLE_VARIABLE = "CLAUDE_CODE_DISABLE_AUTO_MEMORY"


def find_project_memory_directory(settings: Settings, cwd: Path) -> Path | None:
    """Return the directory of the notes about a project; None if they are off.

    Only the user's own files can name another directory.
    """
    if settings.tool_environment.get(_DISABLE_VARIABLE, "").lower() in ("1", "true", "yes", "on"):
        return None
    for document in settings.documents:
        if isinstance(enabled := document.raw.get("autoMemoryEnabled"), bool):
            if not enabled:
                return None
            break
    for document in settings.documents:
        named = document.raw.get("autoMemoryDirectory")
        if isinstance(named, str) and named and document.is_user_controlled:
            directory = Path(settings.user.expand_home(named))
            return Path(os.path.realpath(directory)) if directory.is_absolute() else None
    root = [*iter_project_directories(cwd)][-1]
    return Path(os.path.realpath(settings.home)) / "projects" / slugify_project_path(str(root)) / "memory"


def read_memory_index(directory: Path) -> str:
    """Return the beginning of the index in a directory of notes; empty if there is none.

    `directory` has no links, and the index must not be one.
    """
    path = directory / INDEX_NAME
    try:
        if os.path.realpath(path) != str(path):
            return f"{INDEX_NAME} is a link and is not shown."
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"Cannot read {INDEX_NAME}: {error.strerror}."
    text = content[:MAX_BYTES].decode("utf-8-sig", errors="replace")
    lines = text.splitlines()
    is_truncated = len(content) > MAX_BYTES or len(lines) > MAX_LINES
    shown_text = "\n".join(lines[:MAX_LINES]).strip()
    if not shown_text:
        return f"{INDEX_NAME} is empty."
    note = format_session_notice("memory_cut", index=INDEX_NAME, lines=MAX_LINES, bytes=f"{MAX_BYTES:,}")
    suffix = f"\n\n{note}" if is_truncated else ""
    return f"{INDEX_NAME}:\n\n{escape_control_tags(shown_text)}{suffix}"


def read_instruction_exclusions(settings: Settings) -> InstructionExclusions:
    """Return the patterns of `claudeMdExcludes` of all settings files."""
    patterns: dict[bool, list[str]] = {True: [], False: []}
    for document in settings.documents:
        patterns[document.is_user_controlled] += _list_texts(document.raw.get("claudeMdExcludes"))
    return InstructionExclusions(
        person=tuple(patterns[True]), project=tuple(patterns[False]), user=settings.user
    )


def _list_texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
