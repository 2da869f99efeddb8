"""Reports of a program's team: who worked, and why a task is not completed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import QuotaExceeded
from shoal.models.scripted_model import ReplyLike
from shoal.testing import make_tool_call

ANA = shoal.Agent("ana", prompt="You write.")
BEN = shoal.Agent("ben", prompt="You check.")


@pytest.mark.spec("API-08")
@pytest.mark.parametrize("backend", ["in-process", "process"])
async def test_a_member_asks_no_model_before_it_has_a_message_or_a_task(tmp_path: Path, backend: Any) -> None:
    script = tmp_path / "script.json"
    script.write_text('[{"match": "", "text": "ok", "repeat": true}]')
    sent: list[str] = []

    def on_event(event: shoal.Event) -> None:
        if isinstance(event, shoal.events.ModelRequestSent):
            sent.append(str(event.agent).partition("@")[0])

    async with (
        asyncio.timeout(120),
        shoal.Team(
            "crew", members=[ANA, BEN], backend=backend, cwd=tmp_path, model=f"scripted:{script}"
        ) as team,
    ):
        team.session.subscribe(on_event)
        assert (await team.finished()).ok
        assert sent == []
        assert [member.state for member in team.members] == ["idle", "idle"]
        await team.add_task("Paint the hull")
        await team.finished()
        assert len(sent) == 1
        await team.send("ben", "Are you there?")
        await team.finished()
        assert sent[1:] == ["ben"]


@pytest.mark.spec("API-08")
async def test_the_first_message_of_a_member_that_waited_contains_its_prompt(tmp_path: Path) -> None:
    requests: list[list[str]] = []

    def reply(request: ModelRequest) -> ReplyLike:
        requests.append([message.text for message in request.messages])
        return "ok"

    async with shoal.Team("crew", members=[ANA], cwd=tmp_path, model=shoal.ScriptedModel(reply)) as team:
        await team.send("ana", "Are you there?")
        await team.finished()
    ((text, *_),) = (["\n".join(messages)] for messages in requests)
    assert text.index("You are a member of a team") >= 0
    assert "Are you there?" in text


@pytest.mark.spec("API-08")
@pytest.mark.parametrize("backend", ["in-process", "process"])
async def test_a_member_that_never_worked_is_there_after_a_resume(tmp_path: Path, backend: Any) -> None:
    script = tmp_path / "script.json"
    script.write_text('[{"match": "", "text": "ok", "repeat": true}]')
    options: Any = {"cwd": tmp_path, "model": f"scripted:{script}"}
    async with (
        asyncio.timeout(120),
        shoal.Team("crew", members=[ANA, BEN], backend=backend, **options) as team,
    ):
        await team.start()
        await team.add_task("Paint the hull", owner="ana")
        await team.finished()
    async with asyncio.timeout(120), shoal.Team.resume("crew") as resumed:
        await resumed.send("ben", "Are you there?")
        await resumed.finished()
        assert {member.name for member in resumed.members} == {"ana", "ben"}


@pytest.mark.spec("API-08")
async def test_a_report_says_why_each_task_is_unfinished(tmp_path: Path) -> None:
    def reply(request: ModelRequest) -> ReplyLike:
        if "#1 Write" in request.messages[-1].text:
            return make_tool_call("TaskUpdate", taskId="1", status="completed")
        return "I cannot do it."

    async with (
        asyncio.timeout(60),
        shoal.Team(
            "crew",
            members=[ANA],
            cwd=tmp_path,
            model=shoal.ScriptedModel(reply),
            allowed_tools=[shoal.ToolRule("Bash(test:*)"), shoal.ToolRule("Bash(echo:*)")],
        ) as team,
    ):
        accept = "echo looked for it && test -e hello.txt"
        write = await team.add_task("Write hello.txt", owner="ana", accept=accept)
        await team.add_task("Check hello.txt", owner="ana", blocked_by=[write])
        await team.add_task("Weigh the anchor", owner="ana")
        await team.add_task("Paint the hull")
        report = await team.finished()
    assert not report.ok
    assert f"its acceptance command `{accept}` exited with status 1" in report.reasons["1"]
    assert "looked for it" in report.reasons["1"].partition("exited with status 1")[2]
    assert report.reasons["2"] == "It waits for #1."
    assert report.reasons["3"] == "Its owner ana did not start it."
    assert report.reasons["4"] == "Its owner ana ended its turn without completing it."
    assert [line.partition(":")[0] for line in report.detail.splitlines() if line.startswith("#")] == [
        "#1 Write hello.txt",
        "#2 Check hello.txt",
        "#3 Weigh the anchor",
        "#4 Paint the hull",
    ]


@pytest.mark.spec("API-08")
async def test_a_report_says_that_a_member_failed_and_nobody_claimed_its_task(tmp_path: Path) -> None:
    def reply(_: ModelRequest) -> ReplyLike:
        raise QuotaExceeded("The provider refused: the quota is used up.")

    async with (
        asyncio.timeout(60),
        shoal.Team("crew", members=[BEN], cwd=tmp_path, model=shoal.ScriptedModel(reply)) as team,
    ):
        await team.add_task("Weigh the anchor", owner="ben")
        report = await team.finished()
    assert report.reasons["1"] == (
        "No member claimed it. ben failed: The provider refused: the quota is used up."
    )


@pytest.mark.spec("API-08")
async def test_a_report_names_a_member_that_was_stopped(tmp_path: Path) -> None:
    working = asyncio.Event()

    class HangingModel(shoal.ScriptedModel):
        async def generate_reply(self, request: ModelRequest, on_delta: Any) -> Any:
            working.set()
            await asyncio.Event().wait()

    async with (
        asyncio.timeout(60),
        shoal.Team("crew", members=[BEN], cwd=tmp_path, model=HangingModel([])) as team,
    ):
        await team.add_task("Weigh the anchor", owner="ben")
        await team.start()
        await working.wait()
        await team.session.stop_task("ben")
        report = await team.finished()
    assert report.reasons["1"].startswith("No member claimed it. ben has ended (killed)")
