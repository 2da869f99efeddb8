"""Changes of a board that are refused through every interface: tools, commands, web view, MCP and Python."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import shoal
from agent_scripts import call_tool, run_all_turns
from shoal.app.teams.external_member import ExternalMember
from shoal.app.teams.external_task_board import ExternalMemberBoardAccess, ExternalTaskUpdateRequest
from shoal.core.clock import SystemClock
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import ShoalError
from shoal.core.ids import IdGenerator
from shoal.core.teams.tasks import TaskDraft
from shoal.models.scripted_model import ScriptedModel
from team_scripts import get_home, get_last_result, open_session, script_team
from web_client import serve_home

INVISIBLE = ("", "  ", "\n\t", "\u200b\u2060", "\u3000", "\x07")
Change: TypeAlias = dict[str, Any]
Apply: TypeAlias = Callable[[Change], Awaitable[str]]
"""Adds a task (with `subject` alone) or changes task `task`; returns the refusal, or an empty text."""


@asynccontextmanager
async def open_tools(session: shoal.Session) -> AsyncIterator[Apply]:
    async def apply(change: Change) -> str:
        answers: list[str] = []
        call = (
            call_tool("TaskUpdate", taskId=change["task"], **{k: v for k, v in change.items() if k != "task"})
            if "task" in change
            else call_tool("TaskCreate", description="d", **change)
        )

        def answer(request: ModelRequest) -> Any:
            if request.messages[-1].role == "user" and request.messages[-1].text == "go":
                return call
            answers.append(get_last_result(request))
            return "end"

        session.agent.model = ScriptedModel(answer)
        await run_all_turns(session, "go")
        return "" if answers[-1].startswith("#") or "is on the board" in answers[-1] else answers[-1]

    yield apply


@asynccontextmanager
async def open_commands(session: shoal.Session) -> AsyncIterator[Apply]:
    async def apply(change: Change) -> str:
        flags = [part for key in ("status", "subject") if key in change for part in (f"--{key}", change[key])]
        words = ("update", change["task"], *flags) if "task" in change else ("add", change["subject"])
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "shoal", "task", *words, "--team", "crew"),
            env=dict(os.environ),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, errors = await process.communicate()
        return errors.decode() if process.returncode else ""

    yield apply


@asynccontextmanager
async def open_web(session: shoal.Session) -> AsyncIterator[Apply]:
    async with serve_home() as web:

        async def apply(change: Change) -> str:
            path = f"/runs/{session.id}/tasks"
            if "task" in change:
                fields = {key: value for key, value in change.items() if key != "task"}
                reply = await web.client.request("PATCH", f"/api{path}/crew/{change['task']}", json=fields)
            else:
                reply = await web.client.request("POST", f"/api{path}", json={"board": "crew", **change})
            return "" if reply.is_success else str(reply.json()["error"])

        yield apply


@asynccontextmanager
async def open_mcp(session: shoal.Session) -> AsyncIterator[Apply]:
    store = session.runtime.team_store
    external = ExternalMember(store, home=get_home(), clock=SystemClock(), ids=IdGenerator(), cwd=Path.cwd())
    seat = await external.join_team("crew", "guest")
    tasks = ExternalMemberBoardAccess(store, external)

    async def apply(change: Change) -> str:
        try:
            if "task" in change:
                fields = {key: value for key, value in change.items() if key != "task"}
                await tasks.update(seat, change["task"], ExternalTaskUpdateRequest(**fields))
            else:
                await tasks.create(seat, TaskDraft(description="d", **change))
        except ShoalError as error:
            return str(error)
        return ""

    yield apply


DOORS = {"tools": open_tools, "commands": open_commands, "web": open_web, "mcp": open_mcp}


@pytest.mark.sampled(2)
@pytest.mark.spec("LIM-10")
@pytest.mark.parametrize("door", DOORS)
async def test_blank_subjects_and_blocked_tasks_are_refused(tmp_path: Path, door: str) -> None:
    board = get_home() / "tasks" / "crew"
    lead = [
        call_tool("TeamCreate", team_name="crew"),
        call_tool("TaskCreate", subject="dig", description="d"),
        call_tool("TaskCreate", "second", subject="fill", description="d"),
        call_tool("TaskUpdate", taskId="2", addBlockedBy=["1"]),
        "end",
    ]
    settings = json.dumps({"shoal": {"max_repeated_calls": None}})
    async with open_session(tmp_path, script_team(lead=lead), settings=settings) as session:
        await run_all_turns(session)
        before = {path.name: path.read_bytes() for path in board.glob("*.json")}
        async with DOORS[door](session) as apply:
            for subject in INVISIBLE:
                assert "subject" in await apply({"subject": subject}), repr(subject)
                assert "subject" in await apply({"task": "1", "subject": subject}), repr(subject)
            for status in ("in_progress", "completed"):
                refusal = await apply({"task": "2", "status": status})
                assert "1" in refusal, (status, refusal)
                assert "wait" in refusal or "block" in refusal, (status, refusal)
            assert {path.name: path.read_bytes() for path in board.glob("*.json")} == before
            assert await apply({"task": "1", "status": "completed"}) == ""
            assert await apply({"task": "2", "status": "completed"}) == ""


@pytest.mark.spec("LIM-10")
async def test_a_python_program_cannot_add_a_task_without_a_visible_subject(tmp_path: Path) -> None:
    model = script_team(lead=["end"], ann=["end"])
    async with shoal.Team(
        "crew", cwd=tmp_path, model=model, members=[shoal.Agent(name="ann", prompt="You dig.")]
    ) as team:
        for subject in INVISIBLE:
            with pytest.raises(shoal.ShoalError, match="subject"):
                await team.add_task(subject)
        with pytest.raises(shoal.ShoalError, match="no task 9"):
            await team.add_task("dig", blocked_by=["9"])
        with pytest.raises(shoal.ShoalError, match="ghost"):
            await team.add_task("dig", owner="ghost")
