"""`--replay-user-messages` sends back what the program sent, and nothing else."""

from __future__ import annotations

import json

import pytest
from shoal_process import ShoalProgram
from stream_driver import StreamDriver, start_driver

from shoal.testing import make_tool_call
from shoal.testing.servers import messages_server
from team_scripts import get_home

FIRST, SECOND = "5b3a5c1e-0000-4000-8000-000000000001", "5b3a5c1e-0000-4000-8000-000000000002"
BLOCKS = [{"type": "text", "text": "two"}, {"type": "text", "text": "blocks"}]


def make_line(content: object, uuid: str | None) -> dict[str, object]:
    line: dict[str, object] = {"type": "user", "message": {"role": "user", "content": content}}
    return line if uuid is None else line | {"uuid": uuid}


def list_user_lines(driver: StreamDriver) -> list[dict[str, object]]:
    return [line for line in driver.received_lines if line["type"] == "user"]


def read_transcript_ids(session: str) -> list[str]:
    (path,) = get_home().glob(f"projects/*/{session}.jsonl")
    return [json.loads(line)["uuid"] for line in path.read_text().splitlines() if '"uuid"' in line]


@pytest.mark.spec("CMP-124")
async def test_messages_are_replayed_as_they_were_sent_without_the_context_of_hooks(
    shoal: ShoalProgram,
) -> None:
    hook = [{"hooks": [{"type": "command", "command": "echo from-a-hook"}]}]
    hooks = {"UserPromptSubmit": hook, "SessionStart": hook}
    (get_home() / "settings.json").write_text(json.dumps({"hooks": hooks}))
    (shoal.project / "notes.md").write_text("buy milk")
    replies = [make_tool_call("Read", file_path="notes.md"), "one", "two", "three", "four"]
    async with messages_server(replies) as server:
        shoal.use_server(server)
        async with start_driver(shoal, "--replay-user-messages") as driver:
            for content, uuid in (
                ("see @notes.md", FIRST),
                (BLOCKS, SECOND),
                ("third", None),
                ("x", "no-uuid"),
            ):
                await driver.send_lines(make_line(content, uuid))
                result = await driver.wait_for_line("result")
        assert "from-a-hook" in str(server.requests[0].body)
        assert "buy milk" in str(server.requests[0].body)
    shown = list_user_lines(driver)
    replayed = [line for line in shown if line.get("isReplay")]
    (tool_result,) = [line for line in shown if not line.get("isReplay")]
    assert "from-a-hook" not in str(shown)
    assert "tool_result" in str(tool_result)
    assert [line["message"]["content"] for line in replayed] == ["see @notes.md", BLOCKS, "third", "x"]  # type: ignore[index]
    assert [line["uuid"] for line in replayed][:2] == [FIRST, SECOND]
    assert len({line["uuid"] for line in replayed}) == 4
    stored = read_transcript_ids(result["session_id"])
    assert {line["uuid"] for line in replayed} <= set(stored)
    assert len(stored) == len(set(stored))


@pytest.mark.spec("CMP-124")
async def test_an_id_that_the_transcript_has_is_not_used_again(shoal: ShoalProgram) -> None:
    async with messages_server(["one", "two"]) as server:
        shoal.use_server(server)
        async with start_driver(shoal) as driver:
            await driver.send_lines(make_line("hello", FIRST))
            session = (await driver.wait_for_line("result"))["session_id"]
        assert not list_user_lines(driver)
        async with start_driver(shoal, "--resume", session, "--replay-user-messages") as driver:
            await driver.send_lines(make_line("again", FIRST))
            await driver.wait_for_line("result")
    (line,) = list_user_lines(driver)
    assert line["uuid"] != FIRST
    stored = read_transcript_ids(session)
    assert len(stored) == len(set(stored))
    assert FIRST in stored
