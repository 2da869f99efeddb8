"""`shoal mcp`, the flags for MCP servers, and their messages to programs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from shoal_process import MODEL, TIMEOUT, ShoalProgram, wait_for_result

from shoal.core.conversation.messages import ToolUseBlock
from shoal.testing import messages_server

ROGUE = Path(__file__).parents[1] / "mcp_client" / "rogue_server.py"
pytestmark = pytest.mark.needs("mcp")


def make_rogue_server(manner: str, word: str = "") -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(ROGUE), manner, word]}


@pytest.mark.slow
async def test_servers_are_added_listed_shown_tried_and_removed(
    shoal: ShoalProgram, home: Path, project: Path
) -> None:
    assert "No MCP server" in (await shoal("mcp", "ls")).text
    assert "No MCP server" in (await shoal("mcp", "test")).text
    settings = home / ".claude.json"
    settings.write_text('{"model": "x"}')
    added = await shoal(
        "mcp", "add", "-s", "user", "-e", "API_KEY=abc", "plain", sys.executable, str(ROGUE), "plain", "-x"
    )
    assert (added.code, str(settings) in added.text) == (0, True)
    assert json.loads(settings.read_text()) == {
        "model": "x",
        "mcpServers": {
            "plain": {
                "command": sys.executable,
                "args": [str(ROGUE), "plain", "-x"],
                "env": {"API_KEY": "abc"},
            }
        },
    }
    web = await shoal("mcp", "add", "--project", "-H", "X-Key: ${KEY}", "web", "https://127.0.0.1:9/mcp")
    # The person typed the server, so it is trusted.
    assert "shoal trust" not in web.text
    rows = {row["name"]: row for row in json.loads((await shoal("mcp", "ls", "--json")).out)}
    assert (rows["plain"]["enabled"], rows["web"]["enabled"]) == (True, True)
    server_page = await shoal("mcp", "show", "plain")
    assert "abc" not in server_page.text
    assert "API_KEY=(hidden)" in server_page.text
    tried = await shoal("mcp", "test", "plain")
    assert (tried.code, "mcp__plain__echo" in tried.text) == (0, True)
    assert "connected" in (await shoal("mcp", "test", "--json")).text
    assert (await shoal("mcp", "test", "web")).code == 1
    assert (await shoal("mcp", "show", "nobody")).code == 1
    assert (await shoal("mcp", "remove", "plain")).code == 0
    assert json.loads(settings.read_text()) == {"model": "x"}
    assert (await shoal("mcp", "remove", "plain")).code == 1
    assert (await shoal("mcp", "remove", "--project", "web")).code == 0
    assert json.loads((project / ".mcp.json").read_text()) == {}


@pytest.mark.spec("CMP-084")
async def test_a_server_that_several_files_have_is_removed_only_with_a_scope(
    shoal: ShoalProgram, home: Path, project: Path
) -> None:
    for scope in ("user", "project"):
        assert (await shoal("mcp", "add", "-s", scope, "twice", "true")).code == 0
    files = (home / ".claude.json", project / ".mcp.json")
    before = [file.read_text() for file in files]
    refused = await shoal("mcp", "remove", "twice")
    assert (refused.code, [file.read_text() for file in files]) == (1, before)
    assert "Choose one: --scope" in refused.err
    assert (await shoal("mcp", "remove", "twice", "-s", "user")).code == 0
    assert "twice" not in files[0].read_text()
    assert "twice" in files[1].read_text()
    assert (await shoal("mcp", "remove", "twice")).code == 0


async def test_a_failing_server_is_reported_with_its_reason(shoal: ShoalProgram, home: Path) -> None:
    (home / "settings.json").write_text(
        json.dumps({"mcpServers": {"bad": make_rogue_server("fails"), "odd": 5}})
    )
    ran = await shoal("mcp", "test")
    assert ran.code == 1
    assert "exit status 4" in ran.text
    assert "odd cannot be used" in ran.err
    doctor = await shoal("doctor", "--json")
    values = [fact["value"] for fact in json.loads(doctor.out)["facts"] if "MCP" in fact["name"]]
    assert any("bad" in value for value in values)
    assert any("odd cannot be used" in value for value in values)


async def test_the_list_quotes_the_output_of_a_failed_server_and_names_no_removed_file(
    shoal: ShoalProgram, home: Path
) -> None:
    (home / "settings.json").write_text(json.dumps({"mcpServers": {"bad": make_rogue_server("fails")}}))
    for words in (("list",), ("test",), ("test", "--json")):
        ran = await shoal("mcp", *words)
        assert "exit status 4. Its output ends with: no port left" in ran.text
        assert "output is in" not in ran.text
        assert ".log" not in ran.text


@pytest.mark.spec("MCP-01")
async def test_a_headless_run_uses_servers_and_lists_them_first(shoal: ShoalProgram, home: Path) -> None:
    (home / "settings.json").write_text(
        json.dumps({"mcpServers": {"mine": make_rogue_server("plain")}, "shoal": {"mcp_wait": 60}})
    )
    flag = json.dumps(
        {"mcpServers": {"given": make_rogue_server("plain", "the sea"), "gone": make_rogue_server("fails")}}
    )
    call = ToolUseBlock(id="t1", name="mcp__given__echo", input={"text": "is wide"})
    async with messages_server([call, "Done.", "Done."]) as server:
        shoal.use_server(server)
        base = ("-p", "Look.", "--model", MODEL, "--output-format", "stream-json", "--mcp-config", flag)
        ran = await shoal(*base, "--allowedTools", "mcp__given")
        strict = await shoal(*base, "--strict-mcp-config")
    first = ran.lines[0]
    assert first["mcp_servers"] == [
        {"name": "given", "status": "connected"},
        {"name": "gone", "status": "failed"},
        {"name": "mine", "status": "connected"},
    ]
    assert {"mcp__given__echo", "mcp__mine__pid"} <= set(first["tools"])
    assert "the sea is wide" in ran.text
    assert "gone" in ran.err
    assert [each["name"] for each in strict.lines[0]["mcp_servers"]] == ["given", "gone"]


async def test_a_flag_that_cannot_be_used_says_what_it_takes(shoal: ShoalProgram) -> None:
    ran = await shoal("-p", "Look.", "--mcp-config", "nowhere.json")
    assert ran.code == 2
    assert "--mcp-config takes JSON or a file path" in ran.err


def make_channel_config(manner: str, pipe: Path | str = "") -> str:
    script = ROGUE.with_name("channel_server.py")
    server = {"command": sys.executable, "args": [str(script), manner, str(pipe)]}
    return json.dumps({"mcpServers": {"chat": server}})


@pytest.mark.spec("QUE-03")
async def test_an_endless_channel_does_not_keep_a_run_alive(shoal: ShoalProgram) -> None:
    pushed = ToolUseBlock(id="t1", name="mcp__chat__push", input={"params": {"content": "from afar"}})
    flags = ("--model", MODEL, "--allowedTools", "mcp__chat", "--mcp-config", make_channel_config("endless"))
    async with messages_server([[pushed], "over"]) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "Look.", *flags, "--channels", "server:chat")
    assert (ran.code, ran.text) == (0, "over\n")
    assert '<channel source=\\"chat\\">from afar</channel>' in json.dumps(server.requests[1].body["messages"])


async def test_a_push_wakes_a_run_that_a_program_drives(shoal: ShoalProgram, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    streams = ("--output-format", "stream-json", "--input-format", "stream-json", "--verbose")
    flags = (
        "--model",
        MODEL,
        "--mcp-config",
        make_channel_config("plain", pipe),
        "--channels",
        "server:chat",
    )
    prompt = {"type": "user", "message": {"role": "user", "content": "Look."}}
    async with messages_server(["over", "heard"]) as server:
        shoal.use_server(server)
        async with shoal.start_process(*streams, *flags) as run:
            assert run.stdin is not None
            assert run.stdout is not None
            run.stdin.write(json.dumps(prompt).encode() + b"\n")
            async with asyncio.timeout(TIMEOUT):
                results: list[str] = []
                while len(results) < 2:
                    line = json.loads(await run.stdout.readline())
                    if line["type"] == "result":
                        results.append(line["result"])
                        if len(results) == 1:
                            pushed = json.dumps({"content": "pushed at rest"}) + "\n"
                            await asyncio.to_thread(pipe.write_text, pushed)
            assert (await wait_for_result(run)).code == 0
    assert results == ["over", "heard"]
    assert "pushed at rest</channel>" in json.dumps(server.requests[1].body["messages"])


@pytest.mark.parametrize("entry", ["chat", "plugin:chat"])
async def test_a_channel_that_names_no_server_is_refused(shoal: ShoalProgram, entry: str) -> None:
    ran = await shoal("-p", "Look.", "--channels", entry)
    assert ran.code == 2
    assert f"{entry!r} is not a channel. Write server:NAME with the name" in " ".join(ran.err.split())
