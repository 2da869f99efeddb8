"""Hooks that hang, crash, flood or are missing are reported, bounded and harmless."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from app_session_helpers import is_process_gone

import shoal
from agent_scripts import call_tool, read_events
from hook_helpers import (
    HookInputLog,
    build_answer_command,
    build_specific_answer,
    make_command_hook,
    make_settings,
)
from session_helpers import collect_events, list_lead_results
from shoal.core.events import PREVIEW_LENGTH, HookRan, NoteAdded, RunFinished
from shoal.models.scripted_model import ScriptedModel
from shoal.policy.hooks.hook_process import MAX_OUTPUT
from shoal.wire.hook_output_codec import MAX_TEXT_LENGTH

LOOK = call_tool("Glob", "g1", pattern="*")
Answer = Callable[[bytes, bytes], Awaitable[bytes]]


async def run_one_call(project: Path, configured: Any, **options: Any) -> tuple[str, str, list[HookRan]]:
    """Run one call; return its result, the notes to the user and the hooks that ran."""
    given = configured if isinstance(configured, str) else make_settings(configured)
    model = ScriptedModel([LOOK, "done"])
    async with shoal.open(cwd=project, model=model, settings=given, **options) as session:
        (*_, finished) = await collect_events(session.run("look"))
        events = read_events(session)
        assert isinstance(finished, RunFinished)
        assert (finished.reason, finished.text) == ("done", "done")
        (result,) = list_lead_results(session)
    notes = "\n".join(event.text for event in events if isinstance(event, NoteAdded))
    return result, notes, [event for event in events if isinstance(event, HookRan)]


TROUBLES = {
    "exits with 1": ("echo it broke >&2; exit 1", "exit status 1: it broke"),
    "is killed": ("kill -9 $$", "signal 9"),
    "is not there": ("/no/such/program", "exit status 127"),
    "prints half JSON": ("""echo '{"decision": "blo'""", "looks like JSON but is not valid"),
    "answers a wrong shape": (build_answer_command({"decision": 5}), "an unknown format"),
    "answers an unknown word": (build_answer_command({"decision": "deny"}), "an unknown format"),
    "answers for another event": (build_specific_answer(hookEventName="Stop"), "it answered for Stop"),
    "changes the input to a list": (build_specific_answer(updatedInput=[1]), "an unknown format"),
}


@pytest.mark.spec("HOK-02")
@pytest.mark.parametrize("trouble", TROUBLES)
async def test_a_failing_hook_is_reported_to_the_user_and_blocks_nothing(
    project: Path, hook_log: HookInputLog, trouble: str
) -> None:
    script, why = TROUBLES[trouble]
    entry = {"hooks": [make_command_hook(script), make_command_hook(hook_log.build_logging_command())]}
    result, notes, ran = await run_one_call(project, json.dumps({"hooks": {"PreToolUse": [entry]}}))
    assert "was not run" not in result
    assert why in notes
    assert "--settings:1" in notes
    assert [each.verdict for each in ran] == ["failed", "went on"]
    assert len(hook_log.read_inputs()) == 1


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_a_failing_hook_set_to_block_blocks_the_call(project: Path, trouble: str) -> None:
    script, why = TROUBLES[trouble]
    result, notes, _ = await run_one_call(
        project, {"PreToolUse": {"hooks": [make_command_hook(script, onFailure="block")]}}
    )
    assert "was not run" in result
    assert why in result
    assert why in notes


async def test_a_hook_for_powershell_runs_it_and_a_missing_program_is_reported(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwsh = tmp_path / "bin" / "pwsh"
    pwsh.parent.mkdir()
    pwsh.write_text('#!/bin/sh\necho "$@" > asked\n')
    pwsh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{pwsh.parent}{os.pathsep}{os.environ['PATH']}")
    hooks = [
        make_command_hook("Get-Date", shell="powershell"),
        make_command_hook("/no/such/program", args=[]),
    ]
    _, notes, ran = await run_one_call(project, {"PreToolUse": {"hooks": hooks}})
    assert (project / "asked").read_text() == "-NoProfile -NonInteractive -Command Get-Date\n"
    assert "Cannot run /no/such/program: No such file or directory" in notes
    assert [each.verdict for each in ran] == ["went on", "failed"]


async def test_of_two_equal_hooks_the_blocking_one_is_run(project: Path) -> None:
    lenient, strict = make_command_hook("exit 3"), make_command_hook("exit 3", onFailure="block")
    result, _, ran = await run_one_call(project, {"PreToolUse": {"hooks": [lenient, strict, lenient]}})
    assert "was not run" in result
    assert len(ran) == 1


@pytest.mark.spec("HOK-02")
async def test_a_hanging_hook_is_killed_with_its_child_processes(project: Path, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    hang = f"sleep 1000 & echo $! > '{pids}'; echo $$ >> '{pids}'; trap '' TERM; wait; wait; sleep 1000"
    result, notes, (ran,) = await run_one_call(
        project, {"PreToolUse": {"hooks": [make_command_hook(hang, timeout=0.5)]}}
    )
    assert "was not run" not in result
    assert "did not finish within 0.5 s" in notes
    assert ran.verdict == "failed"
    assert 500 <= ran.duration_ms < 60_000
    assert all(is_process_gone(int(pid)) for pid in pids.read_text().split())


async def test_an_interrupted_turn_kills_the_hook_it_waits_for(project: Path, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    hang = f"exec 9> '{fifo}'; echo there >&9; exec sleep 1000"
    model = ScriptedModel([LOOK, "done"])
    async with shoal.open(cwd=project, model=model, settings=make_settings({"PreToolUse": hang})) as session:
        turn = session.run("look")
        async with asyncio.timeout(20):
            with await asyncio.to_thread(fifo.open) as pipe:
                assert await asyncio.to_thread(pipe.readline) == "there\n"
                await session.interrupt()
                # Ends when no process holds the other end.
                assert await asyncio.to_thread(pipe.read) == ""
        (*_, finished) = await collect_events(turn)
    assert isinstance(finished, RunFinished)
    assert finished.reason == "interrupted"


async def test_the_note_about_a_failed_hook_quotes_the_start_of_a_long_reason(project: Path) -> None:
    complain = f"echo start {'x' * 2_000} >&2; exit 1"
    _, notes, _ = await run_one_call(project, {"PreToolUse": complain})
    quoted = notes.partition("failed: ")[2].splitlines()[0]
    assert "start x" in quoted
    assert len(quoted) == 4 * PREVIEW_LENGTH


async def test_large_hook_output_is_truncated_and_endless_output_is_stopped(project: Path) -> None:
    flood = "head -c 100000000 /dev/zero | tr '\\0' x"
    hooks = {
        "UserPromptSubmit": {"hooks": [make_command_hook(flood)]},
        "PreToolUse": {
            "hooks": [make_command_hook("yes", timeout=1), make_command_hook("yes >&2", timeout=1)]
        },
    }
    model = ScriptedModel([LOOK, "done"])
    async with shoal.open(cwd=project, model=model, settings=make_settings(hooks)) as session:
        await collect_events(session.run("look"))
        added = next(m.text for m in session.agent.conversation.messages if "UserPromptSubmit" in m.text)
        notes = "\n".join(event.text for event in read_events(session) if isinstance(event, NoteAdded))
    assert MAX_TEXT_LENGTH < len(added) < MAX_TEXT_LENGTH + 200
    assert notes.count("did not finish within 1 s") == 2


async def test_a_daemon_left_by_a_hook_delays_nothing_and_ends_with_the_session(
    project: Path, tmp_path: Path
) -> None:
    fifo, pid = tmp_path / "fifo", tmp_path / "pid"
    daemon = f"setsid sh -c 'echo $$ > {fifo}; exec sleep 1000' &"
    script = f"mkfifo '{fifo}'; {daemon} read p < '{fifo}'; echo $p > '{pid}'; echo started"
    model = ScriptedModel([LOOK, "done"])
    async with shoal.open(
        cwd=project, model=model, settings=make_settings({"UserPromptSubmit": script})
    ) as session:
        await collect_events(session.run("look"))
        assert any("started" in message.text for message in session.agent.conversation.messages)
        assert not is_process_gone(int(pid.read_text()))
    assert is_process_gone(int(pid.read_text()))


@pytest.mark.spec("HOK-02")
async def test_a_hook_that_ignores_its_input_works(project: Path) -> None:
    model = ScriptedModel([call_tool("Write", "w1", file_path="big", content="x" * 3_000_000), "done"])
    given = make_settings({"PreToolUse": "exec <&-; exit 0", "PostToolUse": "wc -c > seen"})
    async with shoal.open(cwd=project, model=model, settings=given, skip_permissions=True) as session:
        await collect_events(session.run("write"))
    assert (project / "big").stat().st_size == 3_000_000
    assert int((project / "seen").read_text()) > 3_000_000


@pytest.mark.slow
async def test_hook_functions_that_raise_or_return_nonsense_block_and_are_reported(project: Path) -> None:
    async def hang(_: dict[str, Any]) -> None:
        await asyncio.Event().wait()

    def raise_error(_: dict[str, Any]) -> None:
        raise KeyError("the key")

    def return_nonsense(_: dict[str, Any]) -> Any:
        return 7

    hooks = {"PreToolUse": [raise_error, return_nonsense], "SessionEnd": [hang]}
    async with asyncio.timeout(20):
        result, notes, _ = await run_one_call(project, "{}", hooks=hooks)
    assert "was not run" in result
    assert "KeyError" in notes
    assert "it returned int" in notes


@asynccontextmanager
async def serve_hook(answer: Answer) -> AsyncIterator[str]:
    """Run a server that answers each request with these bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split()[0])
        body = await reader.readexactly(length)
        # Without an answer it waits until the other side has given up.
        writer.write(await answer(head, body) or await reader.read())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"


