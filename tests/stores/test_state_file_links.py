"""State files are not read or written through symbolic links."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from shoal.core.clock import SystemClock
from shoal.core.errors import ShoalError
from shoal.core.events import NoteAdded
from shoal.core.ids import LEAD_ID, SessionId
from shoal.stores.files.home.credential_file import get_credentials_path, load_provider_credentials
from shoal.stores.files.home.home_paths import get_run_directory
from shoal.stores.files.home.trust_file import ProjectTrustFile
from shoal.stores.files.locks.pid_locks import SessionLock, find_session_pid
from shoal.stores.files.sessions.debug_log import DebugLog
from shoal.stores.files.sessions.file_journal import FileJournal, read_journal
from shoal.stores.files.sessions.session_files import read_session_transcript
from shoal.surfaces.terminal.prompt_history import append_prompt_history, read_prompt_history

SESSION = SessionId("11111111-2222-4333-8444-555555555555")


def write_journal(home: Path, path: Path) -> None:
    journal = FileJournal(path, SystemClock())
    journal.append(NoteAdded(agent=LEAD_ID, text="x"))
    journal.close()


def append_history(home: Path, path: Path) -> None:
    append_prompt_history(path, "x")


def lock_session(home: Path, path: Path) -> None:
    SessionLock(home, SESSION)


def open_debug_log(home: Path, path: Path) -> None:
    DebugLog(path.parent, SESSION, SystemClock()).close()


WRITERS: dict[str, Callable[[Path, Path], None]] = {
    "journal.jsonl": write_journal,
    "history.jsonl": append_history,
    "lock": lock_session,
    f"{SESSION}.txt": open_debug_log,
}


@pytest.mark.spec("HOM-04")
@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("exists", [False, True])
def test_a_state_file_is_not_written_through_a_link(tmp_path: Path, name: str, exists: bool) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    path = get_run_directory(home, SESSION) / name
    path.parent.mkdir(parents=True)
    if exists:
        outside.write_text("theirs\n")
        outside.chmod(0o644)
    path.symlink_to(outside)
    with suppress(ShoalError):
        WRITERS[name](home, path)
    assert not exists or outside.read_text() == "theirs\n"
    assert not exists or outside.stat().st_mode & 0o777 == 0o644
    assert outside.exists() == exists


def test_a_state_file_is_not_read_through_a_link(tmp_path: Path) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    directory = get_run_directory(home, SESSION)
    directory.mkdir(parents=True)
    outside.write_text('{"anthropic": {"ANTHROPIC_API_KEY": "x"}}')
    paths = [directory / "journal.jsonl", directory / f"{SESSION}.jsonl", get_credentials_path(home)]
    paths += [ProjectTrustFile(home).path]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(outside)
    reads: list[Callable[[], object]] = [
        lambda: list(read_journal(paths[0])),
        lambda: read_session_transcript(paths[1]),
        lambda: load_provider_credentials(home),
        lambda: ProjectTrustFile(home).get_trust_decision(tmp_path, "settings.json"),
    ]
    for read in reads:
        with pytest.raises(ShoalError, match="symbolic link"):
            read()
    outside.write_text('"secret"\n')
    assert read_prompt_history(paths[0]) == []
    outside.write_text(str(os.getpid()))
    (directory / "lock").symlink_to(outside)
    with outside.open():
        assert find_session_pid(home, SESSION) is None
