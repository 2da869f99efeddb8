"""Teams that are taken up where their members cannot run as before, or may not spend any more."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import shoal
from cast import all_turns, use
from fleet import everything, opened, provider
from troupe import config, home, member, tell

CREATE = use("TeamCreate", team_name="crew")
LEAD = [CREATE, member("ann", "Remember heron."), "Wait.", "Good."]


def settings(mode: str, **own: Any) -> str:
    return json.dumps({"shoal": {"teammate_mode": mode, **own}})


async def first_run(cwd: Path, mode: str) -> str:
    """A team with one member at rest; the id of its session."""
    async with opened(cwd, settings=settings(mode)) as session, asyncio.timeout(20):
        await all_turns(session, "Go.")
        return session.agent.identity.session


def entry() -> dict[str, Any]:
    (found,) = [each for each in config("crew")["members"] if each["name"] == "ann"]
    return found


async def woken(session: shoal.Session) -> None:
    async with asyncio.timeout(20):
        await all_turns(session, "Wake ann.")


@pytest.mark.spec("TRN-02", "BCK-01")
async def test_a_member_whose_backend_is_gone_goes_on_in_the_lead_s_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lead = [*LEAD, tell("ann", "Go on."), "Wait.", "Good."]
    async with provider(monkeypatch, lead=lead, ann=["Rest.", everything, "Rest."]) as server:
        ident = await first_run(tmp_path, "process")
        monkeypatch.setenv("PATH", str(tmp_path))  # no tmux there
        monkeypatch.delenv("TMUX", raising=False)
        async with opened(tmp_path, resume=ident, attended=True, settings=settings("tmux")) as session:
            assert [each.name for each in session.parts.teams.members()] == ["ann"]
            assert (entry()["backendType"], entry()["tmuxPaneId"]) == ("in-process", "in-process")
            await woken(session)
    assert any(
        "heron" in everything(each.body) and "Go on." in everything(each.body) for each in server.requests
    )


@pytest.mark.spec("TRN-02", "TEAM-09")
@pytest.mark.parametrize(("before", "after"), [("process", "in-process"), ("in-process", "process")])
async def test_a_member_moves_with_the_setting_and_the_roster_says_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str
) -> None:
    lead = [*LEAD, tell("ann", "Go on."), "Wait.", "Good."]
    async with provider(monkeypatch, lead=lead, ann=["Rest."]) as server:
        ident = await first_run(tmp_path, before)
        assert entry()["backendType"] == before
        async with opened(tmp_path, resume=ident, settings=settings(after)) as session:
            assert (entry()["backendType"], entry()["tmuxPaneId"]) == (after, after)
            await woken(session)
            assert entry()["isActive"] is False
    assert any(
        "heron" in everything(each.body) and "Go on." in everything(each.body) for each in server.requests
    )


@pytest.mark.spec("TRN-02", "USR-02")
@pytest.mark.parametrize("mode", ["process", "in-process"])
async def test_a_team_stays_whole_when_it_is_taken_up_with_nothing_left_to_spend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    async with provider(monkeypatch, lead=LEAD, ann=["Rest."]):
        ident = await first_run(tmp_path, mode)
        async with opened(tmp_path, resume=ident, settings=settings(mode), max_total_tokens=1) as session:
            assert [each.name for each in session.parts.teams.members()] == ["ann"]
        assert entry()["name"] == "ann"


@pytest.mark.spec("TEAM-05")
@pytest.mark.parametrize("mode", ["process", "in-process"])
async def test_one_that_rests_is_not_shown_at_work_because_its_lead_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    async with provider(monkeypatch, lead=LEAD, ann=["Rest."]):
        ident = await first_run(tmp_path, mode)
        path = home() / "teams" / "crew" / "config.json"
        path.write_text(path.read_text().replace('"isActive": false', '"isActive": true'))
        assert entry()["isActive"]
        async with opened(tmp_path, resume=ident, settings=settings(mode)), asyncio.timeout(30):
            while entry()["isActive"]:
                await asyncio.sleep(0.01)


@pytest.mark.spec("USR-02")
async def test_what_a_process_spent_counts_once_in_the_next_process_of_its_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with provider(monkeypatch, lead=LEAD, ann=["Rest."]):
        async with opened(tmp_path, settings=settings("process")) as session, asyncio.timeout(20):
            await all_turns(session, "Go.")
            before = session.agent.purse.tree.usage
            ident = session.agent.identity.session
        assert before.total_tokens > 0
        async with opened(tmp_path, resume=ident, settings=settings("process")) as session:
            assert session.agent.purse.tree.usage == before


@pytest.mark.spec("TRN-02", "LIF-06")
async def test_a_member_that_cannot_be_read_now_keeps_nobody_from_work_and_is_there_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lead = [CREATE, [member("ann"), member("bob")], "Wait.", "Good."]
    async with provider(monkeypatch, lead=lead, ann=["Rest."], bob=["Rest."]):
        ident = await first_run(tmp_path, "in-process")
        inbox = home() / "teams" / "crew" / "inboxes" / "ann.json"
        inbox.rename(inbox.with_suffix(".away"))
        inbox.mkdir()
        async with opened(tmp_path, resume=ident, settings=settings("in-process")) as session:
            assert [each.name for each in session.parts.teams.members()] == ["bob"]
            await woken(session)
            told = "\n".join(message.text for message in session.agent.conversation.messages)
        assert "it cannot be taken up now" in told
        inbox.rmdir()
        inbox.with_suffix(".away").rename(inbox)
        async with opened(tmp_path, resume=ident, settings=settings("in-process")) as session:
            assert sorted(each.name for each in session.parts.teams.members()) == ["ann", "bob"]
