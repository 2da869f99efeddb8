"""Views of teams: they change, release and rename nothing, whoever is dead and whatever is damaged."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from shoal_process import ShoalProgram

from shoal.app.doctor.team_files import find_damaged_team_files
from shoal.app.settings.configured_store import open_home_store
from shoal.app.teams.team_store import TeamStore
from shoal.core.clock import SystemClock
from shoal.core.ids import IdGenerator
from shoal.core.names import AgentName, TeamName
from shoal.core.teams.mail import MailMessage
from shoal.core.teams.roster import NewMember
from shoal.core.teams.tasks import TaskDraft

ANN = AgentName("ann")
SESSION = "11111111-2222-4333-8444-555555555555"
VIEWS = (
    ("team", "ls"),
    ("team", "show", "crew"),
    ("team", "export", "crew"),
    ("task", "ls", "--team", "crew"),
    ("inbox", "show", "ann", "--team", "crew"),
    ("ps",),
    ("watch", SESSION),
)


async def create_team(home: Path) -> None:
    """Create a team whose lead and member are dead, with a claimed task and unread mail."""
    store = TeamStore(home, clock=SystemClock(), ids=IdGenerator())
    lead = NewMember(name=AgentName("team-lead"), agent_type="lead", model="m", cwd=str(home), prompt="")
    crew = TeamName("crew")
    await store.rosters.create_team(crew, lead=lead, session=SESSION, description=None)
    await store.add_member(
        crew, NewMember(name=ANN, agent_type="general-purpose", model="m", cwd=str(home), prompt="Begin.")
    )
    for text in ("one", "two"):
        mail = MailMessage(id=text, sender=ANN, text=text, timestamp="2026-01-01T00:00:00.000Z")
        await store.post_mail(crew, AgentName("team-lead"), mail)
    board = store.open_board("crew")
    for subject in ("Dig", "Fill"):
        await board.create(TaskDraft(subject=subject, description=""))
    claim = await board.claim_next(by=ANN)
    assert claim is not None
    assert claim.success
    # Closing the board ends the lease, as the death of its process does.
    await store.aclose()


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])
    os.utime(path, (0, 0))


def write_foreign_mail(home: Path) -> None:
    inbox = home / "teams/crew/inboxes/ann.json"
    entries = json.loads(inbox.read_bytes())
    inbox.write_text(json.dumps([*entries, {"from": "stranger", "text": "hello", "read": False}]))


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def leave_dead_lease(home: Path) -> None:
    """Leave the lease of the claimed task as a killed process leaves it."""
    task = json.loads((home / "tasks/crew/1.json").read_bytes())
    (attempt,) = (value for value in task["metadata"].values() if isinstance(value, str))
    (home / "shoal/leases" / attempt.partition("-")[0]).touch(0o600)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "nothing": lambda _: None,
    "a torn roster": lambda home: tear(home / "teams/crew/config.json"),
    "a torn inbox": lambda home: tear(home / "teams/crew/inboxes/ann.json"),
    "a torn task": lambda home: tear(home / "tasks/crew/1.json"),
    "foreign mail": write_foreign_mail,
    "a lease of a dead process": leave_dead_lease,
    "a roster that is a pipe": lambda home: replace_by_pipe(home / "teams/crew/config.json"),
    "an inbox that is a pipe": lambda home: replace_by_pipe(home / "teams/crew/inboxes/ann.json"),
    "a task that is a pipe": lambda home: replace_by_pipe(home / "tasks/crew/1.json"),
    "a record that is a pipe": lambda home: replace_by_pipe(home / "shoal/teams/crew/creator"),
}


def list_files(home: Path) -> dict[str, tuple[int, int, str]]:
    return {
        str(path.relative_to(home)): (
            path.lstat().st_mtime_ns,
            path.lstat().st_mode,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in sorted(home.rglob("*"))
    }


@pytest.mark.spec("LIF-05")
@pytest.mark.parametrize("damage", DAMAGES)
async def test_views_change_nothing(shoal: ShoalProgram, home: Path, damage: str) -> None:
    await create_team(home)
    DAMAGES[damage](home)
    before = list_files(home)
    ran = {view: await shoal(*view) for view in VIEWS}
    assert list_files(home) == before
    assert "ann" in ran["team", "show", "crew"].text
    if damage in ("a torn roster", "a roster that is a pipe"):
        assert "config.json is damaged" in ran["team", "show", "crew"].err
        assert "uses its last good copy" in ran["team", "show", "crew"].err


@pytest.mark.spec("LIM-15", "LIF-05")
async def test_doctor_reports_damaged_team_files_as_the_views_of_the_team_do(
    shoal: ShoalProgram, home: Path
) -> None:
    async def list_problems() -> list[str]:
        ran = await shoal("doctor", "--json", OLLAMA_HOST="127.0.0.1:9")
        return [
            fact["value"]
            for fact in json.loads(ran.text)["facts"]
            if (fact["area"], fact["name"], fact["state"]) == ("home", "team", "warn")
        ]

    await create_team(home)
    assert await list_problems() == []
    for damage in ("a torn roster", "a torn inbox", "a torn task"):
        DAMAGES[damage](home)
    before = list_files(home)
    problems = await list_problems()
    assert list_files(home) == before
    shown = (await shoal("team", "show", "crew")).err.splitlines()
    assert sorted(f"shoal: {problem}" for problem in problems) == sorted(shown)
    for name in ("config.json", "ann.json", "1.json"):
        assert sum(f"/{name}" in problem for problem in problems) == 1, problems


async def test_doctor_checks_damaged_team_files_for_a_limited_time(home: Path) -> None:
    await create_team(home)
    DAMAGES["a torn task"](home)
    store = open_home_store(home, read_only=True)
    assert len(await find_damaged_team_files(store, home)) == 1
    assert await find_damaged_team_files(store, home, max_seconds=0.0) == [
        "There was no time to check all files of 1 team. Check one team: shoal team show NAME"
    ]


async def test_a_team_is_shown_in_a_locale_that_cannot_encode_it(shoal: ShoalProgram, home: Path) -> None:
    await create_team(home)
    ran = await shoal("team", "show", "crew", LC_ALL="C", PYTHONUTF8="0")
    assert (ran.code, ran.err) == (0, "")
    assert "ann  cut off" in ran.text


async def test_a_torn_roster_is_restored_from_its_last_good_copy(home: Path) -> None:
    await create_team(home)
    config = home / "teams/crew/config.json"
    content = config.read_bytes()
    tear(config)
    reports: list[str] = []
    store = TeamStore(home, clock=SystemClock(), ids=IdGenerator(), report=reports.append)
    team = await store.rosters.read_team_roster(TeamName("crew"))
    await store.aclose()
    assert team is not None
    assert [each.name for each in team.members] == ["team-lead", "ann"]
    assert config.read_bytes() == content
    (report,) = reports
    assert "Shoal uses its last good copy instead" in report
    assert len(list(config.parent.glob("config.json.corrupt-*"))) == 1


JOURNAL_DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda _: b"",
    "NULs": lambda content: b"\0" * len(content),
    "garbage": lambda content: b"\xff\xfe\n" + bytes(range(256)),
    "a nested line": lambda content: content + b"{" + b'"a":{' * 50_000 + b"\n",
    "a cut last line": lambda content: content[:-9],
}


@pytest.mark.spec("LIM-15", "LIF-05")
@pytest.mark.parametrize("damage", JOURNAL_DAMAGES)
async def test_views_report_a_damaged_journal_and_change_nothing(
    shoal: ShoalProgram, home: Path, damage: str
) -> None:
    script = shoal.project / "mind.toml"
    script.write_text('[[steps]]\nmatch = "hi"\ntext = "hello"\n')
    ran = await shoal("-p", "hi", "--model", f"scripted:{script}", "--session-id", SESSION)
    assert ran.code == 0
    journal = home / "shoal/runs" / SESSION / "journal.jsonl"
    content = journal.read_bytes()
    for is_damaged in (False, True):
        journal.write_bytes(JOURNAL_DAMAGES[damage](content) if is_damaged else content)
        os.utime(journal, (0, 0))  # nobody is writing it
        before = list_files(home)
        for view in (("cost", SESSION), ("watch", SESSION), ("export", SESSION)):
            ran = await shoal(*view)
            assert ran.code == 0
            assert ran.err.count("journal.jsonl is damaged") == is_damaged, (view, ran.err)
        assert list_files(home) == before


TEAM_SCRIPT = """
[[steps]]
match = "begin"
tools = [{ name = "TeamCreate", input = { team_name = "crew" } }]

