"""This program as a member of a team that another program leads."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cast import use
from fleet import approve, everything, provider, speaker
from shoal.stores.files.watch import DirectoryWatch
from troupe import home, inbox, tell

TEAM = "theirs"
WORDS = [
    *("--agent-id", "ann@theirs", "--agent-name", "ann", "--team-name", TEAM, "--agent-color", "blue"),
    *("--parent-session-id", "6f1c0f0a-0000-4000-8000-000000000001", "--agent-type", "general-purpose"),
    *("--model", "anthropic:claude-sonnet-4-5", "--dangerously-skip-permissions"),
]


def made_by_another_program(cwd: Path) -> None:
    """A team as a foreign lead writes it: no ids of messages, no signatures."""
    lead = {"agentId": "team-lead@theirs", "name": "team-lead", "agentType": "team-lead", "model": "m"}
    ann = {"agentId": "ann@theirs", "name": "ann", "agentType": "general-purpose", "model": "m"}
    about = {"joinedAt": 1, "cwd": str(cwd), "subscriptions": []}
    more = {"prompt": "Begin.", "color": "blue", "planModeRequired": False, "backendType": "tmux"}
    roster = {
        "name": TEAM,
        "createdAt": 1,
        "leadAgentId": "team-lead@theirs",
        "leadSessionId": "6f1c0f0a-0000-4000-8000-000000000001",
        "members": [
            lead | about | {"tmuxPaneId": ""},
            ann | about | more | {"tmuxPaneId": "%7", "isActive": True},
        ],
    }
    directory = home() / "teams" / TEAM
    (directory / "inboxes").mkdir(parents=True)
    (home() / "tasks" / TEAM).mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(roster))
    write("Begin.")


def write(text: str) -> None:
    """In place, as such a program does."""
    path = home() / "teams" / TEAM / "inboxes" / "ann.json"
    mail = json.loads(path.read_text()) if path.exists() else []
    stamp = f"2026-01-01T00:00:0{len(mail)}.000Z"
    mail.append({"from": "team-lead", "text": text, "timestamp": stamp, "read": False})
    path.write_text(json.dumps(mail))


async def heard(wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Until such mail is in the lead's inbox."""
    news = asyncio.Event()
    watch = DirectoryWatch(home() / "teams" / TEAM / "inboxes", news.set)
    try:
        async with asyncio.timeout(20):
            while True:
                news.clear()
                if (home() / "teams" / TEAM / "inboxes" / "team-lead.json").exists():
                    for each in inbox(TEAM, "team-lead"):
                        if wanted(each):
                            return each
                await news.wait()
    finally:
        watch.close()


@asynccontextmanager
async def enlisted(cwd: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shoal", *WORDS, cwd=cwd, env=dict(os.environ), stdout=pipe, stderr=pipe
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.spec("BCK-03", "LIF-03", "MSG-04")
async def test_it_works_reports_goes_idle_and_shuts_down_for_a_foreign_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [
        use("TaskCreate", "c1", subject="Seen", description="By ann."),
        use("TaskUpdate", "c2", taskId="1", status="completed"),  # else it would claim it itself at rest
        tell("team-lead", "All is well.", "report"),
        "Idle now.",
        tell("team-lead", "Woken.", "again"),
        "Idle again.",
        approve,
    ]
    async with provider(monkeypatch, ann=parts) as server:
        made_by_another_program(tmp_path)
        async with enlisted(tmp_path) as process:
            report = await heard(lambda mail: mail["text"] == "All is well.")
            assert (report["from"], report["color"], report["summary"]) == ("ann", "blue", "report")
            await heard(lambda mail: "idle_notification" in mail["text"])
            write("Are you there?")
            await heard(lambda mail: mail["text"] == "Woken.")
            # Asked between its two last lines, it would say the next one and rest.
            await heard(
                lambda _: sum("idle_notification" in each["text"] for each in inbox(TEAM, "team-lead")) == 2
            )
            body = {
                "type": "shutdown_request",
                "requestId": "shutdown-1@ann",
                "from": "team-lead",
                "reason": "done",
                "timestamp": "2026-01-01T00:00:09.000Z",
            }
            write(json.dumps(body))
            answer = await heard(lambda mail: "shutdown_approved" in mail["text"])
            assert json.loads(answer["text"]) | {"timestamp": ""} == {
                "type": "shutdown_approved",
                "requestId": "shutdown-1@ann",
                "from": "ann",
                "timestamp": "",
                "paneId": "%7",
                "backendType": "tmux",
            }
            async with asyncio.timeout(10):
                assert await process.wait() == 0
    assert all(mail["read"] for mail in inbox(TEAM, "ann"))
    asked = [request.body for request in server.requests if speaker(request.body) == "ann"]
    assert "Are you there?" in everything(asked[-1])
    assert len(list((home() / "tasks" / TEAM).glob("1.json"))) == 1


async def test_papers_that_do_not_fit_are_refused_with_the_word_that_is_wrong(tmp_path: Path) -> None:
    pipe = asyncio.subprocess.PIPE
    for words, complaint in ((WORDS[:4], b"--team-name is missing"), ([*WORDS, "--frob"], b"'--frob'")):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "shoal", *words, cwd=tmp_path, stdout=pipe, stderr=pipe
        )
        _, told = await process.communicate()
        assert process.returncode == 2
        assert complaint in told


@pytest.mark.spec("BCK-08")
async def test_no_help_shows_the_words(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shoal", "--help", cwd=tmp_path, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await process.communicate()
    assert b"--agent-id" not in told
    assert b"--output-format" in told
