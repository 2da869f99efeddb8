"""A process that runs out of descriptors at any step of a read takes nothing for missing, then or later."""

from __future__ import annotations

import os
import resource
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from board_helpers import fill_board, open_board
from mail_helpers import make_mail, open_mailboxes
from store_helpers import make_member

from shoal.core.clock import SystemClock
from shoal.core.errors import StateFileError
from shoal.stores.files.access.directory_handle import DirectoryHandle
from shoal.stores.files.board.file_task_board import FileTaskBoard
from shoal.stores.files.file_store import FileStore
from shoal.stores.files.mailboxes.file_mailbox_store import FileMailboxStore

MOST_DESCRIPTORS = 20
"""More than a read keeps open."""


@contextmanager
def limit_free_descriptors(count: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = [os.dup(0) for _ in range(count + 1)]
    for each in free:
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[-1], hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def read_without_descriptors(read: Callable[[], Awaitable[Any]], count: int, expected: Any) -> bool:
    """Read with so many free descriptors, and then with enough. Return True if the first read failed."""
    try:
        with limit_free_descriptors(count):
            assert await read() == expected
    except StateFileError as error:
        assert "Too many open files" in str(error)  # noqa: PT017 - the read may also succeed
        assert await read() == expected
        return True
    return False


def test_a_directory_that_could_not_be_listed_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with DirectoryHandle.open_root(tmp_path) as directory:
        with limit_free_descriptors(0), pytest.raises(StateFileError, match="Too many open files") as refused:
            directory.list_names()
        assert refused.value.path == tmp_path
        assert directory.list_names() == ["file"]


async def test_a_board_is_read_whole_after_a_read_that_failed(home: Path) -> None:
    async with open_board(home) as known:
        await fill_board(known, 2)
        path = home / "tasks" / "roof" / "2.json"
        content = path.read_text()
        failures = []
        for count in range(MOST_DESCRIPTORS):
            path.write_text(content.replace("task 2", f"task 2 changed {count}"))
            expected = ["task 1", f"task 2 changed {count}"]
            async with open_board(home) as opened:
                for board in (known, opened):

                    async def read_subjects(board: FileTaskBoard = board) -> list[str]:
                        return [task.subject for task in await board.list_tasks()]

                    failures.append(await read_without_descriptors(read_subjects, count, expected))
    assert failures[:2] == [True, True]
    assert failures[-2:] == [False, False]


async def test_mail_that_could_not_be_read_is_still_unread(home: Path) -> None:
    async with open_mailboxes(home) as mail:
        await mail.open_inbox("ann")
        await mail.post("ann", make_mail("hello"))
    failures = []
    for count in range(MOST_DESCRIPTORS):
        async with open_mailboxes(home) as opened:

            async def read_texts(mail: FileMailboxStore = opened) -> list[str]:
                return [message.text for message in await mail.take_unread("ann")]

            failures.append(await read_without_descriptors(read_texts, count, ["hello"]))
    assert (failures[0], failures[-1]) == (True, False)


async def test_a_team_that_could_not_be_read_is_not_missing(home: Path) -> None:
    store = FileStore(home)
    failures = []
    async with aclosing(store.open_rosters(clock=SystemClock(), report=print)) as rosters:
        await rosters.create_team("roof", lead=make_member("lead"), session="s", description=None)
        for count in range(MOST_DESCRIPTORS):

            async def read_names() -> tuple[list[str], bool]:
                names = await rosters.list_teams()
                return list(names), await rosters.read_team_roster("roof") is not None

            failures.append(await read_without_descriptors(read_names, count, (["roof"], True)))
    assert (failures[0], failures[-1]) == (True, False)
