"""Members shown in panes and foreign programs in panes, with a real tmux."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from team_helpers import make_shoal_settings

from agent_scripts import call_tool, read_events, run_all_turns
from elapsed_times import scale_to_load
from foreign_mail import TIMESTAMP, encode_body, make_entry, run_until_quiet, write_to_inbox
from server_scripts import (
    approve_shutdown,
    call_once_after,
    join_conversation,
    list_requests_of,
    open_process_session,
    run_provider,
)
from shoal.backends.guardian import list_descendant_pids
from shoal.core.events import AgentEnded, MemberWentIdle, NoteAdded
from shoal.core.names import AgentName, TeamName
from team_scripts import get_home, read_inbox, read_team_config, send_message, spawn_member
from tmux_server import WAITING_PROGRAM, TmuxServer

CREATE = call_tool("TeamCreate", team_name="crew")
REPORTING_PROGRAM = (
    *(sys.executable, "-S", "-c"),
    "import json, signal, sys; open(sys.argv[1], 'w').write(json.dumps(sys.argv[2:])); signal.pause()",
)
"""Command line of a program that writes its arguments into a pipe and waits."""
END = send_message("ann", {"type": "shutdown_request", "reason": "done"})


@pytest.mark.spec("BCK-01", "BCK-03", "MSG-04", "MSG-11", "USR-20")
async def test_inside_tmux_a_member_is_shown_in_a_pane_that_closes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmux: TmuxServer
) -> None:
    for name, value in tmux.start_user_session().inside_env.items():
        monkeypatch.setenv(name, value)
    lead = [CREATE, spawn_member("ann"), call_once_after(END, text="End it.")]
    ann = [send_message("team-lead", "The herons are back.", "report"), "Resting now.", approve_shutdown]
    async with (
        run_provider(monkeypatch, lead=lead, ann=ann),
        open_process_session(
            tmp_path, settings=make_shoal_settings(shutdown_grace=10), attended=True
        ) as session,
        asyncio.timeout(40),
    ):
        await run_all_turns(session, "Go.")
        entered = read_team_config("crew")["members"][1]
        pane = entered["tmuxPaneId"]
        assert entered["backendType"] == "tmux"
        assert pane in tmux.list_panes("#{pane_id}")
        await tmux.wait_for_text(pane, "Resting now.")
        await run_all_turns(session, "End it.")
        assert pane not in tmux.list_panes("#{pane_id}")
        answers = [
            json.loads(each["text"]) for each in read_inbox("crew", "team-lead") if "approved" in each["text"]
        ]
    assert (answers[0]["paneId"], answers[0]["backendType"]) == (pane, "tmux")
    assert len(tmux.list_panes("#{pane_id}")) == 1


@pytest.mark.spec("TEAM-07")
async def test_deleting_a_team_closes_the_panes_and_processes_of_its_idle_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmux: TmuxServer
) -> None:
    for name, value in tmux.start_user_session().inside_env.items():
        monkeypatch.setenv(name, value)
    lead = [
        CREATE,
        [spawn_member("ann"), spawn_member("bob")],
        call_once_after(call_tool("TeamDelete"), text="Delete it."),
    ]
    async with (
        run_provider(monkeypatch, lead=lead, ann=["Resting now."], bob=["Resting now."]),
        open_process_session(
            tmp_path, settings=make_shoal_settings(shutdown_grace=10), attended=True
        ) as session,
        asyncio.timeout(40),
    ):
        await run_all_turns(session, "Go.")
        assert len(tmux.list_panes("#{pane_id}")) == 3
        pids = [each.pid for each in session.teams.list_members()]
        assert len(pids) == 2
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)
        await run_all_turns(session, "Delete it.")
        assert len(tmux.list_panes("#{pane_id}")) == 1
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
        for place in ("teams", "tasks"):
            assert not (Path(session.runtime.settings.home) / place / "crew").exists()


@pytest.mark.spec("USR-20")
async def test_a_member_survives_the_loss_of_its_pane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmux: TmuxServer
) -> None:
    for name, value in tmux.start_user_session().inside_env.items():
        monkeypatch.setenv(name, value)
    lead = [
        CREATE,
        spawn_member("ann"),
        call_once_after(send_message("ann", "Are you there?", "asking"), text="Ask it."),
    ]
    ann = ["Resting now.", send_message("team-lead", "Still here.", "report"), "Rest."]
    async with (
        run_provider(monkeypatch, lead=lead, ann=ann) as server,
        open_process_session(
            tmp_path, settings=make_shoal_settings(shutdown_grace=10, teammate_mode="tmux"), attended=True
        ) as session,
        asyncio.timeout(40),
    ):
        await run_all_turns(session, "Go.")
        tmux("kill-pane", "-t", read_team_config("crew")["members"][1]["tmuxPaneId"])
        await run_all_turns(session, "Ask it.")
    assert any("Still here." in join_conversation(body) for body in list_requests_of(server, "lead"))


finds_viewers = pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the name of a viewer")


def find_own_process(title: str) -> int:
    """Return the pid of the descendant with this title, or 0."""
    for pid in list_descendant_pids(os.getpid()):
        with suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text() == f"{title}\n":
                return pid
    return 0


@finds_viewers
@pytest.mark.spec("BCK-03", "USR-20")
async def test_the_viewer_of_a_pane_is_forked_and_takes_input_and_new_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmux: TmuxServer
) -> None:
    for name, value in tmux.start_user_session().inside_env.items():
        monkeypatch.setenv(name, value)
    ann = ["Resting now. " + "A long line. " * 20, "I minded it.", "Rest."]
    async with (
        run_provider(monkeypatch, lead=[CREATE, spawn_member("ann"), "So be it."], ann=ann),
        open_process_session(
            tmp_path, settings=make_shoal_settings(shutdown_grace=10), attended=True
        ) as session,
        asyncio.timeout(60),
    ):
        await run_all_turns(session, "Go.")
        pane = read_team_config("crew")["members"][1]["tmuxPaneId"]
        await tmux.wait_for_text(pane, "Resting now.")
        viewer = find_own_process("shoal:view-ann")
        assert viewer
        shell = int(tmux("display-message", "-p", "-t", pane, "#{pane_pid}"))
        assert not Path(f"/proc/{shell}/task/{shell}/children").read_text()
        assert b"ANTHROPIC_API_KEY" not in Path(f"/proc/{viewer}/environ").read_bytes()
        assert not list((session.runtime.store.directory / "members").glob(".*.pane"))
        # The text below is typed at the prompt, and drawn anew in the new width.
        tmux("send-keys", "-t", pane, "-l", "x" * 60)
        await tmux.wait_for_text(pane, "x" * 60)
        tmux("resize-pane", "-t", pane, "-x", "40")
        await tmux.wait_until(
            lambda: "x" * 36 in (rows := tmux("capture-pane", "-p", "-t", pane)) and "x" * 40 not in rows,
            "the prompt in the new width",
        )
        tmux("send-keys", "-t", pane, "C-u")
        tmux("send-keys", "-t", pane, "-l", "mind the valve")
        tmux("send-keys", "-t", pane, "Enter")
        await tmux.wait_for_text(pane, "I minded it.")
        tmux("send-keys", "-t", pane, "C-c")
        await tmux.wait_until(lambda: pane not in tmux.list_panes("#{pane_id}"), "the end of the pane")
        await tmux.wait_until(lambda: not Path(f"/proc/{viewer}").exists(), "the end of the viewer")
        assert session.teams.list_members()[0].pid
    assert not [each for each in read_events(session) if isinstance(each, NoteAdded) and "pane" in each.text]


@finds_viewers
@pytest.mark.sampled(1)
@pytest.mark.spec("USR-20")
@pytest.mark.parametrize("victim", ["viewer", "shell", "fork server"])
async def test_a_killed_part_of_a_pane_ends_neither_the_pane_nor_the_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmux: TmuxServer, victim: str
) -> None:
    """A program replaces a killed viewer. Without its shell, the pane closes and the viewer ends."""
    for name, value in tmux.start_user_session().inside_env.items():
        monkeypatch.setenv(name, value)
    lead = [CREATE, spawn_member("ann"), call_once_after(send_message("ann", "Still there?"), text="Ask it.")]
    ann = ["Resting now.", "I am here.", "Rest."]
    async with (
        run_provider(monkeypatch, lead=lead, ann=ann),
        open_process_session(
            tmp_path, settings=make_shoal_settings(shutdown_grace=10), attended=True
        ) as session,
        asyncio.timeout(60),
    ):
        await run_all_turns(session, "Go.")
        pane = read_team_config("crew")["members"][1]["tmuxPaneId"]
        await tmux.wait_for_text(pane, "Resting now.")
        viewer = find_own_process("shoal:view-ann")
        assert viewer
        shell = int(tmux("display-message", "-p", "-t", pane, "#{pane_pid}"))
        found = {"viewer": viewer, "shell": shell, "fork server": find_own_process("shoal:forks")}
        os.kill(found[victim], signal.SIGKILL)
        await tmux.wait_until(lambda: not Path(f"/proc/{viewer}").exists(), "the end of the viewer")
        if victim == "shell":
            await tmux.wait_until(lambda: pane not in tmux.list_panes("#{pane_id}"), "the end of the pane")
        elif victim == "viewer":
            children = Path(f"/proc/{shell}/task/{shell}/children")
            await tmux.wait_until(lambda: bool(children.read_text()), "another viewer")
        await run_all_turns(session, "Ask it.")
        if victim == "shell":
            assert session.teams.list_members()[0].pid
        else:  # a member that was started again has another pane
            shown = pane if victim == "viewer" else read_team_config("crew")["members"][1]["tmuxPaneId"]
            await tmux.wait_for_text(shown, "I am here.")


@pytest.mark.spec("BCK-03", "BCK-06")
async def test_a_foreign_program_is_a_member_in_its_pane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmux: TmuxServer
) -> None:
    """Only the child command line connects it to the lead."""
    for name, value in tmux.start_user_session().inside_env.items():
        monkeypatch.setenv(name, value)
    program = {"scout": [sys.executable, "-m", "shoal"]}
    agents = {"scout": {"description": "Looks.", "prompt": "You look."}}
    (tmp_path / ".claude" / "agents").mkdir(parents=True)
    front = "---\nname: scout\ndescription: Looks.\n---\nYou look.\n"
    (tmp_path / ".claude" / "agents" / "scout.md").write_text(front)
    lead = [
        CREATE,
        call_tool("TaskCreate", subject="Look", description="Around."),
        spawn_member("ann", subagent_type="scout"),
        call_once_after(END, text="I saw it"),
    ]
    ann = [
        call_tool("TaskUpdate", "t1", taskId="1", status="completed"),
        call_tool("Bash", "b1", command="echo marks: $CLAUDECODE $CLAUDE_CODE_ENTRYPOINT"),
        send_message("team-lead", "I saw it.", "report"),
        "Rest.",
        approve_shutdown,
    ]
    async with (
        run_provider(monkeypatch, lead=lead, ann=ann) as server,
        open_process_session(
            tmp_path,
            settings=make_shoal_settings(shutdown_grace=10, teammate_programs=program),
            agents=agents,
        ) as session,
        asyncio.timeout(40),
    ):
        await run_all_turns(session, "Go.")
        events = read_events(session)
        assert [each["name"] for each in read_team_config("crew")["members"]] == ["team-lead"]
    assert not any(isinstance(event, MemberWentIdle) for event in events)
    assert not [event.text for event in events if isinstance(event, NoteAdded) and "refus" in event.text]
    assert any("I saw it." in join_conversation(body) for body in list_requests_of(server, "lead"))
    assert any("marks: 1 cli" in join_conversation(body) for body in list_requests_of(server, "ann"))
    task = json.loads((Path(session.runtime.settings.home) / "tasks" / "crew" / "1.json").read_text())
    assert task["status"] == "completed"
    assert len(tmux.list_panes("#{pane_id}")) == 1


@pytest.mark.slow
@pytest.mark.spec("TEAM-08", "BCK-03")
async def test_the_permission_mode_of_a_foreign_program_is_an_argument_and_not_in_the_roster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmux: TmuxServer
) -> None:
    for name, value in tmux.start_user_session().inside_env.items():
        monkeypatch.setenv(name, value)
    spawn = [
        spawn_member("ann", subagent_type="scout", mode="acceptEdits"),
        spawn_member("bob", subagent_type="scout", mode="plan"),
        spawn_member("cyd", subagent_type="scout"),
    ]
    given = {
        "settings": make_shoal_settings(shutdown_grace=10, teammate_programs={"scout": WAITING_PROGRAM}),
        "agents": {"scout": {"description": "Looks.", "prompt": "You look."}},
        "skip_permissions": False,
        "mode": "acceptEdits",
        "allowed_tools": ["Read"],
        "disallowed_tools": ["Bash(rm:*)"],
    }
    async with (
        run_provider(monkeypatch, lead=[CREATE, spawn, "Wait."]),
        open_process_session(tmp_path, **given) as session,
        asyncio.timeout(40),
    ):
        async for _ in session.run("Go."):
            pass
        roster = read_team_config("crew")["members"][1:]
        words = {each["name"]: read_arguments(tmux, each["tmuxPaneId"]) for each in roster}
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


async def test_a_foreign_program_is_refused_if_it_cannot_know_the_only_tools_of_its_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmux: TmuxServer
) -> None:
    for name, value in tmux.start_user_session().inside_env.items():
        monkeypatch.setenv(name, value)
    chief = {
        "description": "Leads.",
        "prompt": "You lead.",
        "tools": ["Bash(git:*)", "TeamCreate", "Agent", "SendMessage"],
    }
    given = {
        "settings": make_shoal_settings(shutdown_grace=10, teammate_programs={"scout": WAITING_PROGRAM}),
        "agents": {"scout": {"description": "Looks.", "prompt": "You look."}, "chief": chief},
        "agent": "chief",
    }
    async with (
        run_provider(
            monkeypatch, lead=[CREATE, spawn_member("ann", subagent_type="scout"), "Wait."]
        ) as server,
        open_process_session(tmp_path, **given) as session,
        asyncio.timeout(40),
    ):
        async for _ in session.run("Go."):
            pass
        assert read_team_config("crew")["members"][1:] == []
    heard = join_conversation(list_requests_of(server, "lead")[-1])
    assert "The teammate ann was not started: its definition allows only" in heard
    assert "Bash(git:*), TeamCreate, Agent, SendMessage" in heard
    assert len(tmux.list_panes("#{pane_id}")) == 1


def read_arguments(tmux: TmuxServer, pane: str) -> list[str]:
    """Read the arguments of the program in a pane."""
    pid = tmux("display-message", "-p", "-t", pane, "#{pane_pid}")
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]
    return words[words.index("--agent-id") :]


@pytest.mark.spec("LIF-04")
async def test_the_death_of_a_foreign_program_is_reported_within_two_seconds_and_its_task_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmux: TmuxServer
) -> None:
    for name, value in tmux.start_user_session().inside_env.items():
        monkeypatch.setenv(name, value)
    given = {
        "settings": make_shoal_settings(shutdown_grace=10, teammate_programs={"scout": WAITING_PROGRAM}),
        "agents": {"scout": {"description": "Looks.", "prompt": "You look."}},
    }
    task = call_tool("TaskCreate", subject="Look", description="Around.")
    lead = [
        CREATE,
        spawn_member("ann", subagent_type="scout"),
        task,
        call_tool("TaskUpdate", taskId="1", owner="ann"),
        "Wait.",
    ]
    async with (
        run_provider(monkeypatch, lead=lead) as server,
        open_process_session(tmp_path, **given) as session,
        asyncio.timeout(40),
    ):
        async for _ in session.run("Go."):
            pass
        ended = asyncio.Event()
        session.subscribe(lambda event: ended.set() if isinstance(event, AgentEnded) else None)
        (ann,) = session.teams.list_members()
        os.kill(ann.pid or 0, signal.SIGKILL)
        async with asyncio.timeout(scale_to_load(2)):
            await ended.wait()
        await run_all_turns(session, "What now?")
        left = json.loads((Path(session.runtime.settings.home) / "tasks" / "crew" / "1.json").read_text())
        assert [each["name"] for each in read_team_config("crew")["members"]] == ["team-lead"]
    heard = join_conversation(list_requests_of(server, "lead")[-1])
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
@pytest.mark.sampled(4)
async def test_a_foreign_program_never_gets_a_wider_mode_than_its_lead(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmux: TmuxServer,
    lead: Any,
    wish: str | None,
    words: list[str],
) -> None:
    for name, value in tmux.start_user_session().inside_env.items():
        monkeypatch.setenv(name, value)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    given = {
        "settings": make_shoal_settings(
            shutdown_grace=10, teammate_programs={"scout": [*REPORTING_PROGRAM, str(pipe)]}
        ),
        "agents": {"scout": {"description": "Looks.", "prompt": "You look."}},
        "skip_permissions": lead == "bypassPermissions",
        **({} if lead == "bypassPermissions" else {"mode": lead}),
    }
    more = {} if wish is None else {"mode": wish}
    begin = [CREATE, spawn_member("ann", subagent_type="scout", **more), "Wait."]
    async with (
        run_provider(monkeypatch, lead=begin),
        open_process_session(tmp_path, **given) as session,
        asyncio.timeout(40),
    ):
        async for _ in session.run("Go."):
            pass
        told = json.loads(await asyncio.to_thread(pipe.read_text))
    assert told[told.index("--model") + 2 :] == words


@pytest.mark.slow
@pytest.mark.spec("AGT-07", "PRM-07")
async def test_a_foreign_program_gets_what_a_skill_of_the_lead_takes_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmux: TmuxServer
) -> None:
    for name, value in tmux.start_user_session().inside_env.items():
        monkeypatch.setenv(name, value)
    skill = get_home() / "skills" / "narrow" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: narrow\ndescription: d\ndisallowed-tools: Bash(touch:*)\n---\nGo on.\n")
    given = {
        "settings": make_shoal_settings(shutdown_grace=10, teammate_programs={"scout": WAITING_PROGRAM}),
        "agents": {"scout": {"description": "Looks.", "prompt": "You look."}},
        "disallowed_tools": ["Bash(rm:*)"],
    }
    narrow = call_tool("Skill", "s1", skill="narrow")
    lead = [CREATE, narrow, spawn_member("ann", subagent_type="scout"), "Wait."]
    async with (
        run_provider(monkeypatch, lead=lead),
        open_process_session(tmp_path, **given) as session,
        asyncio.timeout(40),
    ):
        async for _ in session.run("Go."):
            pass
        (ann,) = read_team_config("crew")["members"][1:]
        words = read_arguments(tmux, ann["tmuxPaneId"])
    denied = [rule for flag, rule in pairwise(words) if flag == "--disallowedTools"]
    assert denied == ["Bash(rm:*)", "Bash(touch:*)"]


@pytest.mark.slow
@pytest.mark.spec("BCK-03", "TRN-02")
async def test_a_foreign_program_stays_foreign_when_its_team_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmux: TmuxServer
) -> None:
    """Its mail is trusted as before, and its inbox keeps the foreign format."""
    for name, value in tmux.start_user_session().inside_env.items():
        monkeypatch.setenv(name, value)
    given = {
        "settings": make_shoal_settings(shutdown_grace=10, teammate_programs={"scout": WAITING_PROGRAM}),
        "agents": {"scout": {"description": "Looks.", "prompt": "You look."}},
    }
    lead = [CREATE, spawn_member("ann", subagent_type="scout"), "Wait."]
    async with run_provider(monkeypatch, lead=lead), asyncio.timeout(40):
        async with open_process_session(tmp_path, **given) as session:
            async for _ in session.run("Go."):
                pass
            assert session.runtime.team_store.open_mailboxes(TeamName("crew")).is_foreign_inbox(
                AgentName("ann")
            )
        ident = session.agent.identity.session
        async with open_process_session(tmp_path, resume=ident, **given) as session:
            assert [each.name for each in session.teams.list_members()] == ["ann"]
            assert session.runtime.team_store.open_mailboxes(TeamName("crew")).is_foreign_inbox(
                AgentName("ann")
            )


@pytest.mark.slow
async def test_a_foreign_program_that_removes_its_inbox_affects_no_other_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmux: TmuxServer
) -> None:
    for name, value in tmux.start_user_session().inside_env.items():
        monkeypatch.setenv(name, value)
    given = {
        "settings": make_shoal_settings(shutdown_grace=10, teammate_programs={"scout": WAITING_PROGRAM}),
        "agents": {"scout": {"description": "Looks.", "prompt": "You look."}},
    }
    async with (
        run_provider(
            monkeypatch, lead=[CREATE, spawn_member("ann", subagent_type="scout"), "Wait."]
        ) as server,
        open_process_session(tmp_path, **given) as session,
        asyncio.timeout(40),
    ):
        async for _ in session.run("Go."):
            pass
        (get_home() / "teams" / "crew" / "inboxes" / "ann.json").unlink()
        idle = {"from": "ann", "timestamp": TIMESTAMP, "idleReason": "available"}
        await write_to_inbox("team-lead", make_entry("ann", encode_body("idle_notification", idle)))
        await run_until_quiet(session)
        assert [each.name for each in session.teams.list_members()] == ["ann"]
    assert "ann is idle (available)." in join_conversation(list_requests_of(server, "lead")[-1])
