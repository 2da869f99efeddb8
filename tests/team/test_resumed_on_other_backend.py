"""Resumed teams with another backend or a spent budget."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from team_helpers import make_shoal_settings

import shoal
from agent_scripts import call_tool, run_all_turns
from server_scripts import join_conversation, list_requests_of, open_process_session, run_provider
from shoal.app.agents.backend_launcher import LOG_DIRECTORY
from shoal.app.teams.team_store import TeamStore
from shoal.backends.guardian import list_descendant_pids
from shoal.core.clock import SystemClock
from shoal.core.ids import IdGenerator
from shoal.core.teams.tasks import TaskDraft
from shoal.team.members import member_recovery
from team_scripts import get_home, read_inbox, read_team_config, send_message, spawn_member

CREATE = call_tool("TeamCreate", team_name="crew")
LEAD = [CREATE, spawn_member("ann", "Remember heron."), "Wait.", "Good."]


async def run_first_session(cwd: Path, mode: str) -> str:
    """Run a team until its member is idle; return the session id."""
    async with (
        open_process_session(cwd, settings=make_shoal_settings(teammate_mode=mode)) as session,
        asyncio.timeout(20),
    ):
        await run_all_turns(session, "Go.")
        return session.agent.identity.session


def read_member_entry() -> dict[str, Any]:
    (found,) = [each for each in read_team_config("crew")["members"] if each["name"] == "ann"]
    return found


async def wake_member(session: shoal.Session) -> None:
    async with asyncio.timeout(20):
        await run_all_turns(session, "Wake ann.")


@pytest.mark.spec("TRN-02", "BCK-01")
async def test_a_member_whose_backend_is_unavailable_continues_in_the_lead_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lead = [*LEAD, send_message("ann", "Go on."), "Wait.", "Good."]
    async with run_provider(monkeypatch, lead=lead, ann=["Rest.", join_conversation, "Rest."]) as server:
        ident = await run_first_session(tmp_path, "process")
        monkeypatch.setenv("PATH", str(tmp_path))  # no tmux there
        monkeypatch.delenv("TMUX", raising=False)
        async with open_process_session(
            tmp_path, resume=ident, attended=True, settings=make_shoal_settings(teammate_mode="tmux")
        ) as session:
            assert [each.name for each in session.teams.list_members()] == ["ann"]
            assert (read_member_entry()["backendType"], read_member_entry()["tmuxPaneId"]) == (
                "in-process",
                "in-process",
            )
            await wake_member(session)
    assert any(
        "heron" in join_conversation(each.body) and "Go on." in join_conversation(each.body)
        for each in server.requests
    )


@pytest.mark.spec("TRN-02", "BCK-01")
async def test_a_member_that_cannot_continue_here_either_is_down_for_the_first_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its directory is on another machine, as after its cluster was lost."""
    async with run_provider(monkeypatch, lead=LEAD, ann=["Rest."]):
        ident = await run_first_session(tmp_path, "in-process")
        for path in (
            get_home() / "teams" / "crew" / "config.json",
            *get_home().glob("projects/*/*/subagents/agent-ann@crew.meta.json"),
        ):
            path.write_text(path.read_text().replace(str(tmp_path), "/elsewhere/checkout"))
        async with open_process_session(
            tmp_path, resume=ident, settings=make_shoal_settings(teammate_mode="ray")
        ) as session:
            (member,) = session.teams.list_members()
    assert member.state == "down"
    assert "no Ray cluster is configured" in member.down_cause


@contextmanager
def kill_first_start() -> Iterator[None]:
    """Kill the first process of ann that is seen, as early as possible."""

    def find_and_kill() -> None:
        while not is_over.is_set():
            for pid in list_descendant_pids(os.getpid()):
                with suppress(OSError):
                    if Path(f"/proc/{pid}/comm").read_text() == "shoal:ann\n":
                        os.kill(pid, signal.SIGKILL)
                        return

    is_over = threading.Event()
    killer = threading.Thread(target=find_and_kill)
    killer.start()
    try:
        yield
    finally:
        is_over.set()
        killer.join()


@contextmanager
def block_first_starts(session: str) -> Iterator[None]:
    """Make every start fail: the logs of members cannot be opened."""
    logs = get_home() / "shoal" / "runs" / session / LOG_DIRECTORY
    shutil.rmtree(logs)
    logs.write_text("not a directory")
    try:
        yield
    finally:
        logs.unlink()


