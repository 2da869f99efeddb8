"""Hooks that hang, crash, flood, lie or are not there: each is named, bounded, and harms nothing else."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import shoal
from cast import recorded, use
from crew_rig import drain, texts
from hook_rig import Log, command, says, settings, specific
from shoal.core.events import Finished, HookRan, Noted
from shoal.models.scripted import ScriptedModel
from shoal.wire.hook_output import LIMIT

LOOK = use("Glob", "g1", pattern="*")
Answer = Callable[[bytes, bytes], Awaitable[bytes]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "told.jsonl")


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


async def looked(project: Path, configured: Any, **options: Any) -> tuple[str, str, list[HookRan]]:
    """What one call came to, what the person was told, and the hooks that were run."""
    given = configured if isinstance(configured, str) else settings(configured)
    model = ScriptedModel([LOOK, "done"])
    async with shoal.open(cwd=project, model=model, settings=given, **options) as session:
        (*_, finished) = await drain(session.run("look"))
        events = recorded(session)
        assert isinstance(finished, Finished)
        assert (finished.reason, finished.text) == ("done", "done")
        (result,) = texts(session)
    told = "\n".join(event.text for event in events if isinstance(event, Noted))
    return result, told, [event for event in events if isinstance(event, HookRan)]


TROUBLES = {
    "exits with 1": ("echo it broke >&2; exit 1", "exit status 1: it broke"),
    "is killed": ("kill -9 $$", "signal 9"),
    "is not there": ("/no/such/program", "exit status 127"),
    "prints half JSON": ("""echo '{"decision": "blo'""", "begins like JSON and is none"),
    "answers a wrong shape": (says({"decision": 5}), "a shape that is not known"),
    "answers an unknown word": (says({"decision": "deny"}), "a shape that is not known"),
    "answers for another event": (specific(hookEventName="Stop"), "it answered for Stop"),
    "changes the input to a list": (specific(updatedInput=[1]), "a shape that is not known"),
}


@pytest.mark.spec("HOK-02")
@pytest.mark.parametrize("trouble", TROUBLES)
async def test_a_hook_in_trouble_is_shown_to_the_person_and_blocks_nothing(
    project: Path, log: Log, trouble: str
) -> None:
    script, why = TROUBLES[trouble]
    entry = {"hooks": [command(script), command(log.keeping())]}
    result, told, ran = await looked(project, json.dumps({"hooks": {"PreToolUse": [entry]}}))
    assert "was not run" not in result
    assert why in told
    assert "--settings:1" in told
    assert [each.verdict for each in ran] == ["failed", "went on"]
    assert len(log.lines()) == 1


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_one_that_is_set_to_block_when_it_fails_does(project: Path, trouble: str) -> None:
    script, why = TROUBLES[trouble]
    result, told, _ = await looked(project, {"PreToolUse": {"hooks": [command(script, onFailure="block")]}})
    assert "was not run" in result
    assert why in result
    assert why in told


async def test_of_two_that_do_the_same_the_one_that_blocks_when_it_fails_is_run(project: Path) -> None:
    lenient, strict = command("exit 3"), command("exit 3", onFailure="block")
    result, _, ran = await looked(project, {"PreToolUse": {"hooks": [lenient, strict, lenient]}})
    assert "was not run" in result
    assert len(ran) == 1


@pytest.mark.spec("HOK-02")
async def test_a_hook_that_hangs_is_ended_with_all_it_started(project: Path, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    hang = f"sleep 1000 & echo $! > '{pids}'; echo $$ >> '{pids}'; trap '' TERM; wait; wait; sleep 1000"
    result, told, (ran,) = await looked(project, {"PreToolUse": {"hooks": [command(hang, timeout=0.5)]}})
    assert "was not run" not in result
    assert "did not end within 0.5 s" in told
    assert ran.verdict == "failed"
    assert all(gone(int(pid)) for pid in pids.read_text().split())


async def test_an_interrupted_turn_ends_the_hook_it_waits_for(project: Path, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    hang = f"exec 9> '{fifo}'; echo there >&9; exec sleep 1000"
    model = ScriptedModel([LOOK, "done"])
    async with shoal.open(cwd=project, model=model, settings=settings({"PreToolUse": hang})) as session:
        turn = session.run("look")
        async with asyncio.timeout(20):
            with await asyncio.to_thread(fifo.open) as pipe:
                assert await asyncio.to_thread(pipe.readline) == "there\n"
                await session.interrupt()
                # Over when nobody holds the other end any more.
                assert await asyncio.to_thread(pipe.read) == ""
        (*_, finished) = await drain(turn)
    assert isinstance(finished, Finished)
    assert finished.reason == "interrupted"


async def test_a_flood_is_cut_and_an_endless_one_is_ended(project: Path) -> None:
    flood = "head -c 100000000 /dev/zero | tr '\\0' x"
    hooks = {
        "UserPromptSubmit": {"hooks": [command(flood)]},
        "PreToolUse": {"hooks": [command("yes", timeout=1), command("yes >&2", timeout=1)]},
    }
    model = ScriptedModel([LOOK, "done"])
    async with shoal.open(cwd=project, model=model, settings=settings(hooks)) as session:
        await drain(session.run("look"))
        added = next(m.text for m in session.agent.conversation.messages if "UserPromptSubmit" in m.text)
        told = "\n".join(event.text for event in recorded(session) if isinstance(event, Noted))
    assert LIMIT < len(added) < LIMIT + 200
    assert told.count("did not end within 1 s") == 2


async def test_a_daemon_that_a_hook_leaves_behind_holds_nobody_up_and_ends_with_the_session(
    project: Path, tmp_path: Path
) -> None:
    fifo, pid = tmp_path / "fifo", tmp_path / "pid"
    daemon = f"setsid sh -c 'echo $$ > {fifo}; exec sleep 1000' &"
    script = f"mkfifo '{fifo}'; {daemon} read p < '{fifo}'; echo $p > '{pid}'; echo started"
    model = ScriptedModel([LOOK, "done"])
    async with shoal.open(
        cwd=project, model=model, settings=settings({"UserPromptSubmit": script})
    ) as session:
        await drain(session.run("look"))
        assert any("started" in message.text for message in session.agent.conversation.messages)
        assert not gone(int(pid.read_text()))
    assert gone(int(pid.read_text()))


@pytest.mark.spec("HOK-02")
async def test_a_hook_that_does_not_read_what_it_is_told_is_no_trouble(project: Path) -> None:
    model = ScriptedModel([use("Write", "w1", file_path="big", content="x" * 3_000_000), "done"])
    given = settings({"PreToolUse": "exec <&-; exit 0", "PostToolUse": "wc -c > seen"})
    async with shoal.open(cwd=project, model=model, settings=given, skip_permissions=True) as session:
        await drain(session.run("write"))
    assert (project / "big").stat().st_size == 3_000_000
    assert int((project / "seen").read_text()) > 3_000_000


async def test_functions_that_raise_hang_or_answer_nonsense_are_named(project: Path) -> None:
    async def hangs(_: dict[str, Any]) -> None:
        await asyncio.Event().wait()

    def breaks(_: dict[str, Any]) -> None:
        raise KeyError("the key")

    def babbles(_: dict[str, Any]) -> Any:
        return 7

    hooks = {"PreToolUse": [breaks, babbles], "SessionEnd": [hangs]}
    async with asyncio.timeout(20):
        result, told, _ = await looked(project, "{}", hooks=hooks)
    assert "was not run" not in result
    assert "KeyError" in told
    assert "it answered int" in told


@asynccontextmanager
async def address(answer: Answer) -> AsyncIterator[str]:
    """A server that answers each request with these bytes."""

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


def response(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (status, len(body), body)


@pytest.mark.spec("HOK-02")
async def test_an_address_is_a_hook(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "t0ken")
    monkeypatch.setenv("OTHER_TOKEN", "other")
    seen: list[tuple[bytes, Any]] = []

    async def refuse(head: bytes, body: bytes) -> bytes:
        seen.append((head, json.loads(body)))
        return response(b'{"decision": "block", "reason": "says the server"}')

    async with address(refuse) as url:
        headers = {"Authorization": "Bearer $HOOK_TOKEN", "X-Other": "${OTHER_TOKEN}"}
        hook = {"type": "http", "url": url, "headers": headers, "allowedEnvVars": ["HOOK_TOKEN"]}
        result, _, (ran,) = await looked(project, {"PreToolUse": {"hooks": [hook]}})
    ((head, told),) = seen
    assert "says the server" in result
    assert head.startswith(b"POST /hook ")
    assert b"Bearer t0ken" in head
    assert b"other" not in head
    assert (told["hook_event_name"], told["tool_name"]) == ("PreToolUse", "Glob")
    assert (ran.hook, ran.verdict) == (url, "blocked")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (response(b"{}", b"500 Broken"), "status 500"),
        (response(b"{}", b"302 Elsewhere"), "status 302"),
        (b"not http\r\n\r\n", "RemoteProtocolError"),
        (response(b'{"decision": 1}'), "a shape that is not known"),
    ],
)
async def test_an_address_in_trouble_is_shown_and_blocks_nothing(
    project: Path, answer: bytes, why: str
) -> None:
    async def give(_: bytes, __: bytes) -> bytes:
        return answer

    async with address(give) as url:
        result, told, _ = await looked(project, {"PreToolUse": {"hooks": [{"type": "http", "url": url}]}})
    assert "was not run" not in result
    assert why in told


async def test_an_address_that_does_not_answer_is_given_up(project: Path) -> None:
    async def never(_: bytes, __: bytes) -> bytes:
        return b""

    async with address(never) as url:
        hook = {"type": "http", "url": url, "timeout": 0.3}
        _, told, _ = await looked(project, {"PreToolUse": {"hooks": [hook]}})
    assert "did not end within 0.3 s" in told
    _, told, _ = await looked(
        project, {"PreToolUse": {"hooks": [{"type": "http", "url": "http://127.0.0.1:1/x"}]}}
    )
    assert "ConnectError" in told


async def test_a_result_that_is_no_json_is_told_all_the_same(project: Path, log: Log) -> None:
    @shoal.tool(name="Odd", reads_only=True)
    async def odd() -> shoal.Outcome:
        """Give back what nobody can write down."""
        return shoal.Outcome(content="fine", data={"thing": object(), "path": Path("/x"), "half": "\ud83d"})

    model = ScriptedModel([use("Odd", "o1"), "done"])
    given = settings({"PostToolUse": log.keeping()})
    async with shoal.open(
        cwd=project, model=model, settings=given, tools=[odd], skip_permissions=True
    ) as session:
        await drain(session.run("go"))
        assert texts(session) == ["fine"]
    (told,) = log.lines()
    assert told["tool_response"]["content"] == "fine"
    assert told["tool_response"]["path"] == "/x"
