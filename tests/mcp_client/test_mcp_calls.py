"""Calls to MCP servers built with the official SDK, in both generations of the protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from mcp_helpers import (
    list_result_texts,
    list_tool_results,
    make_guide_config,
    make_harbour_config,
    map_statuses,
    open_session,
    serve_http,
)
from msgspec.structs import replace

from agent_scripts import call_tool, read_events, run_all_turns, script_agents, spawn_agent
from shoal.app.mcp.mcp_servers import McpPromptCommands
from shoal.app.session.typed_commands import SlashCommandInvocation, parse_slash_command_when_ready
from shoal.core.conversation.messages import ImageBlock, extract_tool_result_text
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.events import AgentStarted, Event, RunFinished, ToolOutputReturned, ToolProgressed
from shoal.core.permissions.questions import ChoiceAnswer, ChoiceQuestion
from shoal.models.scripted_model import ScriptedModel
from shoal.tools.mcp import sdk_connection

pytestmark = pytest.mark.needs("mcp")
GENERATIONS = {"2026-07-28": (), "2025-11-25": ("legacy",)}


def call_harbour(tool: str, **arguments: Any) -> Any:
    return call_tool(f"mcp__harbour__{tool}", **arguments)


@pytest.fixture(params=["stdio", "http"])
async def make_config(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """Yield a function that returns the configuration of a server of one generation."""
    if request.param == "stdio":
        yield lambda words: make_harbour_config(*words, HARBOUR_WORD="ahoy")
        return
    generation = request.node.callspec.params.get("generation", next(iter(GENERATIONS)))
    async with serve_http(*GENERATIONS[generation]) as url:
        yield lambda _: {"type": "http", "url": url}


@pytest.mark.spec("MCP-01")
@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.sampled(2)
async def test_texts_images_data_errors_and_long_results_are_returned(
    tmp_path: Path, make_config: Any, generation: str
) -> None:
    lead = [
        call_harbour("tide", place="Kiel", hour=3),
        call_harbour("picture"),
        call_harbour("ship"),
        call_harbour("wreck"),
        call_harbour("long", characters=150_000),
        call_harbour("roots"),
        call_harbour("think"),
        call_harbour("berth"),
        call_tool("ListMcpResourcesTool"),
        call_tool("ReadMcpResourceTool", server="harbour", uri="chart://north"),
        call_harbour("tide", place=7, hours=1),
        "done",
    ]
    async with open_session(
        tmp_path, script_agents(lead=lead), {"harbour": make_config(GENERATIONS[generation])}
    ) as session:
        assert await run_all_turns(session) == "done"
        texts, results = list_result_texts(session), list_tool_results(session)
        (standing,) = session.runtime.servers.list_statuses()
    assert standing.version == generation
    assert texts[0] == "Kiel at 3: 4 m"
    (picture,) = [block for block in results[1].content if isinstance(block, ImageBlock)]
    assert base64.b64decode(picture.source.data)[:4] == b"\x89PNG"
    assert "a lighthouse" in texts[1]
    assert "chart://north" in texts[1]
    assert json.loads(texts[2]) == {"name": "Rose", "tons": 40}
    assert results[3].is_error
    whole = Path(texts[4].split("The whole result is in ")[1].split(": read")[0])
    assert len(texts[4]) < 110_000
    assert whole.read_text() == "begin " + "x" * 150_000 + " end"
    assert texts[5] == tmp_path.as_uri()
    assert results[6].is_error, "nobody lends a server our model"
    assert texts[7] == "decline", "nobody can answer"
    assert '"uri": "chart://north"' in texts[8]
    assert "rocks everywhere" in texts[9]
    assert results[10].is_error


@pytest.mark.spec("MCP-01", "USR-13")
async def test_a_sub_agent_uses_the_tools_of_the_same_server(tmp_path: Path) -> None:
    child = [call_harbour("pid"), lambda request: request.messages[-1].content[0].content]
    lead = [
        call_harbour("pid"),
        call_harbour("where"),
        spawn_agent("child"),
        spawn_agent("child", run_in_background=True),
        "done",
    ]
    servers = {"harbour": make_harbour_config(HARBOUR_WORD="${WORD_OF_TEST:-ahoy}")}
    async with open_session(tmp_path, script_agents(lead=lead, child=child), servers) as session:
        await run_all_turns(session)
        texts = list_result_texts(session)
        started, *_ = [event for event in read_events(session) if isinstance(event, AgentStarted)]
    assert texts[0] in texts[2]
    assert texts[1] == f"{tmp_path} ahoy"
    assert "tools (MCP servers: harbour)" in texts[3]
    assert "mcp__harbour__pid" in started.tools


async def test_progress_of_a_server_is_reported(tmp_path: Path) -> None:
    progress: list[str] = []

    def watch(event: Any) -> None:
        if isinstance(event, ToolProgressed):
            progress.append(event.text)

    async with open_session(
        tmp_path,
        script_agents(lead=[call_harbour("sail", steps=3), "done"]),
        {"harbour": make_harbour_config()},
    ) as session:
        session.subscribe(watch)
        await run_all_turns(session)
        assert list_result_texts(session) == ["arrived"]
    assert progress
    assert progress[-1].startswith("3 of 3") or "mile" in progress[-1]


@pytest.mark.parametrize("words", GENERATIONS.values(), ids=GENERATIONS)
async def test_an_elicitation_of_a_server_goes_to_the_person(tmp_path: Path, words: tuple[str, ...]) -> None:
    model = script_agents(lead=[call_harbour("berth"), "done"])
    async with open_session(
        tmp_path, model, {"harbour": make_harbour_config(*words)}, attended=True
    ) as session:
        desk = session.runtime.question_broker

        async def answer() -> ChoiceQuestion:
            async for question in desk.watch_questions():
                assert isinstance(question, ChoiceQuestion)
                berth, shade = question.choices
                desk.submit_answer(
                    question.id, ChoiceAnswer(answers={berth.question: "12", shade.question: "Yes"})
                )
                return question
            raise AssertionError

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            asked = group.create_task(answer())
            turn = session.run("lead")
            async for _ in turn:
                pass
        assert list_result_texts(session) == ["accept {'number': 12, 'shade': True}"]
    assert "Where shall she lie?" in asked.result().choices[0].question
    assert "Which berth" in asked.result().choices[0].question


@pytest.mark.parametrize("words", GENERATIONS.values(), ids=GENERATIONS)
async def test_interrupting_a_turn_cancels_the_call_at_the_server(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    began, cancelled = tmp_path / "began", tmp_path / "cancelled"
    os.mkfifo(began)
    os.mkfifo(cancelled)
    model = script_agents(lead=[call_harbour("drift", began=str(began), cancelled=str(cancelled)), "done"])
    async with (
        open_session(tmp_path, model, {"harbour": make_harbour_config(*words)}) as session,
        asyncio.timeout(60),
    ):
        turn = session.run("lead")
        assert await asyncio.to_thread(began.read_text) == "began"
        assert await session.interrupt()
        async for _ in turn:
            pass
        assert await asyncio.to_thread(cancelled.read_text) == "cancelled"
        assert map_statuses(session) == {"harbour": "connected"}


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_tools_added_by_a_newer_server_become_available(tmp_path: Path, transport: str) -> None:
    async with AsyncExitStack() as stack:
        server = (
            make_harbour_config()
            if transport == "stdio"
            else {"url": await stack.enter_async_context(serve_http())}
        )
        model = script_agents(lead=[call_harbour("grow"), "done"])
        session = await stack.enter_async_context(open_session(tmp_path, model, {"harbour": server}))
        changed = asyncio.Event()
        await session.runtime.servers.wait_until_ready()
        session.runtime.servers.subscribe_to_tool_changes(lambda _: changed.set())
        async with asyncio.timeout(30):
            await run_all_turns(session)
            await changed.wait()
        assert list(session.agent.tools)[-1] == "mcp__harbour__late"


@pytest.mark.slow
async def test_an_unreachable_http_server_is_reported_and_a_flood_from_one_is_refused(
    tmp_path: Path,
) -> None:
    def kill_server_and_call(request: ModelRequest) -> Any:
        os.kill(int(extract_tool_result_text(request.messages[-1].content[0])), signal.SIGKILL)
        return call_tool("mcp__harbour__tide", "third", place="Kiel")

    lead = [
        call_tool("mcp__harbour__long", "first", characters=20_000_000),
        call_tool("mcp__harbour__pid", "second"),
        kill_server_and_call,
        call_tool("mcp__harbour__tide", "fourth", place="Kiel"),
        "done",
    ]
    async with (
        serve_http() as url,
        open_session(tmp_path, script_agents(lead=lead), {"harbour": {"url": url}}) as session,
        asyncio.timeout(60),
    ):
        await run_all_turns(session)
        first, _, third, fourth = list_result_texts(session)
        assert map_statuses(session) == {"harbour": "failed"}
    assert "longer than 16 MB" in first
    assert "It is being restarted" in third
    assert "is no longer available" in fourth


async def test_the_limit_of_an_answer_is_not_one_of_a_stream_with_many_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk_connection, "MAX_BODY_BYTES", 60_000)
    lead = [*(call_harbour("long", characters=20_000) for _ in range(4)), "done"]
    async with (
        serve_http("sse") as url,
        open_session(tmp_path, script_agents(lead=lead), {"harbour": {"type": "sse", "url": url}}) as session,
        asyncio.timeout(60),
    ):
        await run_all_turns(session)
        assert map_statuses(session) == {"harbour": "connected"}
        results = list_result_texts(session)
    assert len(results) == 4
    assert not any("longer than" in each or "no longer available" in each for each in results)


async def test_prompts_are_offered_for_slash_commands(tmp_path: Path) -> None:
    async with open_session(
        tmp_path, script_agents(lead=["done"]), {"har.bour": make_harbour_config()}
    ) as session:
        await session.runtime.servers.wait_until_ready()
        (prompt,) = session.runtime.servers.list_prompts()
        assert (prompt.name, prompt.arguments[0].name) == ("mcp__har_bour__greet", "captain")
        texts = await session.runtime.servers.render_prompt(prompt.name, {"captain": "Ann"})
    assert texts == "Say hello to Ann."


async def test_a_prompt_of_a_server_is_a_command_with_arguments_in_order(tmp_path: Path) -> None:
    def echo_prompt(request: ModelRequest) -> str:
        return request.messages[0].text

    model = ScriptedModel(echo_prompt)
    async with open_session(tmp_path, model, {"har.bour": make_harbour_config()}) as session:
        command = await parse_slash_command_when_ready(
            session.runtime, "/mcp__har_bour__greet Ann of the sea"
        )
        *_, finished = [event async for event in session.run(command)]
        assert isinstance(finished, RunFinished)
        assert "Say hello to Ann of the sea." in finished.text
        offered = [each.argument_hint for each in session.runtime.knowledge.list_slash_commands()]
        assert offered == ["[captain]"]


async def test_typed_words_fill_the_arguments_of_a_prompt(tmp_path: Path) -> None:
    server = make_guide_config(prompts={"greet": ["who", "where"], "bare": []})
    cases = {
        "": {},
        "Ann": {"who": "Ann"},
        "'Ann B' sea": {"who": "Ann B", "where": "sea"},
        "Ann at the sea": {"who": "Ann", "where": "at the sea"},
        "O'Hara at sea": {"who": "O'Hara", "where": "at sea"},
    }
    async with open_session(tmp_path, script_agents(lead=["done"]), {"guide": server}) as session:
        await session.runtime.servers.wait_until_ready()
        commands = McpPromptCommands(session.runtime.servers)
        for typed, arguments in cases.items():
            assert json.loads(await commands.expand_prompt("mcp__guide__greet", typed)) == arguments
        assert await commands.expand_prompt("mcp__guide__bare", "one two") == "{}"


@pytest.mark.slow
@pytest.mark.spec("USR-05")
async def test_unattended_calls_to_an_agents_own_server_need_a_rule_of_the_person(
    tmp_path: Path,
) -> None:
    own = {"description": "works", "prompt": "Work.", "mcpServers": [{"harbour": make_harbour_config()}]}
    pid, where = call_tool("mcp__harbour__pid", "c1"), call_tool("mcp__harbour__where", "c2")
    model = script_agents(
        lead=[spawn_agent("child", subagent_type="worker"), "over"], child=[[pid, where], "done"]
    )
    listed = {"unattended_allow": ["mcp__harbour__pid"]}
    given: dict[str, Any] = {"agents": {"worker": own}, "own": listed, "skip_permissions": False}
    events: list[Event] = []
    async with open_session(tmp_path, model, {}, **given) as session:
        session.subscribe(events.append)
        assert await run_all_turns(session) == "over"
    failed = {event.call: event.result.is_error for event in events if isinstance(event, ToolOutputReturned)}
    assert (failed.get("c1"), failed.get("c2")) == (False, True)


@pytest.mark.slow
async def test_a_changed_prompt_of_a_server_is_used_and_a_removed_one_is_refused(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(lambda request: request.messages[0].text)
    async with open_session(tmp_path, model, {"har.bour": make_harbour_config()}) as session:
        command = await parse_slash_command_when_ready(session.runtime, "/mcp__har_bour__greet Ann")
        assert isinstance(command, SlashCommandInvocation)
        gone = replace(command, command=replace(command.command, name="mcp__har_bour__gone"))
        *_, finished = [event async for event in session.run(gone)]
        assert isinstance(finished, RunFinished)
        assert "/mcp__har_bour__gone is not available" in finished.detail
        old = replace(command, command=replace(command.command, description="As it was before."))
        *_, finished = [event async for event in session.run(old)]
        assert isinstance(finished, RunFinished)
        assert "Say hello to Ann." in finished.text