def build_response(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (status, len(body), body)


@pytest.mark.spec("HOK-02")
async def test_a_url_can_be_a_hook(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "t0ken")
    monkeypatch.setenv("OTHER_TOKEN", "other")
    received: list[tuple[bytes, Any]] = []

    async def refuse(head: bytes, body: bytes) -> bytes:
        received.append((head, json.loads(body)))
        return build_response(b'{"decision": "block", "reason": "says the server"}')

    async with serve_hook(refuse) as url:
        headers = {"Authorization": "Bearer $HOOK_TOKEN", "X-Other": "${OTHER_TOKEN}"}
        hook = {"type": "http", "url": url, "headers": headers, "allowedEnvVars": ["HOOK_TOKEN"]}
        result, _, (ran,) = await run_one_call(project, {"PreToolUse": {"hooks": [hook]}})
    ((head, notes),) = received
    assert "says the server" in result
    assert head.startswith(b"POST /hook ")
    assert b"Bearer t0ken" in head
    assert b"other" not in head
    assert (notes["hook_event_name"], notes["tool_name"]) == ("PreToolUse", "Glob")
    assert (ran.hook, ran.verdict) == (url, "blocked")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (build_response(b"{}", b"500 Broken"), "status 500"),
        (build_response(b"{}", b"302 Elsewhere"), "status 302"),
        (b"not http\r\n\r\n", "RemoteProtocolError"),
        (build_response(b'{"decision": 1}'), "an unknown format"),
    ],
)
async def test_a_failing_http_hook_is_reported_and_blocks_nothing(
    project: Path, answer: bytes, why: str
) -> None:
    async def give(_: bytes, __: bytes) -> bytes:
        return answer

    async with serve_hook(give) as url:
        result, notes, _ = await run_one_call(
            project, {"PreToolUse": {"hooks": [{"type": "http", "url": url}]}}
        )
    assert "was not run" not in result
    assert why in notes


