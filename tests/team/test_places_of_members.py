"""Where a session has its teammates run and be seen: in tmux, beside it, in iTerm2 or nowhere else."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from cast import all_turns, recorded, use
from fleet import asked_of, everything, once, opened, provider
from shoal.core.events import Noted
from tmux_rig import WAITING, TmuxServer
from troupe import config, member

STAND_IN = Path(__file__).parents[1] / "backends" / "it2_stand_in.py"
CREATE = use("TeamCreate", team_name="crew")


def settings(**own: object) -> str:
    return json.dumps({"shoal": own})


@pytest.mark.spec("BCK-01", "BCK-03")
async def test_where_panes_are_not_to_be_split_a_teammate_has_a_window_with_its_name_and_colour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmux: TmuxServer
) -> None:
    for name, value in tmux.begin().inside.items():
        monkeypatch.setenv(name, value)
    async with (
        provider(monkeypatch, lead=[CREATE, member("ann"), "Wait."], ann=["Rest."]),
        opened(tmp_path, settings=settings(split_panes=False), attended=True) as session,
        asyncio.timeout(40),
    ):
        await all_turns(session, "Go.")
        pane = config("crew")["members"][1]["tmuxPaneId"]
        lead, other = tmux.rows("#{window_index} #{window_panes}")
        assert (lead, other.split()[1]) == ("0 1", "1")
        assert tmux("display-message", "-p", "-t", pane, "#{pane_title} #{@shoal_color}") == "ann blue"


@pytest.mark.spec("BCK-01", "BCK-03")
async def test_outside_tmux_a_person_is_told_how_to_attach_to_the_panes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmux: TmuxServer
) -> None:
    for name, value in tmux.outside.items():
        monkeypatch.setenv(name, value)
    for name in ("TMUX", "TMUX_PANE"):
        monkeypatch.delenv(name, raising=False)
    tmux.name = "shoal"
    async with (
        provider(monkeypatch, lead=[CREATE, member("ann"), "Wait."], ann=["Rest."]),
        opened(tmp_path, settings=settings(teammate_mode="tmux"), attended=True) as session,
        asyncio.timeout(40),
    ):
        await all_turns(session, "Go.")
        pane = config("crew")["members"][1]["tmuxPaneId"]
        name = f"shoal-{session.id[:8]}"
        assert tmux("display-message", "-p", "-t", pane, "#{session_name}") == name
        notes = [event.text for event in recorded(session) if isinstance(event, Noted)]
    assert f"Teammates are shown in tmux. To see them: tmux -L shoal attach -t {name}" in notes


@pytest.mark.spec("BCK-01")
async def test_where_tmux_does_not_answer_and_nobody_asked_for_it_teammates_run_in_the_lead_s_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMUX", f"{tmp_path}/nobody,1,0")
    monkeypatch.setenv("TMUX_PANE", "%1")
    async with (
        provider(monkeypatch, lead=[CREATE, member("ann"), "Wait."], ann=["Rest."]),
        opened(tmp_path, settings=settings(), attended=True) as session,
        asyncio.timeout(40),
    ):
        await all_turns(session, "Go.")
        entered = config("crew")["members"][1]
    assert (entered["backendType"], entered["tmuxPaneId"]) == ("in-process", "in-process")


@pytest.mark.spec("BCK-04")
async def test_where_it_is_chosen_a_teammate_is_shown_in_a_pane_of_iterm2(
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
        provider(monkeypatch, lead=[CREATE, member("ann"), "Wait."], ann=["Rest."]),
        opened(tmp_path, settings=settings(teammate_mode="iterm2"), attended=True) as session,
        asyncio.timeout(40),
    ):
        await all_turns(session, "Go.")
        entered = config("crew")["members"][1]
    calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    assert entered["backendType"] == "iterm2"
    assert ["session", "set-name", "--session", entered["tmuxPaneId"], "ann"] in calls
    assert ["session", "close", "--session", entered["tmuxPaneId"], "--force"] in calls


@pytest.mark.spec("BCK-01")
async def test_whether_there_are_panes_is_looked_at_once_until_one_cannot_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmux: TmuxServer
) -> None:
    for name, value in tmux.begin().inside.items():
        monkeypatch.setenv(name, value)
    looks = tmp_path / "looks"
    program = tmp_path / "bin" / "tmux"
    program.parent.mkdir()
    counting = f'test "$*" = "-u -V" && echo >> {looks}'
    program.write_text(f'#!/bin/sh\n{counting}\nexec {shutil.which("tmux")} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    ann, bob, cyd, dan = (member(name, subagent_type="scout") for name in ("ann", "bob", "cyd", "dan"))
    given = {
        "settings": settings(teammate_programs={"scout": WAITING}),
        "agents": {"scout": {"description": "Looks.", "prompt": "You look."}},
    }
    lead = [CREATE, ann, bob, "Wait.", once(cyd, when="Once more."), once(dan, when="And again.")]
    async with (
        provider(monkeypatch, lead=lead) as server,
        opened(tmp_path, **given) as session,
        asyncio.timeout(40),
    ):
        async for _ in session.run("Go."):
            pass
        assert [each.name for each in session.parts.teams.members()] == ["ann", "bob"]
        assert len(looks.read_text().splitlines()) == 1
        await tmux.ended()
        await all_turns(session, "Once more.")
        await all_turns(session, "And again.")
    heard = everything(asked_of(server, "lead")[-1])
    assert "The teammate cyd was not started" in heard
    assert "The tmux server of $TMUX does not answer" in heard
    assert len(looks.read_text().splitlines()) == 2