[[steps]]
repeat = true
text = "done"
"""
LATEST_DAMAGES = {
    "emptied": (JOURNAL_DAMAGES["emptied"], "It is empty."),
    "a cut last line": (JOURNAL_DAMAGES["a cut last line"], "The end of the journal is missing."),
}


@pytest.mark.spec("LIM-15", "LIF-05")
@pytest.mark.parametrize("damage", LATEST_DAMAGES)
async def test_views_report_damage_at_the_end_of_a_journal_as_soon_as_its_run_has_ended(
    shoal: ShoalProgram, home: Path, damage: str
) -> None:
    script = shoal.project / "mind.toml"
    script.write_text(TEAM_SCRIPT)
    ran = await shoal("-p", "begin", "--model", f"scripted:{script}", "--session-id", SESSION)
    assert ran.code == 0
    journal = home / "shoal/runs" / SESSION / "journal.jsonl"
    change, reason = LATEST_DAMAGES[damage]
    journal.write_bytes(change(journal.read_bytes()))
    for view in (*VIEWS[:3], ("ps", SESSION), ("cost", SESSION), ("watch", SESSION), ("export", SESSION)):
        ran = await shoal(*view)
        assert ran.code == 0, (view, ran.err)
        assert ran.err.count(f"The journal {journal} is damaged: {reason}") == 1, (view, ran.err)


REPLACEMENTS: dict[str, Callable[[Path], None]] = {
    "directory": Path.mkdir,
    "link": lambda path: path.symlink_to("elsewhere"),
    "pipe": os.mkfifo,
}


@pytest.mark.spec("LIM-15", "LIF-05")
@pytest.mark.parametrize("kind", REPLACEMENTS)
async def test_a_team_is_shown_and_resumed_without_its_journal(
    shoal: ShoalProgram, home: Path, kind: str
) -> None:
    script = shoal.project / "mind.toml"
    script.write_text(TEAM_SCRIPT)
    flags = ("--model", f"scripted:{script}")
    assert (await shoal("-p", "begin", *flags, "--session-id", SESSION)).code == 0
    journal = home / "shoal/runs" / SESSION / "journal.jsonl"
    journal.unlink()
    REPLACEMENTS[kind](journal)
    before = list_files(home)
    for view in (*VIEWS[:3], ("cost", SESSION), ("watch", SESSION), ("export", SESSION)):
        ran = await shoal(*view)
        assert ran.code == 0, (view, ran.err)
        assert ran.err.count("journal.jsonl is damaged: It cannot be read") == 1, (view, ran.err)
    assert list_files(home) == before
    resumed = await shoal("team", "resume", "crew", "-p", "go on", *flags)
    assert (resumed.code, resumed.text.strip()) == (0, "done"), resumed.err
    assert "continues with the model and the mode of the settings" in resumed.err
    assert "journal.jsonl is damaged: it is a" in resumed.err
