"""Teammates that are seen in panes, and other programs that run in them; with a real tmux."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from cast import all_turns, recorded, use
from fleet import approve, asked_of, everything, once, opened, provider
from foreign_mail import AT, body, entry, rest, written
from shoal.core.events import AgentEnded, MemberRested, Noted
from shoal.core.names import AgentName, TeamName
from tmux_rig import WAITING, TmuxServer
from troupe import config, home, inbox, member, tell

CREATE = use("TeamCreate", team_name="crew")
TELLING = (
    *(sys.executable, "-S", "-c"),
    "import json, signal, sys; open(sys.argv[1], 'w').write(json.dumps(sys.argv[2:])); signal.pause()",
)
"""Words for a program that writes its arguments into a pipe and stays."""
END = tell("ann", {"type": "shutdown_request", "reason": "done"})


def settings(**own: object) -> str:
    return json.dumps({"shoal": {"shutdown_grace": 10, **own}})


@pytest.mark.spec("BCK-01", "BCK-03", "MSG-04", "MSG-11", "USR-20")
async def test_inside_tmux_a_teammate_is_shown_in_a_pane_that_closes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmux: TmuxServer
) -> None:
    for name, value in tmux.begin().inside.items():
        monkeypatch.setenv(name, value)
    lead = [CREATE, member("ann"), once(END, when="End it.")]
    ann = [tell("team-lead", "The herons are back.", "report"), "Resting now.", approve]
    async with (
        provider(monkeypatch, lead=lead, ann=ann),
        opened(tmp_path, settings=settings(), attended=True) as session,
        asyncio.timeout(40),
    ):
        await all_turns(session, "Go.")
        entered = config("crew")["members"][1]
        pane = entered["tmuxPaneId"]
        assert entered["backendType"] == "tmux"
        assert pane in tmux.rows("#{pane_id}")
        await tmux.shows(pane, "Resting now.")
        await all_turns(session, "End it.")
        assert pane not in tmux.rows("#{pane_id}")
        answers = [
            json.loads(each["text"]) for each in inbox("crew", "team-lead") if "approved" in each["text"]
        ]
    assert (answers[0]["paneId"], answers[0]["backendType"]) == (pane, "tmux")
    assert len(tmux.rows("#{pane_id}")) == 1


@pytest.mark.spec("TEAM-07")
async def test_a_team_is_deleted_with_the_panes_and_the_processes_of_those_who_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmux: TmuxServer
) -> None:
    for name, value in tmux.begin().inside.items():
        monkeypatch.setenv(name, value)
    lead = [CREATE, [member("ann"), member("bob")], once(use("TeamDelete"), when="Delete it.")]
    async with (
        provider(monkeypatch, lead=lead, ann=["Resting now."], bob=["Resting now."]),
        opened(tmp_path, settings=settings(), attended=True) as session,
        asyncio.timeout(40),
    ):
        await all_turns(session, "Go.")
        assert len(tmux.rows("#{pane_id}")) == 3
        pids = [each.pid for each in session.parts.teams.members()]
        assert len(pids) == 2
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)
        await all_turns(session, "Delete it.")
        assert len(tmux.rows("#{pane_id}")) == 1
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
        for place in ("teams", "tasks"):
            assert not (Path(session.parts.settings.home) / place / "crew").exists()


@pytest.mark.spec("USR-20")
async def test_a_teammate_outlives_its_pane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmux: TmuxServer
) -> None:
    for name, value in tmux.begin().inside.items():
        monkeypatch.setenv(name, value)
    lead = [CREATE, member("ann"), once(tell("ann", "Are you there?", "asking"), when="Ask it.")]
    ann = ["Resting now.", tell("team-lead", "Still here.", "report"), "Rest."]
    async with (
        provider(monkeypatch, lead=lead, ann=ann) as server,
        opened(tmp_path, settings=settings(teammate_mode="tmux"), attended=True) as session,
        asyncio.timeout(40),
    ):
        await all_turns(session, "Go.")
        tmux("kill-pane", "-t", config("crew")["members"][1]["tmuxPaneId"])
        await all_turns(session, "Ask it.")
    assert any("Still here." in everything(body) for body in asked_of(server, "lead"))


@pytest.mark.spec("BCK-03", "BCK-06")
async def test_another_program_is_a_member_in_its_pane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmux: TmuxServer
) -> None:
    """It is started with the words of the child command line, and nothing else ties it to the lead."""
    for name, value in tmux.begin().inside.items():
        monkeypatch.setenv(name, value)
    program = {"scout": [sys.executable, "-m", "shoal"]}
    agents = {"scout": {"description": "Looks.", "prompt": "You look."}}
    (tmp_path / ".claude" / "agents").mkdir(parents=True)
    front = "---\nname: scout\ndescription: Looks.\n---\nYou look.\n"
    (tmp_path / ".claude" / "agents" / "scout.md").write_text(front)
    lead = [
        CREATE,
        use("TaskCreate", subject="Look", description="Around."),
        member("ann", subagent_type="scout"),
        once(END, when="I saw it"),
    ]
    ann = [
        use("TaskUpdate", "t1", taskId="1", status="completed"),
        use("Bash", "b1", command="echo marks: $CLAUDECODE $CLAUDE_CODE_ENTRYPOINT"),
        tell("team-lead", "I saw it.", "report"),
        "Rest.",
        approve,
    ]
    async with (
        provider(monkeypatch, lead=lead, ann=ann) as server,
        opened(tmp_path, settings=settings(teammate_programs=program), agents=agents) as session,
        asyncio.timeout(40),
    ):
        await all_turns(session, "Go.")
        events = recorded(session)
        assert [each["name"] for each in config("crew")["members"]] == ["team-lead"]
    assert not any(isinstance(event, MemberRested) for event in events)
    assert not [event.text for event in events if isinstance(event, Noted) and "refus" in event.text]
    assert any("I saw it." in everything(body) for body in asked_of(server, "lead"))
    assert any("marks: 1 cli" in everything(body) for body in asked_of(server, "ann"))
    task = json.loads((Path(session.parts.settings.home) / "tasks" / "crew" / "1.json").read_text())
    assert task["status"] == "completed"
    assert len(tmux.rows("#{pane_id}")) == 1


@pytest.mark.spec("TEAM-08", "BCK-03")
async def test_the_mode_of_another_program_is_among_its_words_and_not_in_the_roster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmux: TmuxServer
) -> None:
    for name, value in tmux.begin().inside.items():
        monkeypatch.setenv(name, value)
    spawn = [
        member("ann", subagent_type="scout", mode="acceptEdits"),
        member("bob", subagent_type="scout", mode="plan"),
        member("cyd", subagent_type="scout"),
    ]
    given = {
        "settings": settings(teammate_programs={"scout": WAITING}),
        "agents": {"scout": {"description": "Looks.", "prompt": "You look."}},
        "skip_permissions": False,
        "mode": "acceptEdits",
        "allowed_tools": ["Read"],
        "disallowed_tools": ["Bash(rm:*)"],
    }
    async with (
        provider(monkeypatch, lead=[CREATE, spawn, "Wait."]),
        opened(tmp_path, **given) as session,
        asyncio.timeout(40),
    ):
        async for _ in session.run("Go."):
            pass
        roster = config("crew")["members"][1:]
        words = {each["name"]: words_in(tmux, each["tmuxPaneId"]) for each in roster}
        ident = session.agent.identity.session
    for each in roster:
        expected = [
            *("--agent-id", each["agentId"], "--agent-name", each["name"], "--team-name", "crew"),
            *("--agent-color", each["color"], "--parent-session-id", ident, "--agent-type", "scout"),
            *("--model", each["model"]),
        ]
        assert words[each["name"]][: len(expected)] == expected
        assert not [key for key in each if "permission" in key.lower() or key == "mode"]
    rules = ["--allowedTools", "Read", "--disallowedTools", "Bash(rm:*)"]
    assert words["ann"][14:] == ["--permission-mode", "acceptEdits", *rules]
    assert words["bob"][14:] == ["--plan-mode-required", *rules]
    assert words["cyd"][14:] == rules
    assert [each["name"] for each in roster if each["planModeRequired"]] == ["bob"]


def words_in(tmux: TmuxServer, pane: str) -> list[str]:
    """Of the command line of what runs in a pane, behind the program itself."""
    pid = tmux("display-message", "-p", "-t", pane, "#{pane_pid}")
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]
    return words[words.index("--agent-id") :]


@pytest.mark.spec("LIF-04")
async def test_another_program_that_dies_is_told_of_within_two_seconds_and_its_task_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmux: TmuxServer
) -> None:
    for name, value in tmux.begin().inside.items():
        monkeypatch.setenv(name, value)
    given = {
        "settings": settings(teammate_programs={"scout": WAITING}),
        "agents": {"scout": {"description": "Looks.", "prompt": "You look."}},
    }
    task = use("TaskCreate", subject="Look", description="Around.")
    lead = [
        CREATE,
        member("ann", subagent_type="scout"),
        task,
        use("TaskUpdate", taskId="1", owner="ann"),
        "Wait.",
    ]
    async with (
        provider(monkeypatch, lead=lead) as server,
        opened(tmp_path, **given) as session,
        asyncio.timeout(40),
    ):
        async for _ in session.run("Go."):
            pass
        ended = asyncio.Event()
        session.watch(lambda event: ended.set() if isinstance(event, AgentEnded) else None)
        (ann,) = session.parts.teams.members()
        os.kill(ann.pid or 0, signal.SIGKILL)
        async with asyncio.timeout(2):
            await ended.wait()
        await all_turns(session, "What now?")
        left = json.loads((Path(session.parts.settings.home) / "tasks" / "crew" / "1.json").read_text())
        assert [each["name"] for each in config("crew")["members"]] == ["team-lead"]
    heard = everything(asked_of(server, "lead")[-1])
    assert "teammate_terminated: task ann@crew, type scout, status failed: it was killed by signal 9" in heard
    assert (left["status"], left.get("owner")) == ("pending", None)


@pytest.mark.spec("AGT-11", "AGT-07", "PRM-07")
@pytest.mark.parametrize(
    ("lead", "wish", "words"),
    [
        ("default", None, []),
        ("default", "plan", ["--plan-mode-required"]),
        ("acceptEdits", "delegate", ["--permission-mode", "acceptEdits"]),
        ("default", "acceptEdits", ["--permission-mode", "default"]),
        ("default", "bypassPermissions", ["--permission-mode", "default"]),
        ("plan", None, ["--permission-mode", "plan"]),
        ("bypassPermissions", None, ["--dangerously-skip-permissions"]),
        ("bypassPermissions", "bypassPermissions", ["--dangerously-skip-permissions"]),
        ("bypassPermissions", "plan", ["--plan-mode-required", "--dangerously-skip-permissions"]),
        ("bypassPermissions", "acceptEdits", ["--permission-mode", "acceptEdits"]),
    ],
)
async def test_another_program_is_told_its_mode_and_never_one_wider_than_its_lead_s(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmux: TmuxServer,
    lead: Any,
    wish: str | None,
    words: list[str],
) -> None:
    for name, value in tmux.begin().inside.items():
        monkeypatch.setenv(name, value)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    given = {
        "settings": settings(teammate_programs={"scout": [*TELLING, str(pipe)]}),
        "agents": {"scout": {"description": "Looks.", "prompt": "You look."}},
        "skip_permissions": lead == "bypassPermissions",
        **({} if lead == "bypassPermissions" else {"mode": lead}),
    }
    more = {} if wish is None else {"mode": wish}
    begin = [CREATE, member("ann", subagent_type="scout", **more), "Wait."]
    async with provider(monkeypatch, lead=begin), opened(tmp_path, **given) as session, asyncio.timeout(40):
        async for _ in session.run("Go."):
            pass
        told = json.loads(await asyncio.to_thread(pipe.read_text))
    assert told[told.index("--model") + 2 :] == words


@pytest.mark.spec("BCK-03", "TRN-02")
async def test_another_program_is_one_again_when_its_team_is_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmux: TmuxServer
) -> None:
    """What it writes is believed as before, and its inbox is kept as other programs read one."""
    for name, value in tmux.begin().inside.items():
        monkeypatch.setenv(name, value)
    given = {
        "settings": settings(teammate_programs={"scout": WAITING}),
        "agents": {"scout": {"description": "Looks.", "prompt": "You look."}},
    }
    lead = [CREATE, member("ann", subagent_type="scout"), "Wait."]
    async with provider(monkeypatch, lead=lead), asyncio.timeout(40):
        async with opened(tmp_path, **given) as session:
            async for _ in session.run("Go."):
                pass
            assert session.parts.between.mailboxes(TeamName("crew")).is_foreign(AgentName("ann"))
        ident = session.agent.identity.session
        async with opened(tmp_path, resume=ident, **given) as session:
            assert [each.name for each in session.parts.teams.members()] == ["ann"]
            assert session.parts.between.mailboxes(TeamName("crew")).is_foreign(AgentName("ann"))


async def test_another_program_that_removes_its_inbox_ends_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmux: TmuxServer
) -> None:
    for name, value in tmux.begin().inside.items():
        monkeypatch.setenv(name, value)
    given = {
        "settings": settings(teammate_programs={"scout": WAITING}),
        "agents": {"scout": {"description": "Looks.", "prompt": "You look."}},
    }
    async with (
        provider(monkeypatch, lead=[CREATE, member("ann", subagent_type="scout"), "Wait."]) as server,
        opened(tmp_path, **given) as session,
        asyncio.timeout(40),
    ):
        async for _ in session.run("Go."):
            pass
        (home() / "teams" / "crew" / "inboxes" / "ann.json").unlink()
        idle = {"from": "ann", "timestamp": AT, "idleReason": "available"}
        await written("team-lead", entry("ann", body("idle_notification", idle)))
        await rest(session)
        assert [each.name for each in session.parts.teams.members()] == ["ann"]
    assert "ann is idle (available)." in everything(asked_of(server, "lead")[-1])