async def test_an_http_hook_without_a_response_times_out(project: Path) -> None:
    async def never(_: bytes, __: bytes) -> bytes:
        return b""

    async with serve_hook(never) as url:
        hook = {"type": "http", "url": url, "timeout": 0.3}
        _, notes, _ = await run_one_call(project, {"PreToolUse": {"hooks": [hook]}})
    assert "did not finish within 0.3 s" in notes
    _, notes, _ = await run_one_call(
        project, {"PreToolUse": {"hooks": [{"type": "http", "url": "http://127.0.0.1:1/x"}]}}
    )
    assert "ConnectError" in notes


async def test_a_tool_result_that_is_not_json_is_passed_to_hooks(
    project: Path, hook_log: HookInputLog
) -> None:
    @shoal.tool(name="Odd", reads_only=True)
    async def odd() -> shoal.ToolOutput:
        """Give back what nobody can write down."""
        return shoal.ToolOutput(
            content="fine", data={"thing": object(), "path": Path("/x"), "half": "\ud83d"}
        )

    model = ScriptedModel([call_tool("Odd", "o1"), "done"])
    given = make_settings({"PostToolUse": hook_log.build_logging_command()})
    async with shoal.open(
        cwd=project, model=model, settings=given, tools=[odd], skip_permissions=True
    ) as session:
        await collect_events(session.run("go"))
        assert list_lead_results(session) == ["fine"]
    (notes,) = hook_log.read_inputs()
    assert notes["tool_response"]["content"] == "fine"
    assert notes["tool_response"]["path"] == "/x"


async def test_only_the_first_megabyte_of_a_hooks_output_is_used(project: Path) -> None:
    (project / "answer").write_text(json.dumps({"decision": "block", "reason": "r", "pad": "x" * MAX_OUTPUT}))
    result, notes, (ran,) = await run_one_call(project, {"PreToolUse": "cat answer"})
    assert "was not run" not in result
    assert "looks like JSON but is not valid" in notes
    assert ran.verdict == "failed"
    (project / "answer").write_text(
        json.dumps({"decision": "block", "reason": "r", "pad": "x" * (MAX_OUTPUT // 2)})
    )
    result, _, _ = await run_one_call(project, {"PreToolUse": "cat answer"})
    assert "was not run" in result


async def test_only_the_first_megabyte_of_the_response_to_an_http_hook_is_read(project: Path) -> None:
    written = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nendless ")
        with suppress(ConnectionError):
            while True:
                writer.write(b"x" * 65_536)
                written += 65_536
                await writer.drain()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
        hook = {"type": "http", "url": url, "timeout": 60}
        result, notes, (ran,) = await run_one_call(project, {"PreToolUse": {"hooks": [hook]}})
    assert "was not run" not in result
    assert (notes, ran.verdict) == ("", "went on")
    # What the two sockets buffer comes on top.
    assert written < 32 << 20
