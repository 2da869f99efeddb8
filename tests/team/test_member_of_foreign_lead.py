"""Shoal as a member of a team that another program leads."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agent_scripts import call_tool
from server_scripts import (
    approve_shutdown,
    find_speaker,
    get_last_text,
    join_conversation,
    run_provider,
)
from shoal.stores.files.access.file_watch import DirectoryWatch
from team_scripts import get_home, read_inbox, send_message

TEAM = "theirs"
ARGUMENTS = [
    *("--agent-id", "ann@theirs", "--agent-name", "ann", "--team-name", TEAM, "--agent-color", "blue"),
    *("--parent-session-id", "6f1c0f0a-0000-4000-8000-000000000001", "--agent-type", "general-purpose"),
    *("--model", "anthropic:claude-sonnet-4-5", "--dangerously-skip-permissions"),
]


def write_foreign_team(cwd: Path) -> None:
    """Write a team like a foreign lead: without message ids and signatures."""
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
    directory = get_home() / "teams" / TEAM
    (directory / "inboxes").mkdir(parents=True)
    (get_home() / "tasks" / TEAM).mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(roster))
    append_lead_mail("Begin.")


def append_lead_mail(text: str) -> None:
    """Append mail in place, like a foreign program."""
    path = get_home() / "teams" / TEAM / "inboxes" / "ann.json"
    mail = json.loads(path.read_text()) if path.exists() else []
    stamp = f"2026-01-01T00:00:0{len(mail)}.000Z"
    mail.append({"from": "team-lead", "text": text, "timestamp": stamp, "read": False})
    path.write_text(json.dumps(mail))


async def wait_for_mail(wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Wait for matching mail in the lead's inbox."""
    news = asyncio.Event()
    watch = DirectoryWatch(get_home() / "teams" / TEAM / "inboxes", news.set)
    try:
        async with asyncio.timeout(20):
            while True:
                news.clear()
                if (get_home() / "teams" / TEAM / "inboxes" / "team-lead.json").exists():
                    for each in read_inbox(TEAM, "team-lead"):
                        if wanted(each):
                            return each
                await news.wait()
    finally:
        watch.close()


