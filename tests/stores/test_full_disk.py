"""A database whose disk is really full: of data, or of the log that it writes ahead."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from postgres_server import PostgresServer
from shoal.core.errors import StateFileError
from shoal.core.ids import LEAD_ID
from shoal.testing.contracts.session_contract import FIRST, create_used_session, make_entry, read_entry_ids

pytestmark = pytest.mark.needs("postgres", "asyncpg", "mount")
TEXT = os.urandom(10_000).hex()
"""Text that the database cannot compress."""
MOST_LINES = 2_000
"""More than the small file systems can hold."""


def explain_no_mount() -> str:
    if os.geteuid() != 0:
        return "only root may mount a small file system"
    done = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
    return "mounts are not allowed here" if done.returncode else ""


@contextmanager
def mount_small_disk(server: PostgresServer, name: str, megabytes: int) -> Iterator[Path]:
    """Mount a file system that the user of the server can write to."""
    if reason := explain_no_mount():
        pytest.skip(reason)
    directory = server.directory / name
    directory.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=700", "tmpfs", directory], check=True
    )
    try:
        if server.user is not None:
            shutil.chown(directory, server.user, server.user)
        yield directory
    finally:
        subprocess.run(["umount", "-l", directory], check=True)


@contextmanager
def fill_disk(directory: Path) -> Iterator[None]:
    """Leave no space on a file system."""
    filler = directory / "filler"
    with filler.open("wb") as file:
        state = os.fstatvfs(file.fileno())
        os.posix_fallocate(file.fileno(), 0, state.f_bavail * state.f_frsize)
    try:
        yield
    finally:
        filler.unlink()


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    server = PostgresServer(restart_after_crash="off")
    try:
        yield server
    finally:
        server.remove()


@pytest.mark.slow
def test_a_full_disk_of_data_is_a_clear_error_and_what_was_stored_stays(server, home):
    import postgres_helpers

    with mount_small_disk(server, "small", 64) as small:
        server.start()
        server.execute(
            f"CREATE TABLESPACE small LOCATION '{small}'", "CREATE DATABASE shoal TABLESPACE small"
        )
        with postgres_helpers.opened_postgres_store(server.build_address("shoal"), home) as store:
            session = create_used_session(store, FIRST)
            transcript = session.open_transcript(LEAD_ID, cwd="/project", version="0")
            stored = read_entry_ids(session)

            def append_lines() -> None:
                for number in range(MOST_LINES):
                    transcript.append(make_entry(f"{number}-{TEXT}"))
                    stored.append(f"entry-{number}-{TEXT}")

            with fill_disk(small), pytest.raises(StateFileError) as raised:
                append_lines()
            for words in ("has no space left", "No space left on device", "Nothing was written", "--resume"):
                assert words in str(raised.value)
            assert read_entry_ids(session) == stored
            transcript.append(make_entry("later"))
            assert read_entry_ids(session) == [*stored, "entry-later"]
        server.stop()


@pytest.mark.slow
def test_a_database_that_ends_because_its_log_has_no_space_continues_when_it_has(server, home):
    """PostgreSQL crashes then, so writers wait for it, and each write is stored once."""
    import postgres_helpers

    log = server.directory / "data" / "pg_wal"
    with mount_small_disk(server, "log_disk", 80) as small:
        moved = small / "pg_wal"
        subprocess.run(["cp", "-a", log, moved], check=True)
        shutil.rmtree(log)
        log.symlink_to(moved)
        server.start()
        server.create_empty_database()
        with (
            postgres_helpers.opened_postgres_store(server.build_address("shoal"), home) as store,
            ThreadPoolExecutor(1) as executor,
        ):
            session = create_used_session(store, FIRST)
            transcript = session.open_transcript(LEAD_ID, cwd="/project", version="0")
            before = read_entry_ids(session)
            with fill_disk(small):
                names = [f"{number}-{TEXT}" for number in range(MOST_LINES)]

                def append_all() -> None:
                    for name in names:
                        transcript.append(make_entry(name))

                writing = executor.submit(append_all)
                server.wait_until_crashed()
                assert "No space left on device" in (server.directory / "log").read_text()
                assert not writing.done()
            server.start()
            writing.result(timeout=120)
            assert read_entry_ids(session) == [*before, *(f"entry-{name}" for name in names)]
        server.stop()
