"""Choice of the member backend: tmux, iTerm2, process or in-process."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from team_helpers import make_shoal_settings

from agent_scripts import call_tool, read_events, run_all_turns
from server_scripts import (
    call_once_after,
    join_conversation,
    list_requests_of,
    open_process_session,
    run_provider,
)
from shoal.core.events import NoteAdded
from team_scripts import read_team_config, spawn_member
from tmux_server import WAITING_PROGRAM, TmuxServer

STAND_IN = Path(__file__).parents[1] / "backends" / "fake_it2.py"
CREATE = call_tool("TeamCreate", team_name="crew")


@pytest.mark.spec("BCK-01", "BCK-03")
async def test_without_split_panes_a_member_has_its_own_named_and_coloured_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmux: TmuxServer
) -> None:
    for name, value in tmux.start_user_session().inside_env.items():
        monkeypatch.setenv(name, value)
    async with (
        run_provider(monkeypatch, lead=[CREATE, spawn_member("ann"), "Wait."], ann=["Rest."]),
        open_process_session(
            tmp_path, settings=make_shoal_settings(split_panes=False), attended=True
        ) as session,
        asyncio.timeout(40),
    ):
        await run_all_turns(session, "Go.")
        pane = read_team_config("crew")["members"][1]["tmuxPaneId"]
        lead, other = tmux.list_panes("#{window_index} #{window_panes}")
        assert (lead, other.split()[1]) == ("0 1", "1")
        assert tmux("display-message", "-p", "-t", pane, "#{pane_title} #{@shoal_color}") == "ann blue"


@pytest.mark.spec("BCK-01", "BCK-03")
async def test_outside_tmux_a_note_says_how_to_attach_to_the_panes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmux: TmuxServer
) -> None:
    for name, value in tmux.outside_env.items():
        monkeypatch.setenv(name, value)
    for name in ("TMUX", "TMUX_PANE"):
        monkeypatch.delenv(name, raising=False)
    tmux.name = "shoal"
    async with (
        run_provider(monkeypatch, lead=[CREATE, spawn_member("ann"), "Wait."], ann=["Rest."]),
        open_process_session(
            tmp_path, settings=make_shoal_settings(teammate_mode="tmux"), attended=True
        ) as session,
        asyncio.timeout(40),
    ):
        await run_all_turns(session, "Go.")
        pane = read_team_config("crew")["members"][1]["tmuxPaneId"]
        name = f"shoal-{session.id[:8]}"
        assert tmux("display-message", "-p", "-t", pane, "#{session_name}") == name
        notes = [event.text for event in read_events(session) if isinstance(event, NoteAdded)]
    assert f"Teammates run in tmux. Watch them: tmux -L shoal attach -t {name}" in notes


@pytest.mark.spec("BCK-01")
async def test_members_run_in_process_if_tmux_does_not_answer_and_was_not_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMUX", f"{tmp_path}/nobody,1,0")
    monkeypatch.setenv("TMUX_PANE", "%1")
    async with (
        run_provider(monkeypatch, lead=[CREATE, spawn_member("ann"), "Wait."], ann=["Rest."]),
        open_process_session(tmp_path, settings=make_shoal_settings(), attended=True) as session,
        asyncio.timeout(40),
    ):
        await run_all_turns(session, "Go.")
        entered = read_team_config("crew")["members"][1]
    assert (entered["backendType"], entered["tmuxPaneId"]) == ("in-process", "in-process")


@pytest.mark.spec("BCK-04")
async def test_a_member_is_shown_in_an_iterm2_pane_if_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "rc").touch()
    it2 = tmp_path / "bin" / "it2"
    it2.write_text(f'#!/bin/sh\nexec {sys.executable} {STAND_IN} "$@"\n')
    it2.chmod(0o755)
    monkeypatch.setenv("PATH", f"{it2.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("IT2_ROOT", str(tmp_path))
    monkeypatch.setenv("TERM_PROGRAM", "iTerm.app")
    async with (
        run_provider(monkeypatch, lead=[CREATE, spawn_member("ann"), "Wait."], ann=["Rest."]),
        open_process_session(
            tmp_path, settings=make_shoal_settings(teammate_mode="iterm2"), attended=True
        ) as session,
        asyncio.timeout(40),
    ):
        await run_all_turns(session, "Go.")
        entered = read_team_config("crew")["members"][1]
    calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    assert entered["backendType"] == "iterm2"
    assert ["session", "set-name", "--session", entered["tmuxPaneId"], "ann"] in calls
    assert ["session", "close", "--session", entered["tmuxPaneId"], "--force"] in calls


@pytest.mark.slow
@pytest.mark.spec("BCK-01")
async def test_the_availability_of_panes_is_checked_once_until_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmux: TmuxServer
) -> None:
    for name, value in tmux.start_user_session().inside_env.items():
        monkeypatch.setenv(name, value)
    looks = tmp_path / "looks"
    program = tmp_path / "bin" / "tmux"
    program.parent.mkdir()
    counting = f'test "$*" = "-u -V" && echo >> {looks}'
    program.write_text(f'#!/bin/sh\n{counting}\nexec {shutil.which("tmux")} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    ann, bob, cyd, dan = (spawn_member(name, subagent_type="scout") for name in ("ann", "bob", "cyd", "dan"))
    given = {
        "settings": make_shoal_settings(teammate_programs={"scout": WAITING_PROGRAM}),
        "agents": {"scout": {"description": "Looks.", "prompt": "You look."}},
    }
    lead = [
        CREATE,
        ann,
        bob,
        "Wait.",
        call_once_after(cyd, text="Once more."),
        call_once_after(dan, text="And again."),
    ]
    async with (
        run_provider(monkeypatch, lead=lead) as server,
        open_process_session(tmp_path, **given) as session,
        asyncio.timeout(40),
    ):
        async for _ in session.run("Go."):
            pass
        assert [each.name for each in session.teams.list_members()] == ["ann", "bob"]
        assert len(looks.read_text().splitlines()) == 1
        await tmux.kill_and_wait()
        await run_all_turns(session, "Once more.")
        await run_all_turns(session, "And again.")
    heard = join_conversation(list_requests_of(server, "lead")[-1])
    assert "The teammate cyd was not started" in heard
    assert "The tmux server in $TMUX does not respond" in heard
    assert len(looks.read_text().splitlines()) == 2