@pytest.mark.spec("TRN-02", "LIF-04", "BCK-01")
@pytest.mark.parametrize("fault", ["killed", "not started"])
async def test_a_member_whose_first_start_fails_is_started_again_on_its_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    # Without a message, the second attempt would come after the end of the test.
    monkeypatch.setattr(member_recovery, "RETRY_DELAYS", (0.0, 3600.0))
    lead = [*LEAD, send_message("ann", "Go on."), "Wait.", "Good."]
    async with run_provider(monkeypatch, lead=lead, ann=["Rest."]) as server:
        ident = await run_first_session(tmp_path, "process")
        with ExitStack() as faults:
            faults.enter_context(kill_first_start() if fault == "killed" else block_first_starts(ident))
            async with open_process_session(tmp_path, resume=ident) as session, asyncio.timeout(30):
                assert [each.name for each in session.list_members()] == ["ann"]
                assert read_member_entry()["backendType"] == "process"
                faults.close()
                await session.send("ann", "Go on.")
                await session.teams.wait_until_idle()
                (member,) = session.list_members()
                assert (member.state, member.pane) == ("idle", "process")
                assert member.pid not in (None, os.getpid())
    asked = [join_conversation(each) for each in list_requests_of(server, "ann")]
    assert any("heron" in each and "Go on." in each for each in asked)


@pytest.mark.spec("TRN-02", "LIF-04")
async def test_a_process_member_without_a_transcript_leaves_the_team(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_provider(monkeypatch, lead=LEAD, ann=["Rest."]):
        ident = await run_first_session(tmp_path, "process")
        for path in get_home().glob("projects/*/*/subagents/agent-ann@crew.*"):
            path.unlink()
        async with open_process_session(tmp_path, resume=ident) as session:
            assert session.list_members() == ()
            await wake_member(session)
            told = "\n".join(message.text for message in session.agent.conversation.messages)
    assert "no transcript" in told
    assert [each["name"] for each in read_team_config("crew")["members"]] == ["team-lead"]


@pytest.mark.spec("TRN-02", "TEAM-09")
@pytest.mark.parametrize(("before", "after"), [("process", "in-process"), ("in-process", "process")])
async def test_a_resumed_member_moves_to_the_configured_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str
) -> None:
    lead = [*LEAD, send_message("ann", "Go on."), "Wait.", "Good."]
    async with run_provider(monkeypatch, lead=lead, ann=["Rest."]) as server:
        ident = await run_first_session(tmp_path, before)
        assert read_member_entry()["backendType"] == before
        async with open_process_session(
            tmp_path, resume=ident, settings=make_shoal_settings(teammate_mode=after)
        ) as session:
            assert (read_member_entry()["backendType"], read_member_entry()["tmuxPaneId"]) == (after, after)
            await wake_member(session)
            assert read_member_entry()["isActive"] is False
    assert any(
        "heron" in join_conversation(each.body) and "Go on." in join_conversation(each.body)
        for each in server.requests
    )


@pytest.mark.spec("TRN-02", "USR-02")
@pytest.mark.parametrize("mode", ["process", "in-process"])
async def test_a_team_stays_complete_when_resumed_with_a_spent_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    async with run_provider(monkeypatch, lead=LEAD, ann=["Rest."]):
        ident = await run_first_session(tmp_path, mode)
        async with open_process_session(
            tmp_path, resume=ident, settings=make_shoal_settings(teammate_mode=mode), max_total_tokens=1
        ) as session:
            assert [each.name for each in session.teams.list_members()] == ["ann"]
        assert read_member_entry()["name"] == "ann"


@pytest.mark.spec("USR-02", "TEAM-05")
@pytest.mark.parametrize("mode", ["process", "in-process"])
async def test_members_claim_no_task_when_the_budget_of_the_run_is_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    lead = [CREATE, [spawn_member("ann"), spawn_member("bob")], "Wait.", "Good."]
    async with run_provider(monkeypatch, lead=lead, ann=["Rest."], bob=["Rest."]) as server:
        ident = await run_first_session(tmp_path, mode)
        sent = len(server.requests)
        store = TeamStore(get_home(), clock=SystemClock(), ids=IdGenerator())
        await store.open_board("crew").create(TaskDraft(subject="Dig", description=""))
        await store.aclose()
        async with (
            open_process_session(
                tmp_path, resume=ident, settings=make_shoal_settings(teammate_mode=mode), max_total_tokens=1
            ) as session,
            asyncio.timeout(30),
        ):
            await session.wait_agents_idle()
            states = {each.name: each.state for each in session.teams.list_members()}
        mail = [json.loads(each["text"]) for each in read_inbox("crew", "team-lead")]
    transcripts = list(get_home().glob("projects/*/*/subagents/agent-*@crew.jsonl"))
    assert len(transcripts) == 2
    assert states == {"ann": "idle", "bob": "idle"}
    assert len(server.requests) == sent
    failed = {each["from"]: each["failureReason"] for each in mail if each.get("idleReason") == "failed"}
    assert failed.keys() == {"ann", "bob"}
    assert all("the budget of 1 tokens is spent" in reason for reason in failed.values())
    assert not any("is yours now" in path.read_text() for path in transcripts)


