"""Teams that a Python program leads: members, tasks with acceptance commands, and a resume after a kill."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import AgentRequestRefused, SettingsError, TeamNotFound
from shoal.models.scripted_model import ReplyLike
from shoal.testing import make_tool_call

ANA = shoal.Agent("ana", prompt="You write.")
BEN = shoal.Agent("ben", prompt="You check.")


class TeamModel:
    """Completes each task as its owner: ana writes the file for task 1, both complete their own tasks."""

    def __init__(self, content: str = "hello\n") -> None:
        self.content = content
        self.prompts: list[tuple[str, str]] = []

    def reply(self, request: ModelRequest) -> ReplyLike:
        name = (
            "ana" if "You are ana" in request.system else "ben" if "You are ben" in request.system else "lead"
        )
        last = request.messages[-1].text
        self.prompts.append((name, last))
        if name == "ana" and "#1 Write" in last:
            return [
                make_tool_call("Write", file_path="hello.txt", content=self.content),
                make_tool_call("TaskUpdate", taskId="1", status="completed"),
            ]
        if name == "ben" and "Task #2 is yours now" in last:
            return [make_tool_call("TaskUpdate", taskId="2", status="completed")]
        if "#3" in last:
            return [make_tool_call("TaskUpdate", taskId="3", status="completed")]
        return "That is all."


@pytest.fixture(name="project")
def create_project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.mark.needs("postgres", "asyncpg")
async def test_a_message_sent_while_the_team_becomes_idle_is_answered_before_the_report(
    project: Path, database: str
) -> None:
    heard: list[str] = []

    def reply(request: ModelRequest) -> ReplyLike:
        heard.append(request.messages[-1].text)
        return "ok"

    model = shoal.ScriptedModel(reply)
    async with shoal.Team("pair", members=[ANA], cwd=project, model=model, store=database) as team:
        for number in range(30):
            # An earlier wait for the end of the work is at another step of its return in each round.
            earlier_wait = asyncio.create_task(team.finished())
            for _ in range(number):
                await asyncio.sleep(0)
            await team.send("ana", f"Message {number}.")
            await team.finished()
            assert f"Message {number}." in heard[-1]
            await earlier_wait


@pytest.mark.spec("API-08")
async def test_a_program_that_waits_twice_gets_the_same_report_and_all_events(project: Path) -> None:
    model = shoal.ScriptedModel(TeamModel().reply)
    async with shoal.Team("pair", members=[ANA, BEN], cwd=project, model=model, mode="acceptEdits") as team:
        first = await team.add_task("Write hello.txt", owner="ana")
        await team.add_task("Check it", owner="ben", blocked_by=[first])
        seen: list[shoal.Event] = []

        async def read_events() -> None:
            seen.extend([event async for event in team.events()])

        report, again, _ = await asyncio.gather(team.finished(), team.finished(), read_events())
    assert report.ok
    assert again.ok
    assert sum(isinstance(event, shoal.events.AgentStarted) for event in seen) == 2


@pytest.mark.spec("API-08")
async def test_a_team_completes_tasks_in_the_order_of_their_blockers(project: Path) -> None:
    model = TeamModel()
    async with shoal.Team(
        "repair", members=[ANA, BEN], cwd=project, model=shoal.ScriptedModel(model.reply), mode="acceptEdits"
    ) as team:
        first = await team.add_task("Write hello.txt", owner="ana", accept="grep -q hello hello.txt")
        second = await team.add_task("Check it", owner="ben", blocked_by=[first])
        assert (second.owner, second.blocked_by) == ("ben", ("1",))
        assert team.members == ()
        events = [event async for event in team.events()]
        assert {member.name for member in team.members} == {"ana", "ben"}
        report = await team.finished()
        # A task that is added later is claimed by a free member.
        await team.add_task("One more thing")
        again = await team.finished()
    changes = [event for event in events if isinstance(event, shoal.events.TaskChanged)]
    assert [each.task for each in changes if each.status == "completed"] == ["1", "2"]
    assert report.ok
    assert [task.status for task in again.tasks] == ["completed"] * 3
    assert report.cost_usd == 0
    # The program leads: no model was asked for it.
    assert "lead" not in {name for name, _ in model.prompts}
    # A completed team leaves nothing to resume.
    with pytest.raises(TeamNotFound, match="There is no team 'repair'"):
        await shoal.Team.resume("repair")


@pytest.mark.spec("API-08")
async def test_a_task_is_not_completed_while_its_acceptance_command_fails(project: Path) -> None:
    model = TeamModel(content="wrong\n")
    async with shoal.Team(
        "repair", members=[ANA], cwd=project, model=shoal.ScriptedModel(model.reply), mode="acceptEdits"
    ) as team:
        await team.add_task("Write hello.txt", owner="ana", accept="grep -q hello hello.txt")
        report = await team.finished()
    assert not report.ok
    assert [task.subject for task in report.unfinished] == ["Write hello.txt"]
    # What is not finished can be resumed; the model is an object, so it has to be passed again.
    with pytest.raises(SettingsError, match="opened with model=, which cannot be stored"):
        await shoal.Team.resume("repair")
    (project / "hello.txt").write_text("hello\n")
    complete = make_tool_call("TaskUpdate", taskId="1", status="completed")
    model_again = shoal.ScriptedModel(
        lambda request: complete if "again" in request.messages[-1].text else "ok"
    )
    async with shoal.Team.resume("repair", model=model_again) as resumed:
        await resumed.send("ana", "Look again.")
        assert (await resumed.finished()).ok


@pytest.mark.spec("API-08")
async def test_a_lead_that_is_an_agent_gets_the_mail_of_the_members(project: Path) -> None:
    def reply(request: ModelRequest) -> ReplyLike:
        last = request.messages[-1].text
        if "You are ana" in request.system:
            is_task = "#1" in last
            return (
                [make_tool_call("SendMessage", to="team-lead", summary="s", message="It is done.")]
                if is_task
                else "ok"
            )
        return "ana says that it is done." if "It is done." in last else "Noted."

    lead = shoal.Agent("boss", prompt="You lead.")
    async with shoal.Team(
        "repair", lead=lead, members=[ANA], cwd=project, model=shoal.ScriptedModel(reply)
    ) as team:
        await team.add_task("Do it", owner="ana")
        report = await team.finished()
    assert report.text == "ana says that it is done."
    assert [mail.text for mail in report.messages] == ["It is done."]


SCRIPT = [
    {
        "system": "You are ana",
        "match": "#1 Write hello.txt",
        "tools": [{"name": "Write", "input": {"file_path": "hello.txt", "content": "hello\n"}}],
    },
    {
        "system": "You are ana",
        "match": "Your process ended",
        "tools": [{"name": "TaskUpdate", "input": {"taskId": "1", "status": "completed"}}],
    },
    {"system": "You are ana", "match": "Created", "delay": 60, "text": "never"},
    {
        "system": "You are ben",
        "match": "Task #2 is yours now",
        "tools": [{"name": "TaskUpdate", "input": {"taskId": "2", "status": "completed"}}],
    },
    {"system": "You are", "repeat": True, "text": "That is all."},
]
PROGRAM = """
import asyncio, sys
import shoal

