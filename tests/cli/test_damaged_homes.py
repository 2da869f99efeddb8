"""Each kind of state file with each kind of damage.

A resumed run reports the damage and continues. Views report it if they show something else because of it, and
change nothing. `make test` runs a few of these combinations, and `make test-all` all of them.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from shoal_process import MODEL, CliResult, ShoalProgram

from file_damages import (
    CONTENT_DAMAGES,
    ENTRY_DAMAGES,
    TEXT_DAMAGES,
    FileChange,
    damage_field,
    list_field_damages,
)
from shoal.core.events import NoteAdded
from shoal.stores.files.home.home_paths import get_journal_path
from shoal.stores.files.sessions.file_journal import read_journal
from shoal.stores.files.sessions.state_file_kinds import StateFileKind
from shoal.testing.servers import MockServer, messages_server
from stored_runs import (
    PROCESS_SESSION,
    SESSION,
    create_stored_runs,
    find_files,
    find_session_of,
    list_stored_kinds,
)
from team_scripts import get_home

pytestmark = pytest.mark.one_worker
TEAMS = {SESSION: "crew", PROCESS_SESSION: "hands"}
FIELD_GROUPS = 6
"""Number of tests for the fields of one kind of file."""
JSON_SHAPES = ("lines", "object", "reader")
DAMAGES: dict[str, FileChange] = {**ENTRY_DAMAGES, **CONTENT_DAMAGES, **TEXT_DAMAGES}
OTHER_TEXTS = (
    "first byte", "first third", "first two thirds", "all but the end", "string", "number", "null", "list",
    "object", "list of lists", "deep nesting",
)  # fmt: skip
"""Damages after which a text is still a text."""
UNDETECTABLE = {
    **dict.fromkeys(("memory of the session", "record of the team's creator"), OTHER_TEXTS),
    # Random bytes are a key as good as another. Mail that is signed with the old one is refused with a note.
    "signing key": ("nuls in the middle", "bytes in the middle"),
    # A higher number is that of a deleted task, and the first byte of one digit is all of it.
    "highest task number": ("number", "first byte", "first third", "first two thirds"),
}
"""Damages by kind that leave a valid file."""
UNREAD_FIELDS: dict[str, tuple[str, ...]] = {
    # The name of its directory counts.
    "roster": ("0/name",),
    "copy of the roster": ("0/name",),
    # Free-form. A task whose attempt is unknown is released.
    "task": ("0/metadata/*",),
}
"""Fields by kind that only other programs use, as patterns of pointers."""
VOLATILE = re.compile(rb'(\d+(\.\d+)? (s|min|h|d)\b ?)+|"(seconds|last_event_seconds)": ?[\d.]+')
"""Times since an event, which differ between two calls of a view."""
FIXED_TIME = 1_700_000_000
SAMPLE_STEP = 61
"""One of this many combinations is run by `make test`."""


def list_views(session: str) -> list[tuple[str, ...]]:
    team = TEAMS.get(session, "crew")
    return [
        ("ps", session),
        ("team", "ls"),
        ("team", "show", team),
        ("team", "export", team),
        ("watch", session),
        ("cost", session),
        ("task", "ls", "--team", team),
    ]


def list_tree(home: Path) -> dict[str, tuple[int, int, str]]:
    """Return the type, the time and the content of each entry."""
    tree: dict[str, tuple[int, int, str]] = {}
    for path in home.rglob("*"):
        status = path.lstat()
        content = path.read_bytes().hex() if path.is_file() and not path.is_symlink() else ""
        link = str(path.readlink()) if path.is_symlink() else ""
        tree[str(path.relative_to(home))] = (status.st_mode, status.st_mtime_ns, content + link)
    return tree


UndamagedViews: TypeAlias = dict[str, dict[tuple[str, ...], CliResult]]
"""What the views of each session show before the damage."""


class StoredHome:
    """Home and project of finished runs, restored from a copy before each damage."""

    def __init__(self, directory: Path, server: MockServer, undamaged: UndamagedViews) -> None:
        self._live, self._backup = directory / "live", directory / "backup"
        self._server = server
        self._program = ShoalProgram(self._live / "project")
        self._program.use_server(server)
        self._undamaged = undamaged

    async def create(self) -> None:
        if not self._backup.exists():
            await create_stored_runs(self._live)
            for path in get_home().rglob("*"):
                if path.is_socket():
                    path.unlink()
                elif path.is_file() and not path.is_symlink():
                    os.utime(path, (FIXED_TIME, FIXED_TIME))
            shutil.copytree(self._live, self._backup, symlinks=True)

    def restore(self) -> None:
        shutil.rmtree(self._live, ignore_errors=True)
        shutil.copytree(self._backup, self._live, symlinks=True)

    async def check_damage(self, path: Path, change: FileChange, *, is_reported: bool) -> None:
        """Damage the file and check all views, then a resumed run."""
        session = find_session_of(path)
        if session not in self._undamaged:
            self.restore()
            self._undamaged[session] = await self._run_views(session)
        self.restore()
        change(path)
        if path.is_file() and not path.is_symlink():
            os.utime(path, (FIXED_TIME, FIXED_TIME))  # nobody is writing it
        before = list_tree(get_home())
        views = await self._run_views(session)
        assert list_tree(get_home()) == before, "a view changed the home"
        for view, ran in views.items():
            usual = self._undamaged[session][view]
            shows_all = VOLATILE.sub(b"", ran.out) == VOLATILE.sub(b"", usual.out)
            assert (shows_all and ran.code == usual.code) or _names(path, ran) or not is_reported, (
                f"{view} does not report the damage: {ran}"
            )
        await self._check_resumed_run(session, path, is_reported=is_reported)

    async def _run_views(self, session: str) -> dict[tuple[str, ...], CliResult]:
        views = list_views(session)
        ran = await asyncio.gather(*(self._program(*view) for view in views))
        return dict(zip(views, ran, strict=True))

    async def _check_resumed_run(self, session: str, path: Path, *, is_reported: bool) -> None:
        self._server.requests.clear()
        ran = await self._program(
            "-p", "Go on.", "--resume", session, "--model", MODEL, "--teammate-mode", "in-process",
            "--dangerously-skip-permissions",
        )  # fmt: skip
        # A member whose description is damaged stays in the team, and the run says so.
        assert ran.code == 0 or (ran.code == 4 and "Down at the end of the run: " in ran.err), ran
        assert ran.text == "end\n"
        assert {request.body["messages"][0]["role"] for request in self._server.requests} == {"user"}
        if is_reported:
            assert path.name in ran.err
            records = read_journal(get_journal_path(get_home(), session))
            notes = [each.event.text for each in records if isinstance(each.event, NoteAdded)]
            assert any(path.name in note for note in notes), notes


def _names(path: Path, ran: CliResult) -> bool:
    """Return True if the view names the file or its directory."""
    return any(name in ran.err or name in ran.text for name in (path.name, str(path.parent)))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stored_runs")


@pytest.fixture(scope="module")
def undamaged_views() -> UndamagedViews:
    return {}


@pytest.fixture
async def stored_home(
    directory: Path, undamaged_views: UndamagedViews, monkeypatch: pytest.MonkeyPatch
) -> Any:
    monkeypatch.setenv("SHOAL_HOME", str(directory / "live" / "home"))
    async with messages_server(lambda _: "end") as server:
        home = StoredHome(directory, server, undamaged_views)
        await home.create()
        home.restore()
        yield home


def is_json(kind: StateFileKind) -> bool:
    return kind.shape in JSON_SHAPES and kind.name != "signing key"


def list_cases() -> Iterator[tuple[StateFileKind, str]]:
    for kind in list_stored_kinds():
        for damage in ENTRY_DAMAGES if kind.shape == "entry" else DAMAGES:
            if damage not in TEXT_DAMAGES or is_json(kind):
                yield kind, damage
        if is_json(kind):
            yield from ((kind, f"fields {part}") for part in range(FIELD_GROUPS))


def list_parameters() -> list[Any]:
    return [
        pytest.param(
            kind,
            damage,
            id=f"{kind.directory}/{kind.file}-{damage}",
            marks=[] if number % SAMPLE_STEP == 0 else [pytest.mark.exhaustive],
        )
        for number, (kind, damage) in enumerate(list_cases())
    ]


@pytest.mark.spec("LIM-15", "USR-12", "TRN-02", "LIF-05")
@pytest.mark.parametrize(("kind", "damage"), list_parameters())
async def test_damage_is_reported_and_views_change_nothing(
    stored_home: StoredHome, kind: StateFileKind, damage: str
) -> None:
    for path in choose_files(kind):
        if damage.startswith("fields "):
            fields = list(list_field_damages(path.read_bytes()))
            for pointer, wrong in fields[int(damage.split()[1]) :: FIELD_GROUPS]:
                is_read = not any(fnmatchcase(pointer, each) for each in UNREAD_FIELDS.get(kind.name, ()))
                await stored_home.check_damage(path, damage_field(pointer, wrong), is_reported=is_read)
            continue
        is_reported = damage not in UNDETECTABLE.get(kind.name, ()) and damage not in TEXT_DAMAGES
        await stored_home.check_damage(path, DAMAGES[damage], is_reported=is_reported)


def choose_files(kind: StateFileKind) -> list[Path]:
    """Return a file of the kind; of inboxes also the lead's, and all questions and answers."""
    found = find_files(kind)
    if kind.name == "inbox":
        return [found[0], *(path for path in found if path.name == "team-lead.json")][:2]
    return found if kind.name == "question" else found[:1]
