"""`shoal export --html`: one page that shows a whole run without a server."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from agent_scripts import call_tool, run_all_turns, script_agents
from shoal.app.options import Options
from shoal.app.run_access.run_handle import RunHandle
from shoal.app.session.session import Session
from shoal.core.text.redaction import KEY_SHAPE_REDACTOR
from shoal.models.scripted_model import ScriptedModel
from shoal.surfaces.cli.main import run_command_line as shoal_command
from shoal.surfaces.web.run_page import export_run_data, render_run_page
from team_scripts import get_home, open_session, script_team, spawn_member

HOSTILE = "</script><script>alert(1)</script> sk-ant-api03-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"


async def run_team(project: Path) -> RunHandle:
    model = script_team(
        lead=[
            call_tool("TeamCreate", team_name="crew"),
            call_tool("TaskCreate", subject="Dig", description="a hole"),
            spawn_member("ann"),
            f"They work. {HOSTILE}",
        ],
        ann=[call_tool("TaskUpdate", taskId="1", status="completed", owner="ann"), "dug"],
    )
    async with open_session(project, model) as session:
        await run_all_turns(session, "Dig a hole")
        return RunHandle(session=session.id, home=get_home())


@pytest.mark.spec("USR-18")
async def test_an_exported_page_contains_the_whole_run_and_no_script_or_key(tmp_path: Path) -> None:
    run = await run_team(tmp_path)
    html = render_run_page(run, KEY_SHAPE_REDACTOR).decode()
    assert len(re.findall(r"<script", html.replace("\\u003c", ""))) == html.count("<script type=") + 1
    assert "alert(1)</script>" not in html
    assert "sk-ant-api03-AAAA" not in html
    found = re.search(r'id="shoal-export">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    assert data["run"]["session"] == run.session
    tasks = {row["id"]: row["status"] for frame in data["frames"] for row in frame["tasks"]}
    assert tasks == {"1": "completed"}
    assert set(data["transcripts"]) == {"lead", "ann@crew"}
    assert any("alert(1)" in str(entry) for entry in data["transcripts"]["lead"])


async def test_an_exported_command_is_shown_as_it_was_typed(tmp_path: Path) -> None:
    command = get_home() / "commands" / "tide.md"
    command.parent.mkdir(parents=True)
    command.write_text("When is high water in $ARGUMENTS?")
    async with Session(Options(cwd=tmp_path, model=ScriptedModel(["At six."]))) as session:
        async for _ in session.run(await session.parse_slash_command_when_ready("/tide Bergen")):
            pass
    data = export_run_data(RunHandle(session=session.id, home=get_home()))
    texts = [block["text"] for entry in data["transcripts"]["lead"] for block in entry["blocks"]]
    assert texts == ["/tide Bergen", "When is high water in Bergen?", "At six."]
    assert "command-name" not in str(data)


@pytest.mark.slow
@pytest.mark.spec("USR-18")
@pytest.mark.needs("chromium", "playwright")
async def test_a_browser_shows_an_exported_file_without_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    from playwright.async_api import async_playwright

    run = await run_team(tmp_path)
    saved = tmp_path / "run.html"
    saved.write_bytes(render_run_page(run, KEY_SHAPE_REDACTOR))
    asked: list[str] = []
    problems: list[str] = []
    # Chromium ends if the path of a socket in its temporary directory is too long.
    monkeypatch.setenv("TMPDIR", "/tmp")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"],
        )
        view = await browser.new_page()
        view.on("request", lambda request: asked.append(request.url))
        view.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
        view.on("pageerror", lambda error: problems.append(str(error)))
        await view.goto(saved.as_uri())
        await view.get_by_text("ann").first.wait_for()
        await view.goto(f"{saved.as_uri()}#/run/{run.session}/agent/lead")
        await view.get_by_text("They work.").first.wait_for()
        await browser.close()
    assert problems == []
    assert [url for url in asked if not url.startswith((saved.as_uri(), "data:"))] == []


async def test_the_export_command_writes_a_page_or_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    import asyncio

    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)

    def run_export(*words: str) -> int:
        return shoal_command(["export", *words])

    assert await asyncio.to_thread(run_export, "--html") == 1
    assert b"There is no run in" in capsysbinary.readouterr().err
    async with open_session(project, script_agents(lead=["hello"])) as session:
        await run_all_turns(session, "lead, go")
    assert await asyncio.to_thread(run_export, "--html", "--json") == 0
    told = json.loads(capsysbinary.readouterr().out)
    assert (project / told["written"]).stat().st_size == told["bytes"]
    assert await asyncio.to_thread(run_export) == 0
    assert json.loads(capsysbinary.readouterr().out)["run"]["session"] == session.id
    assert await asyncio.to_thread(run_export, "--html", "-o", "nowhere/x.html") == 1
    assert b"there is no directory nowhere" in capsysbinary.readouterr().err
    assert export_run_data(RunHandle(session=session.id, home=get_home()))["frames"]