async def main(project, home, script, backend):
    ana, ben = shoal.Agent("ana", prompt="You write."), shoal.Agent("ben", prompt="You check.")
    async with shoal.Team("repair", members=[ana, ben], backend=backend, cwd=project, home=home,
                          model=f"scripted:{script}", mode="acceptEdits") as team:
        first = await team.add_task("Write hello.txt", owner="ana", accept="grep -q hello hello.txt")
        await team.add_task("Check it", owner="ben", blocked_by=[first])
        async for event in team.events():
            print(type(event).__name__, event.agent, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.spec("API-08")
@pytest.mark.parametrize("backend", ["in-process", "process"])
async def test_a_team_is_resumed_by_name_after_its_program_was_killed(
    project: Path, tmp_path: Path, backend: str
) -> None:
    script, home = tmp_path / "script.json", tmp_path / "home"
    script.write_text(json.dumps(SCRIPT))
    arguments = [sys.executable, "-c", PROGRAM, str(project), str(home), str(script), backend]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as program:
        assert program.stdout is not None
        async with asyncio.timeout(60):
            for line in iter(program.stdout.readline, ""):
                if line.startswith("FileChanged"):
                    break
        program.send_signal(signal.SIGKILL)
    async with asyncio.timeout(90), shoal.Team.resume("repair", home=home) as team:
        assert team.session.cwd == project
        report = await team.finished()
    assert [task.status for task in report.tasks] == ["completed", "completed"]
    assert (project / "hello.txt").read_text() == "hello\n"


KILLED_AT_COMPLETION = """
import asyncio, os, signal, sys
from pathlib import Path
import shoal
from shoal.testing import make_tool_call

def reply(request):
    text = request.messages[-1].text
    return [make_tool_call("TaskUpdate", taskId="1", status="completed")] if "#1 First" in text else "ok"

async def main(project, home):
    member = shoal.Agent("member", prompt="You work.")
    model = shoal.ScriptedModel(reply)
    options = {"members": {"ana": member, "ben": member}, "cwd": project, "home": home, "model": model}
    async with shoal.Team("pair", **options) as team:
        first = await team.add_task("First", owner="ana")
        await team.add_task("Second", owner="ben", blocked_by=[first])

        def on_event(event):
            if isinstance(event, shoal.events.TaskChanged) and event.status == "completed":
                os.kill(os.getpid(), signal.SIGKILL)

        team.session.subscribe(on_event)
        await team.finished()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.spec("API-08")
def test_a_kill_before_the_owner_of_an_unblocked_task_is_notified_loses_nothing(
    project: Path, tmp_path: Path
) -> None:
    arguments = [sys.executable, "-c", KILLED_AT_COMPLETION, str(project), str(tmp_path / "home")]
    killed = subprocess.run(arguments, timeout=60, check=False, env=dict(os.environ))
    assert killed.returncode == -signal.SIGKILL
    prompts: list[str] = []

    def reply(request: ModelRequest) -> ReplyLike:
        prompts.append(request.messages[-1].text)
        is_second = "Second" in prompts[-1]
        return [make_tool_call("TaskUpdate", taskId="2", status="completed")] if is_second else "ok"

    async def resume() -> shoal.TeamReport:
        options: Any = {"home": tmp_path / "home", "model": shoal.ScriptedModel(reply)}
        async with asyncio.timeout(60), shoal.Team.resume("pair", **options) as team:
            return await team.finished()

    report = asyncio.run(resume())
    assert [task.status for task in report.tasks] == ["completed", "completed"]
    assert sum("Second" in prompt for prompt in prompts) == 1


@pytest.mark.needs("postgres", "asyncpg")
async def test_a_team_in_a_database_is_resumed_by_name(project: Path, tmp_path: Path, database: str) -> None:
    options: Any = {"cwd": project, "store": database, "mode": "acceptEdits", "home": tmp_path / "home"}
    model = shoal.ScriptedModel(TeamModel(content="wrong\n").reply)
    async with shoal.Team("repair", members=[ANA], model=model, **options) as team:
        await team.add_task("Write hello.txt", owner="ana", accept="grep -q hello hello.txt")
        assert not (await team.finished()).ok
    (project / "hello.txt").write_text("hello\n")
    complete = make_tool_call("TaskUpdate", taskId="1", status="completed")
    options["model"] = shoal.ScriptedModel(
        lambda request: complete if "again" in request.messages[-1].text else "ok"
    )
    # As on another machine, which has none of the files of the first one.
    async with shoal.Team.resume("repair", **{**options, "home": tmp_path / "other"}) as resumed:
        await resumed.send("ana", "Look again.")
        assert (await resumed.finished()).ok


@pytest.mark.spec("API-08")
async def test_members_that_had_not_started_before_a_crash_start_at_the_resume(project: Path) -> None:
    model = TeamModel()
    options: dict[str, Any] = {
        "cwd": project,
        "model": shoal.ScriptedModel(model.reply),
        "mode": "acceptEdits",
    }
    async with shoal.Team("repair", members=[ANA], **options) as team:
        await team.add_task("Write hello.txt", owner="ana")
    assert model.prompts == []
    async with shoal.Team.resume("repair", **options) as team:
        assert (await team.finished()).ok


@pytest.mark.spec("API-08")
async def test_a_team_opens_without_a_block(project: Path) -> None:
    options: dict[str, Any] = {
        "cwd": project,
        "model": shoal.ScriptedModel(TeamModel().reply),
        "mode": "acceptEdits",
    }
    team = await shoal.Team("repair", members=[ANA], **options).open()
    await team.add_task("Write hello.txt", owner="ana")
    await team.close()
    team = await shoal.Team.resume("repair", **options)
    assert (await team.finished()).ok
    await team.close()


@shoal.tool
def look_up(key: str) -> str:
    """Look up a value."""
    return key


@pytest.mark.spec("API-08")
@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"members": []}, "members: a team needs at least one member"),
        ({"members": [ANA, ANA]}, "two members have the name 'ana'"),
        ({"members": ["ana"]}, "members: expected agents, got 'ana'"),
        ({"members": [shoal.Agent("team-lead", prompt="x")]}, "'team-lead' is reserved"),
        ({"members": [shoal.Agent("a", prompt="x", output=int)]}, "members report through tasks and mail"),
        (
            {"members": [shoal.Agent("a", prompt="x", tools=[look_up])], "backend": "process"},
            "a has Python tools, which only exist in this process",
        ),
        ({"members": [ANA], "lead": "boss"}, "lead: expected an Agent, got 'boss'"),
        ({"members": [ANA], "backendd": "process"}, r"unknown option 'backendd'. Did you mean backend\?"),
        (
            {"members": [ANA], "backend": "prcess1"},
            r"backend: unknown value 'prcess1'. Did you mean process\?",
        ),
    ],
)
async def test_a_team_that_cannot_work_is_refused(
    project: Path, fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises((SettingsError, TypeError), match=problem):
        shoal.Team("repair", cwd=project, **fields)


@pytest.mark.spec("API-08")
async def test_wrong_tasks_and_names_are_refused(project: Path) -> None:
    model = shoal.ScriptedModel(TeamModel().reply)
    with pytest.raises(RuntimeError, match="The team is not open"):
        await shoal.Team("repair", members=[ANA], cwd=project, model=model).add_task("x")
    async with shoal.Team("repair", members=[ANA], cwd=project, model=model) as team:
        with pytest.raises(SettingsError, match=r"there is no member 'anna'. Did you mean ana\?"):
            await team.add_task("x", owner="anna")
        with pytest.raises(shoal.errors.TaskUpdateRefused, match="there is no task 7"):
            await team.add_task("x", blocked_by=["7"])
        with pytest.raises(AgentRequestRefused, match="anna"):
            await team.send("anna", "hello")
        with pytest.raises(SettingsError, match="a team with this name exists"):
            await shoal.Team("repair", members=[ANA], cwd=project, model=model).open()
    with pytest.raises(TeamNotFound, match=r"There is no team 'repiar' in .*Did you mean repair\?"):
        await shoal.Team.resume("repiar", model=model)