@pytest.mark.spec("TEAM-05")
@pytest.mark.parametrize("mode", ["process", "in-process"])
async def test_an_idle_member_is_shown_idle_after_its_lead_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    async with run_provider(monkeypatch, lead=LEAD, ann=["Rest."]):
        ident = await run_first_session(tmp_path, mode)
        path = get_home() / "teams" / "crew" / "config.json"
        path.write_text(path.read_text().replace('"isActive": false', '"isActive": true'))
        assert read_member_entry()["isActive"]
        async with (
            open_process_session(tmp_path, resume=ident, settings=make_shoal_settings(teammate_mode=mode)),
            asyncio.timeout(30),
        ):
            while read_member_entry()["isActive"]:
                await asyncio.sleep(0.01)


@pytest.mark.spec("USR-02")
async def test_spending_of_a_process_member_counts_once_after_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_provider(monkeypatch, lead=LEAD, ann=["Rest."]):
        async with (
            open_process_session(tmp_path, settings=make_shoal_settings(teammate_mode="process")) as session,
            asyncio.timeout(20),
        ):
            await run_all_turns(session, "Go.")
            before = session.agent.budget.budget.usage
            ident = session.agent.identity.session
        assert before.total_tokens > 0
        async with open_process_session(
            tmp_path, resume=ident, settings=make_shoal_settings(teammate_mode="process")
        ) as session:
            assert session.agent.budget.budget.usage == before


@pytest.mark.spec("TRN-02", "LIF-06")
async def test_a_member_whose_inbox_is_not_a_file_is_resumed_with_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lead = [CREATE, [spawn_member("ann"), spawn_member("bob")], "Wait.", "Good."]
    async with run_provider(monkeypatch, lead=lead, ann=["Rest."], bob=["Rest."]):
        ident = await run_first_session(tmp_path, "in-process")
        inbox = get_home() / "teams" / "crew" / "inboxes" / "ann.json"
        inbox.rename(inbox.with_suffix(".away"))
        inbox.mkdir()
        async with open_process_session(
            tmp_path, resume=ident, settings=make_shoal_settings(teammate_mode="in-process")
        ) as session:
            states = {each.name: each.state for each in session.teams.list_members()}
            assert states == {"ann": "idle", "bob": "idle"}
            await wake_member(session)
        assert [each["name"] for each in read_team_config("crew")["members"]] == ["team-lead", "ann", "bob"]
        assert inbox.is_file()


@pytest.mark.spec("TRN-02", "LIF-06", "TEAM-05")
async def test_an_unreadable_member_is_down_and_resumed_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lead = [CREATE, [spawn_member("ann"), spawn_member("bob")], "Wait.", "Good."]
    settings = make_shoal_settings(teammate_mode="in-process")
    async with run_provider(monkeypatch, lead=lead, ann=["Ready."], bob=["Ready."]), asyncio.timeout(60):
        ident = await run_first_session(tmp_path, "in-process")
        # It holds the restrictions of the agent, so nothing replaces it.
        (description,) = get_home().glob("projects/*/*/subagents/agent-ann@crew.meta.json")
        content = description.read_bytes()
        description.write_bytes(content[:100])
        async with open_process_session(tmp_path, resume=ident, settings=settings) as session:
            states = {each.name: each.state for each in session.teams.list_members()}
            assert states == {"ann": "down", "bob": "idle"}
            await wake_member(session)
            told = "\n".join(message.text for message in session.agent.conversation.messages)
        assert "The teammate ann is down" in told
        assert any(description.name in note for note in session.notes)
        assert [each["name"] for each in read_team_config("crew")["members"]] == ["team-lead", "ann", "bob"]
        description.write_bytes(content)
        async with open_process_session(tmp_path, resume=ident, settings=settings) as session:
            states = {each.name: each.state for each in session.teams.list_members()}
            assert states == {"ann": "idle", "bob": "idle"}
