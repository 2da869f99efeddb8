"""Facts in the files of a team that show whose it is and where its mail is."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from shoal.stores.files.access.directory_handle import DirectoryHandle
from shoal.stores.files.teams.team_ownership import (
    CREATOR_FILE,
    OWN_WRITES_FILE,
    TeamFileFacts,
    find_inbox_directory,
    is_created_by_shoal,
    read_own_writes,
    read_team_facts,
    record_own_writes,
)


@pytest.mark.parametrize(
    ("given", "made", "found"),
    [
        ("My Team", ["My-Team", "my-team"], "My-Team"),
        ("My Team", ["my-team"], "my-team"),
        ("My Team", [], "My-Team"),
        ("my-team", ["My-Team"], "my-team"),
        ("Another", ["Another"], "my-team"),
        ("", [], "my-team"),
    ],
)
def test_the_inboxes_are_where_the_program_that_created_the_team_writes_them(
    home: Path, given: str, made: list[str], found: str
) -> None:
    for name in made:
        (home / "teams" / name / "inboxes").mkdir(parents=True)
    home.mkdir(exist_ok=True)
    with DirectoryHandle.open_root(home) as directory:
        assert find_inbox_directory(directory, "my-team", TeamFileFacts(given_name=given)) == found


@pytest.mark.parametrize(
    ("content", "facts"),
    [
        (None, TeamFileFacts()),
        ("no json", TeamFileFacts()),
        ("[]", TeamFileFacts()),
        ('{"name": 1, "leadSessionId": 2}', TeamFileFacts(has_roster=True)),
        (
            '{"name": "Roof", "leadSessionId": "s"}',
            TeamFileFacts(has_roster=True, given_name="Roof", lead_session="s"),
        ),
    ],
)
def test_a_damaged_roster_has_no_facts(home: Path, content: str | None, facts: TeamFileFacts) -> None:
    (home / "teams" / "roof").mkdir(parents=True)
    if content is not None:
        (home / "teams" / "roof" / "config.json").write_text(content)
    with DirectoryHandle.open_root(home) as directory:
        assert read_team_facts(directory, "roof") == facts
        assert read_team_facts(directory, "nobody") == TeamFileFacts()


def test_only_the_session_that_created_a_team_is_its_creator(home: Path) -> None:
    assert not is_created_by_shoal(home, "roof", "s")
    (home / "shoal" / "teams" / "roof").mkdir(parents=True)
    (home / "shoal" / "teams" / "roof" / CREATOR_FILE).write_text("s")
    assert is_created_by_shoal(home, "roof", "s")
    assert not is_created_by_shoal(home, "roof", "t")
    (home / "shoal" / "teams" / "roof" / CREATOR_FILE).write_text("")
    assert not is_created_by_shoal(home, "roof", "")


def test_changes_to_a_team_of_another_program_are_recorded_with_their_times(home: Path) -> None:
    (home / "teams" / "roof").mkdir(parents=True)
    (home / "teams" / "roof" / "config.json").write_text('{"name": "roof", "leadSessionId": ""}')
    assert read_own_writes(home, "roof") == ()
    started = time.time()
    for _ in range(2):
        record_own_writes(home, "roof", start=started)
    periods = read_own_writes(home, "roof")
    assert [start for start, _ in periods] == [started, started]
    assert all(started <= end <= time.time() for _, end in periods)


def test_changes_that_are_old_or_damaged_are_not_recorded_any_more(home: Path) -> None:
    (home / "teams" / "roof").mkdir(parents=True)
    (home / "teams" / "roof" / "config.json").write_text('{"name": "roof", "leadSessionId": ""}')
    file = home / "shoal" / "teams" / "roof" / OWN_WRITES_FILE
    file.parent.mkdir(parents=True)
    file.write_text("1.0 2.0\n3.0\n4.0 5.0 6.0\n")
    assert read_own_writes(home, "roof") == ((1.0, 2.0),)
    record_own_writes(home, "roof", start=time.time())
    assert len(read_own_writes(home, "roof")) == 1
    file.write_text("1.0 two\n")
    assert read_own_writes(home, "roof") == ()


def test_changes_to_a_team_of_shoal_are_not_recorded(home: Path) -> None:
    record_own_writes(home, "roof", start=time.time())
    assert not (home / "shoal" / "teams" / "roof" / OWN_WRITES_FILE).exists()
