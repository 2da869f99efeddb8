"""A home directory and a project as an earlier commit of Shoal left them (`tests/old_home/write_home.py`)."""

from __future__ import annotations

import os
import re
import tarfile
import time
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

ARCHIVE = Path(__file__).parents[1] / "old_home" / "home.tar.gz"
WRITTEN_AT = "/tmp/shoal-old-home"
WORKTREES = "tmp-shoal-old-home-project-04901ca8"
"""The directory of the project's worktrees; its name ends with a hash of the path."""

WORK = "11111111-1111-4111-8111-111111111111"
"""Tool calls, questions, a denial, a hook, a shell, schedules, a compaction, an undo and a resume."""
AGENTS = "22222222-2222-4222-8222-222222222222"
"""Sub-agents: one in a worktree, one that starts another, one that was moved to the background."""
TEAM = "33333333-3333-4333-8333-333333333333"
"""The team crew with ann and bob, tasks in every state, mail that is read and unread."""
CUT_OFF = "44444444-4444-4444-8444-444444444444"
"""A question that nobody answered before the process died."""
EVERYTHING = "55555555-5555-4555-8555-555555555555"
"""A journal with an event of every type."""
SESSIONS = (WORK, AGENTS, TEAM, CUT_OFF, EVERYTHING)


class OldHome(Struct, frozen=True, kw_only=True):
    home: Path
    project: Path


def unpack_home(directory: Path) -> OldHome:
    """Unpack the archive below `directory`, with paths changed to it and fresh modification times."""
    home, project = directory / "home", directory / "project"
    mark = sha256(os.fsencode(project / ".git")).hexdigest()[:8]
    names = {
        WORKTREES: f"{_slugify_path(project)[-100:].lstrip('-')}-{mark}",
        _slugify_path(f"{WRITTEN_AT}/project"): _slugify_path(project),
        WRITTEN_AT: str(directory),
    }
    with tarfile.open(ARCHIVE) as archive:
        members = archive.getmembers()
        newest = max(member.mtime for member in members)
        for member in members:
            path = directory / _replace_names(member.name.encode(), names).decode()
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
                path.chmod(member.mode)
                continue
            file = archive.extractfile(member)
            assert file is not None
            path.write_bytes(_replace_names(file.read(), names))
            path.chmod(member.mode)
            written = time.time() - (newest - member.mtime)
            os.utime(path, (written, written))
    return OldHome(home=home, project=project)


def _slugify_path(path: Path | str) -> str:
    """Return the name of a project's directory in the home."""
    return re.sub(r"[^A-Za-z0-9]", "-", str(path))


def _replace_names(content: bytes, names: dict[str, str]) -> bytes:
    for old, new in names.items():
        content = content.replace(old.encode(), new.encode())
    return content