@asynccontextmanager
async def start_member(
    cwd: Path, arguments: Sequence[str] = ARGUMENTS, *, terminal: int | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shoal", *arguments),
        cwd=cwd,
        env=dict(os.environ),
        stdin=terminal,
        stdout=pipe,
        stderr=pipe,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.spec("BCK-03", "LIF-03", "MSG-04")
async def test_a_member_works_reports_idles_and_shuts_down_for_a_foreign_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [
        call_tool("TaskCreate", "c1", subject="Seen", description="By ann."),
        call_tool(
            "TaskUpdate", "c2", taskId="1", status="completed"
        ),  # else it would claim it itself at rest
        send_message("team-lead", "All is well.", "report"),
        "Idle now.",
        send_message("team-lead", "Woken.", "again"),
        "Idle again.",
        approve_shutdown,
    ]
    async with run_provider(monkeypatch, ann=parts) as server:
        write_foreign_team(tmp_path)
        async with start_member(tmp_path) as process:
            report = await wait_for_mail(lambda mail: mail["text"] == "All is well.")
            assert (report["from"], report["color"], report["summary"]) == ("ann", "blue", "report")
            await wait_for_mail(lambda mail: "idle_notification" in mail["text"])
            append_lead_mail("Are you there?")
            await wait_for_mail(lambda mail: mail["text"] == "Woken.")
            # Asked between its two last lines, it would say the next one and rest.
            await wait_for_mail(
                lambda _: (
                    sum("idle_notification" in each["text"] for each in read_inbox(TEAM, "team-lead")) == 2
                )
            )
            body = {
                "type": "shutdown_request",
                "requestId": "shutdown-1@ann",
                "from": "team-lead",
                "reason": "done",
                "timestamp": "2026-01-01T00:00:09.000Z",
            }
            append_lead_mail(json.dumps(body))
            answer = await wait_for_mail(lambda mail: "shutdown_approved" in mail["text"])
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
    assert all(mail["read"] for mail in read_inbox(TEAM, "ann"))
    asked = [request.body for request in server.requests if find_speaker(request.body) == "ann"]
    assert "Are you there?" in join_conversation(asked[-1])
    assert len(list((get_home() / "tasks" / TEAM).glob("1.json"))) == 1


@pytest.mark.spec("LIM-14")
async def test_typed_words_are_the_persons_and_the_member_ends_when_its_team_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []

    def report(body: dict[str, Any]) -> Any:
        heard.append(get_last_text(body))
        return send_message("team-lead", "Heard.", "heard")

    parts = [send_message("team-lead", "Ready.", "ready"), "Idle.", report, "Idle."]
    ours, terminal = os.openpty()
    try:
        async with run_provider(monkeypatch, ann=parts):
            write_foreign_team(tmp_path)
            async with start_member(tmp_path, terminal=terminal) as process:
                await wait_for_mail(lambda mail: "idle_notification" in mail["text"])
                os.write(ours, b"Use the blue paint.\n")
                await wait_for_mail(lambda mail: mail["text"] == "Heard.")
                await wait_for_mail(
                    lambda _: (
                        sum("idle_notification" in each["text"] for each in read_inbox(TEAM, "team-lead"))
                        == 2
                    )
                )
                for directory in (get_home() / "tasks" / TEAM, get_home() / "teams" / TEAM):
                    while directory.exists():  # the member may be marking its mail
                        shutil.rmtree(directory, ignore_errors=True)
                async with asyncio.timeout(20):
                    assert await process.wait() == 0
                assert process.stdout is not None
                assert b"its team is gone" in await process.stdout.read()
    finally:
        os.close(ours)
        os.close(terminal)
    (said,) = heard
    assert "Use the blue paint." in said
    assert "unverified" not in said
    assert not (get_home() / "teams" / TEAM).exists()


@pytest.mark.slow
@pytest.mark.spec("LIM-14")
@pytest.mark.parametrize("what", ["roster", "directory", "busy"])
async def test_a_member_ends_however_its_team_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    parts = [send_message("team-lead", "Ready.", "ready"), "Idle."]
    if what == "busy":
        parts[1] = call_tool("Bash", command="sleep 600")
    directory = get_home() / "teams" / TEAM
    async with run_provider(monkeypatch, ann=parts):
        write_foreign_team(tmp_path)
        async with start_member(tmp_path) as process:
            await wait_for_mail(lambda mail: mail["text"] == "Ready.")
            if what == "roster":
                (directory / "config.json").unlink()  # its inboxes may be in another directory
            elif what == "directory":
                directory.rename(directory.with_name("removed"))
            else:
                while directory.exists():  # the member may be marking its mail
                    shutil.rmtree(directory, ignore_errors=True)
            async with asyncio.timeout(30):
                assert await process.wait() == 0
            assert process.stdout is not None
            assert b"its team is gone" in await process.stdout.read()
    assert not (directory / "config.json").exists()


@pytest.mark.skipif(
    sys.getfilesystemencoding() != "utf-8",
    reason="its name cannot be an argument in this locale",
)
@pytest.mark.spec("LIM-14")
async def test_a_member_with_a_name_that_is_no_file_name_works_for_a_foreign_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, member = "My Team ✓ v1.0", "Code Reviewer"
    teams = get_home() / "teams"
    (teams / "My-Team---v1-0" / "inboxes").mkdir(parents=True)
    (teams / "my-team---v1-0").mkdir()
    about = {"agentType": "general-purpose", "model": "m", "joinedAt": 1, "cwd": str(tmp_path)}
    members = [{"agentId": f"{name}@{given}", "name": name, **about} for name in ("team-lead", member)]
    (teams / "my-team---v1-0" / "config.json").write_text(
        json.dumps({"name": given, "createdAt": 1, "leadSessionId": "x", "members": members})
    )
    inboxes = teams / "My-Team---v1-0" / "inboxes"
    letter = {"from": "team-lead", "text": "Begin.", "timestamp": "t", "read": False}
    (inboxes / "Code-Reviewer.json").write_text(json.dumps([letter]))
    changed = asyncio.Event()
    watch = DirectoryWatch(inboxes, changed.set)
    arguments = [*ARGUMENTS]
    for flag, value in (
        ("--agent-id", f"{member}@{given}"),
        ("--agent-name", member),
        ("--team-name", given),
    ):
        arguments[arguments.index(flag) + 1] = value
    parts = [send_message("team-lead", "Ready.", "ready"), "Idle."]
    try:
        async with (
            run_provider(monkeypatch, **{"Code-Reviewer": parts}),
            start_member(tmp_path, arguments),
            asyncio.timeout(30),
        ):
            while (
                not (inboxes / "team-lead.json").exists()
                or "Ready." not in (inboxes / "team-lead.json").read_text()
            ):
                changed.clear()
                await changed.wait()
    finally:
        watch.close()
    assert [path.name for path in teams.iterdir() if (path / "inboxes").exists()] == ["My-Team---v1-0"]


async def test_invalid_launch_arguments_are_refused_by_name(tmp_path: Path) -> None:
    pipe = asyncio.subprocess.PIPE
    for words, complaint in (
        (ARGUMENTS[:4], b"--team-name is missing"),
        ([*ARGUMENTS, "--frob"], b"'--frob'"),
    ):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "shoal", *words, cwd=tmp_path, stdout=pipe, stderr=pipe
        )
        _, output = await process.communicate()
        assert process.returncode == 2
        assert complaint in output


@pytest.mark.spec("BCK-08")
async def test_the_help_does_not_list_the_launch_arguments(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shoal", "--help", cwd=tmp_path, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert b"--agent-id" not in output
    assert b"--output-format" in output
