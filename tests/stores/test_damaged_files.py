"""Damage of state files: what is reported for each content, and what is set aside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shoal.core.errors import StateFileError
from shoal.core.ids import SessionId
from shoal.stores.files.sessions.damaged_files import (
    report_damaged_home_files,
    report_damaged_session_files,
)

SESSION = SessionId("s1")
RUN = "shoal/runs/s1"
LARGE = 1 << 20
SIZE_LINE = b"5 " + b"a" * 1_021 + b"\n"
"""A line of 1,024 bytes."""


def put_file(home: Path, path: str, content: bytes) -> Path:
    file = home / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def lead_team(home: Path) -> None:
    """Make the session the lead of the team `roof`."""
    put_file(home, "shoal/teams/roof/creator", b"s1")


@pytest.mark.parametrize(
    ("path", "content", "reason"),
    [
        ("projects/p/s1.jsonl", b'{"a": 1}\n', None),
        ("projects/p/s1.jsonl", b"", "it is empty"),
        ("projects/p/s1.jsonl", b'{"a": 1}', "its last line is incomplete"),
        ("projects/p/s1.jsonl", b"[1]\n", "it has content of another type"),
        ("projects/p/s1.jsonl", b' {"a": 1}\n', None),
        ("projects/p/s1.jsonl", b'{"a": \0}\n', "it has NUL bytes"),
        ("projects/p/s1.jsonl", b'{"a": 1}\n' * 20 + b"\0\n", "it has NUL bytes"),
        ("projects/p/s1.jsonl", b'{"a": 1}\n' * 20 + b"\0" + b'{"a": 1}\n' * 20, None),
        ("projects/p/other.jsonl", b"", None),
        ("projects/p/s1/subagents/agent-1.jsonl", b"x\n", "it has content of another type"),
        ("projects/p/s1/subagents/agent-1.meta.json", b'{"a": 1', "its end is missing"),
        ("projects/p/s1/subagents/agent-1.meta.json", b"{x}", "it is not valid JSON"),
        (f"{RUN}/journal.jsonl", b'{"a": 1}\n', None),
        (f"{RUN}/journal.jsonl", b"", "it is empty"),
        (f"{RUN}/lock", b"", None),
        (f"{RUN}/memory.md", b"notes", None),
        (f"{RUN}/memory.md", b"a\0" + b"x" * 80, "it has NUL bytes"),
        (f"{RUN}/memory.md", b"x" * 100 + b"\0\0\0\0" + b"x" * 100, "it has NUL bytes"),
        (f"{RUN}/memory.md", b"x" * 100 + b"\0" + b"x" * 100, None),
        (f"{RUN}/memory.md", b"x" * 100 + b"\xff" + b"x" * 100, "it is not UTF-8 text"),
        (f"{RUN}/memory.md", b"x" * 100 + b"\xff" + b"x" * LARGE, None),
        (f"{RUN}/memory.md", b"x" * (LARGE - 101) + b"\xff" + b"x" * 100, "it is not UTF-8 text"),
        (f"{RUN}/team.json", b'{"a": 1}\n', "it has content of another type"),
        (f"{RUN}/questions/q.json", b"{" * 3 + b"}" * 3, "it is not valid JSON"),
        (f"{RUN}/results/.sizes", b"5 a\n", None),
        (f"{RUN}/results/.sizes", b"5 a\nx b\ny c\n", "2 lines cannot be read"),
        (f"{RUN}/results/.sizes", b"5 a\n x\n", "1 line cannot be read"),
        (f"{RUN}/results/.sizes", b"5 a", "its last line is incomplete"),
        (f"{RUN}/results/.sizes", b"bad\n" + SIZE_LINE * 1_024, None),
        (f"{RUN}/results/.sizes", SIZE_LINE * 1_023 + b"bad\n", "1 line cannot be read"),
        (f"{RUN}/results/.sizes", SIZE_LINE * 1_024 + b"bad\n", "1 line cannot be read"),
        (f"{RUN}/results/.sizes", SIZE_LINE * 1_024 + b"5 abcdefg\n", None),
        (f"{RUN}/tasks/a.output", b"\0\0\0\0\0", None),
        ("shoal/teams/roof/spawned", b"1                \n", None),
        ("shoal/teams/roof/spawned", b"1\n", "it has 2 of its 18 bytes"),
        ("shoal/teams/roof/spawned", b"x                \n", "it has content of another type"),
        ("shoal/teams/roof/spawned", b"                 \n", "it has content of another type"),
        ("shoal/teams/roof/spawned", b"1 ?              \n", "it has content of another type"),
        ("shoal/teams/roof/spawned", b"1 ab -           \n", None),
        ("shoal/teams/roof/spawned", b"", "it is empty"),
        ("shoal/teams/roof/members", b"other\n", "its lines are not those that its first line announces"),
        ("shoal/teams/roof/overflow/ann.jsonl", b"", "it is empty"),
        ("shoal/teams/roof/overflow/ann.jsonl", b"{}\n", "1 line cannot be read"),
        ("tasks/s1/.highwatermark", b"7", None),
        ("tasks/s1/.highwatermark", b"seven", "it has content of another type"),
        ("tasks/roof/.highwatermark", b"seven", "it has content of another type"),
        ("tasks/other/.highwatermark", b"seven", None),
        ("worktrees/p/agent-1.json", b"{}", "it has content of another type"),
    ],
)
def test_content_is_judged_by_its_kind(tmp_path: Path, path: str, content: bytes, reason: str | None) -> None:
    lead_team(tmp_path)
    file = put_file(tmp_path, path, content)
    reports = report_damaged_session_files(tmp_path, SESSION, now=None)
    assert len(reports) == (reason is not None), reports
    if reason is not None:
        assert f"{file} is damaged: {reason}" in reports[0]
    assert file.read_bytes() == content


@pytest.mark.parametrize(
    ("name", "size", "content", "reason"),
    [
        ("a.md", 5, b"12345", None),
        ("a.md", 5, b"1234", "it has 4 of its 5 bytes"),
        ("a.md", 2_000, b"1234", "it has 4 of its 2,000 bytes"),
        ("a.md", 5, b"", "it is empty"),
        ("a.md", 5, b"12\x0045", "it has NUL bytes"),
        ("a.md", 0, b"1234", None),
        ("a.png", 5, b"12\x0045", None),
        ("a.png", 5, b"\0\0\0\0\0", "it has NUL bytes"),
        ("a.png", 5, b"\0\0\0\0", "it has 4 of its 5 bytes"),
        ("a.txt", 0, b"12\xff45", None),
        ("a.txt", 0, b"", None),
        ("a.txt", 0, b"\0\0\0\0", "it has NUL bytes"),
        ("a.txt", None, b"12\xff45", "it is not UTF-8 text"),
        ("a.txt", None, b"", "it is empty"),
    ],
)
def test_a_result_has_the_size_that_was_stored(
    tmp_path: Path, name: str, size: int | None, content: bytes, reason: str | None
) -> None:
    file = put_file(tmp_path, f"{RUN}/results/{name}", content)
    if size is not None:
        put_file(tmp_path, f"{RUN}/results/.sizes", f"{size} {name}\n".encode())
    reports = report_damaged_session_files(tmp_path, SESSION, now=None)
    assert reports == (
        () if reason is None else (f"The result {file} is damaged: {reason}. The full text is lost.",)
    )


@pytest.mark.parametrize(
    ("state", "is_reported"),
    [(b"1 2 3 4", False), (b"1 3 3 4", True), (b"1 4 3 4", True), (b"1 2 3", True), (b"a b c d", True)],
)
def test_waiting_mail_that_was_delivered_is_not_damaged(
    tmp_path: Path, state: bytes, is_reported: bool
) -> None:
    lead_team(tmp_path)
    put_file(tmp_path, "shoal/teams/roof/overflow/ann.jsonl", b"")
    put_file(tmp_path, "shoal/teams/roof/overflow/ann.state", state.ljust(96))
    reports = [
        each
        for each in report_damaged_session_files(tmp_path, SESSION, now=None)
        if "ann.jsonl is damaged" in each
    ]
    assert len(reports) == is_reported


def make_other_file(path: Path, kind: str) -> None:
    match kind:
        case "link":
            path.symlink_to("elsewhere")
        case "directory":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("link", "it is a link to elsewhere"), ("directory", "it is a directory"), ("pipe", "it is a pipe")],
)
def test_what_is_no_file_is_set_aside(tmp_path: Path, kind: str, reason: str) -> None:
    journal = tmp_path / RUN / "journal.jsonl"
    journal.parent.mkdir(parents=True)
    make_other_file(journal, kind)
    [report] = report_damaged_session_files(tmp_path, SESSION, now=None)
    assert report.startswith(f"The journal {journal} is damaged: {reason}. The other events are lost")
    assert os.path.lexists(journal)
    [report] = report_damaged_session_files(tmp_path, SESSION, now=5)
    aside = journal.with_name("journal.jsonl.damaged-5")
    assert f"is damaged: {reason}. It was renamed to {aside}. Shoal uses the events" in report
    assert os.path.lexists(aside)
    assert not os.path.lexists(journal)
    make_other_file(journal, kind)
    [report] = report_damaged_session_files(tmp_path, SESSION, now=5)
    assert f"It was renamed to {aside}-2." in report
    make_other_file(journal, kind)
    [report] = report_damaged_session_files(tmp_path, SESSION, now=5)
    assert f"It was renamed to {aside}-3." in report
    assert report_damaged_session_files(tmp_path, SESSION, now=6) == ()


def test_only_files_without_further_use_are_set_aside(tmp_path: Path) -> None:
    journal = put_file(tmp_path, f"{RUN}/journal.jsonl", b"")
    memory = put_file(tmp_path, f"{RUN}/memory.md", b"")
    first, second = report_damaged_session_files(tmp_path, SESSION, now=5)
    assert first.startswith(f"The journal {journal} is damaged: it is empty. Shoal uses the events")
    assert second == (
        f"The memory of the session {memory} is damaged: it is empty. It was renamed to {memory}.damaged-5. "
        "Shoal creates a new one. The notes for the next compaction are lost."
    )
    assert journal.exists()
    assert not memory.exists()


@pytest.mark.parametrize("kind", ["link", "file"])
def test_directories_are_set_aside_and_links_to_transcripts_are_followed(tmp_path: Path, kind: str) -> None:
    (tmp_path / RUN).mkdir(parents=True)
    results = tmp_path / RUN / "results"
    if kind == "link":
        results.symlink_to("elsewhere")
    else:
        results.write_text("")
    reason = "it is a link to elsewhere" if kind == "link" else "it is a file"
    [report] = report_damaged_session_files(tmp_path, SESSION, now=None)
    assert report == f"The directory {results} is damaged: {reason}."
    [report] = report_damaged_session_files(tmp_path, SESSION, now=7)
    assert f"{reason}. It was renamed to {results}.damaged-7. Shoal creates a new one." in report
    transcripts = tmp_path / "projects" / "p" / "s1"
    transcripts.parent.mkdir(parents=True)
    (tmp_path / "moved").mkdir()
    transcripts.symlink_to(tmp_path / "moved")
    [report] = report_damaged_session_files(tmp_path, SESSION, now=7)
    assert report == (
        f"{transcripts} should be a directory, but it is a link to {tmp_path / 'moved'}. "
        "Shoal follows the link. Nothing is lost."
    )
    assert transcripts.is_symlink()


@pytest.mark.parametrize("name", ["config.json", "creator", "roster.copy"])
def test_teams_are_found_by_any_file_that_names_the_session(tmp_path: Path, name: str) -> None:
    directory = "teams/roof" if name == "config.json" else "shoal/teams/roof"
    put_file(tmp_path, f"{directory}/{name}", b'{"lead": "s1"}')
    put_file(tmp_path, "shoal/teams/roof/spawned", b"")
    put_file(tmp_path, "shoal/teams/other/spawned", b"")
    put_file(tmp_path, "shoal/teams/other/creator", b"s2")
    reports = report_damaged_session_files(tmp_path, SESSION, now=None)
    assert [each for each in reports if "spawned" in each] == [
        f"The number of started members {tmp_path}/shoal/teams/roof/spawned is damaged: it is empty. "
        "A color may be used twice."
    ]


def test_files_of_the_home_are_checked_without_a_session(tmp_path: Path) -> None:
    lease = tmp_path / "shoal" / "leases" / "l1"
    lease.mkdir(parents=True)
    put_file(tmp_path, "shoal/leases/.temporary", b"")
    (tmp_path / "shoal" / "leases" / "spare-x").mkdir()
    (tmp_path / "shoal" / "leases" / "l0.damaged-1").mkdir()
    put_file(tmp_path, f"{RUN}/journal.jsonl", b"")
    [report] = report_damaged_home_files(tmp_path, now=3)
    assert report.startswith(f"The marker of a live process {lease} is damaged: it is a directory.")
    assert report_damaged_home_files(tmp_path, now=4) == ()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_directory_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    directory = tmp_path / RUN
    directory.mkdir(parents=True)
    directory.chmod(0)
    try:
        with pytest.raises(StateFileError, match="Cannot read"):
            report_damaged_session_files(tmp_path, SESSION, now=None)
    finally:
        directory.chmod(0o700)
