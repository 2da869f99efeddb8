"""Forks: sub-agents with the conversation and permissions of their parent."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fork_helpers import (
    ForkScript,
    find_transcript,
    get_last_text,
    list_agent_starts,
    list_reports,
    open_session_with_forks,
    run_to_end,
    send_message,
    spawn_agent,
)

import shoal
from shoal.agent.agent_texts import format_notice
from shoal.core.budgets.usage import ModelCard
from shoal.core.conversation.messages import (
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    extract_tool_result_text,
)
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import AgentRequestRefused
from shoal.core.events import ToolOutputReturned
from shoal.core.permissions.questions import AllowAnswer, DenyAnswer
from shoal.models.scripted_model import ScriptedModel

FILL = ToolUseBlock(id="x1", name="fill", input={})


def fork_once(*calls: ToolUseBlock) -> Any:
    """Script a lead that makes these calls once, then stops."""

    def lead(request: ModelRequest) -> Any:
        has_forked = any(message.tool_uses for message in request.messages)
        return "so be it" if has_forked else ["I split it.", *calls]

    return lead


def resume_agent(agent: str) -> Any:
    """Script the lead of a later process that messages the agent on the prompt to go on."""
    return lambda request: send_message(agent, "more") if get_last_text(request) == "go on" else "so be it"


def map_tools(request: ModelRequest) -> dict[str, Any]:
    return {tool.name: tool for tool in request.tools}


@pytest.mark.spec("FRK-01", "AGT-03")
@pytest.mark.parametrize(
    ("options", "env", "kind"),
    [
        ({"settings": None}, "", "general-purpose"),
        ({}, "", "fork"),
        ({"settings": None}, "SHOAL_FORK_SUBAGENT", "fork"),
        ({"settings": None}, "FEATURE_FORK_SUBAGENT", "fork"),
        ({"attended": False}, "SHOAL_FORK_SUBAGENT", "general-purpose"),
        ({"coordinator": True}, "SHOAL_FORK_SUBAGENT", "general-purpose"),
    ],
)
async def test_an_agent_without_a_type_is_a_fork_only_if_forks_are_on_and_a_user_is_present(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: Any, env: str, kind: str
) -> None:
    if env:
        monkeypatch.setenv(env, "1")

    def choose_reply(request: ModelRequest) -> Any:
        if "count the berths" in request.messages[-1].text:
            return "nine"
        return lead(request)

    lead = fork_once(spawn_agent("c1", "count the berths"))
    fork_script = ForkScript(choose_reply, lambda _: "nine")
    async with open_session_with_forks(tmp_path, fork_script.model, **options) as session:
        events = await run_to_end(session)
    assert [event.kind for event in list_agent_starts(events)] == [kind]
    assert list_reports(session) == ["nine"]


@pytest.mark.spec("AGT-03", "FRK-01")
@pytest.mark.parametrize("kind", ["Explore", "general-purpose"])
async def test_with_forks_on_an_agent_with_a_type_has_that_type(tmp_path: Path, kind: str) -> None:
    lead = fork_once(spawn_agent("c1", "count the berths", subagent_type=kind))
    fork_script = ForkScript(
        lambda request: "nine" if request.messages[0].text == "count the berths" else lead(request),
        lambda _: "I am a fork",
    )
    async with open_session_with_forks(tmp_path, fork_script.model) as session:
        events = await run_to_end(session)
    assert [event.kind for event in list_agent_starts(events)] == [kind]
    assert list_reports(session) == ["nine"]


@pytest.mark.spec("PRM-08", "AGT-04")
async def test_a_fork_denied_by_a_rule_cannot_be_started(tmp_path: Path) -> None:
    fork_script = ForkScript(fork_once(spawn_agent("c1", "count the berths")), lambda _: "nine")
    async with open_session_with_forks(
        tmp_path, fork_script.model, disallowed_tools=["Agent(fork)"]
    ) as session:
        events = await run_to_end(session)
    assert list_agent_starts(events) == []
    (returned,) = [event for event in events if isinstance(event, ToolOutputReturned)]
    assert returned.result.is_error
    assert "Agent(fork)" in extract_tool_result_text(returned.result)


@pytest.mark.spec("FRK-02", "FRK-03", "AGT-07")
async def test_a_fork_request_has_the_parents_messages_then_placeholders_then_the_prompt(
    tmp_path: Path,
) -> None:
    # Its result is in the conversation before the forks begin.
    write = ToolUseBlock(id="c0", name="Write", input={"file_path": "a.txt", "content": "alpha"})
    calls = [write, *(spawn_agent(f"c{n}", f"job {n}") for n in (1, 2))]
    fork_script = ForkScript(fork_once(*calls), lambda request: f"did {get_last_text(request)[-5:]}")
    async with open_session_with_forks(tmp_path, fork_script.model, allowed_tools=["Write"]) as session:
        session.agent.limits = change_limits(session, thinking_tokens=3_000)
        await run_to_end(session, "the harbour")
    asked, after = fork_script.lead_requests[0], fork_script.lead_requests[1]
    assert sorted(list_reports(session)) == ["did job 1", "did job 2"]
    for number, fork in enumerate(sorted(fork_script.fork_requests, key=get_last_text), 1):
        assert (fork.system, fork.tools) == (asked.system, asked.tools)
        assert fork.thinking_tokens == asked.thinking_tokens == 3_000
        assert fork.max_tokens == asked.max_tokens
        assert fork.messages[:-1] == after.messages[:2]
        *results, directive = fork.messages[-1].content
        assert results == [
            ToolResultBlock(tool_use_id=f"c{n}", content=format_notice("placeholder_result"))
            for n in range(3)
        ]
        assert isinstance(directive, TextBlock)
        assert directive.text.endswith(f"job {number}")


async def test_a_fork_sees_the_schedule_tools_but_cannot_use_them(tmp_path: Path) -> None:
    create = ToolUseBlock(id="s1", name="CronCreate", input={"cron": "* * * * *", "prompt": "look"})
    fork_script = ForkScript(
        fork_once(spawn_agent("c1", "keep looking")),
        lambda request: get_last_text(request) if request.messages[-2].tool_uses == (create,) else create,
    )
    async with open_session_with_forks(tmp_path, fork_script.model) as session:
        await run_to_end(session)
        assert not session.runtime.inbox.scheduler.list_schedules()
    assert fork_script.fork_requests[0].tools == fork_script.lead_requests[0].tools
    assert [report.startswith("Only the lead can have schedules") for report in list_reports(session)] == [
        True
    ]


def change_limits(session: shoal.Session, **changed: Any) -> Any:
    from msgspec import structs

    return structs.replace(session.agent.limits, **changed)


@pytest.mark.spec("FRK-04", "PRM-01")
async def test_a_fork_asks_for_permission_like_its_parent(tmp_path: Path) -> None:
    write = ToolUseBlock(id="w1", name="Write", input={"file_path": "b.txt", "content": "from the fork"})

    def fork(request: ModelRequest) -> Any:
        return "written" if any(m.tool_uses == (write,) for m in request.messages) else write

    fork_script = ForkScript(fork_once(spawn_agent("c1", "write it")), fork)
    async with open_session_with_forks(tmp_path, fork_script.model) as session:
        (event,) = list_agent_starts([event async for event in session.run("go")])
        async with asyncio.timeout(30):
            question = await anext(session.runtime.question_broker.watch_questions())
        assert not (tmp_path / "b.txt").exists()
        session.runtime.question_broker.submit_answer(question.id, AllowAnswer())
        await session.supervisor.wait_until_idle()
    assert event.mode == "bubble"
    assert question.agent == event.agent
    assert list_reports(session) == ["written"]
    assert (tmp_path / "b.txt").read_text() == "from the fork"


def script_fork_calls(*calls: ToolUseBlock) -> Any:
    """Script a fork that makes these calls one after another and reports all their results."""

    def fork(request: ModelRequest) -> Any:
        returned = {
            block.tool_use_id: extract_tool_result_text(block)
            for message in request.messages
            for block in message.content
            if isinstance(block, ToolResultBlock)
        }
        left = [call for call in calls if call.id not in returned]
        return left[0] if left else json.dumps([returned[call.id] for call in calls])

    return fork


FORK_CALLS = (
    ToolUseBlock(id="r1", name="Read", input={"file_path": "a.txt"}),
    ToolUseBlock(id="w1", name="Write", input={"file_path": "b.txt", "content": "from the fork"}),
    ToolUseBlock(id="w2", name="Write", input={"file_path": "c.txt", "content": "from the fork"}),
    ToolUseBlock(id="b1", name="Bash", input={"command": "rm a.txt"}),
)


@pytest.mark.spec("PRM-01", "FRK-04")
@pytest.mark.parametrize("mode", ["default", "acceptEdits", "delegate", "bypassPermissions"])
async def test_a_running_fork_asks_in_the_mode_bubble_and_obeys_the_answers(
    tmp_path: Path, mode: Any
) -> None:
    (tmp_path / "a.txt").write_text("alpha")
    fork_script = ForkScript(fork_once(spawn_agent("c1", "try all")), script_fork_calls(*FORK_CALLS))
    options = {"mode": mode, "allow_bypass": True, "disallowed_tools": ["Bash(rm:*)"]}
    async with open_session_with_forks(tmp_path, fork_script.model, **options) as session:
        (event,) = list_agent_starts([event async for event in session.run("go")])
        questions = session.runtime.question_broker.watch_questions()
        asked = []
        for answer in (AllowAnswer(), DenyAnswer(reason="keep it as it is")):
            async with asyncio.timeout(30):
                question = await anext(questions)
            asked.append((question.agent, question.tool_use_id))
            session.runtime.question_broker.submit_answer(question.id, answer)
        await session.supervisor.wait_until_idle()
        assert list(session.runtime.question_broker.list_open_questions()) == []
    assert event.mode == "bubble"
    assert asked == [(event.agent, "w1"), (event.agent, "w2")]
    (report,) = list_reports(session)
    read, _, refused, removed = json.loads(report)
    assert "alpha" in read
    assert "keep it as it is" in refused
    assert "Bash(rm:*)" in removed
    assert sorted(path.name for path in tmp_path.glob("*.txt")) == ["a.txt", "b.txt"]


@pytest.mark.spec("PRM-01", "FRK-04")
@pytest.mark.parametrize("mode", ["plan", "dontAsk"])
async def test_a_running_fork_of_a_parent_that_asks_nothing_asks_nothing(tmp_path: Path, mode: Any) -> None:
    (tmp_path / "a.txt").write_text("alpha")
    fork_script = ForkScript(fork_once(spawn_agent("c1", "try all")), script_fork_calls(*FORK_CALLS[:2]))
    async with open_session_with_forks(tmp_path, fork_script.model, mode=mode) as session:
        (event,) = list_agent_starts(await run_to_end(session))
        assert list(session.runtime.question_broker.list_open_questions()) == []
    assert event.mode == mode
    (report,) = list_reports(session)
    read, refused = json.loads(report)
    assert "alpha" in read
    assert "Write" in refused or "plan" in refused
    assert not (tmp_path / "b.txt").exists()


@pytest.mark.spec("FRK-04")
async def test_a_fork_of_an_agent_in_plan_mode_stays_in_plan_mode(tmp_path: Path) -> None:
    fork_script = ForkScript(fork_once(spawn_agent("c1", "plan it")), lambda _: "planned")
    async with open_session_with_forks(tmp_path, fork_script.model, mode="plan") as session:
        events = await run_to_end(session)
    assert [event.mode for event in list_agent_starts(events)] == ["plan"]


@pytest.mark.spec("FRK-05")
async def test_a_fork_cannot_fork_but_can_start_an_agent_with_a_type(tmp_path: Path) -> None:
    answers: list[str] = []

    def fork(request: ModelRequest) -> Any:
        mine = [message.tool_uses for message in request.messages if message.tool_uses][1:]
        if len(mine) == 0:
            return spawn_agent("f1", "again")
        if len(mine) == 1:
            answers.append(get_last_text(request))
            return spawn_agent("f2", "look", subagent_type="Explore")
        return "the end"

    def lead(request: ModelRequest) -> Any:
        return "found" if request.messages[-1].text == "look" else fork_once(spawn_agent("c1", "do"))(request)

    fork_script = ForkScript(lead, fork)
    async with open_session_with_forks(tmp_path, fork_script.model) as session:
        await run_to_end(session)
        kinds = [each.kind for each in session.supervisor.list_agents()]
    assert "cannot fork again" in answers[0]
    assert kinds == ["fork", "Explore"]
    assert "Agent" in map_tools(fork_script.fork_requests[0])


@pytest.mark.spec("AGT-02", "RUN-05", "AGT-14")
async def test_with_forks_on_agents_run_in_the_background_on_the_parents_model(tmp_path: Path) -> None:
    calls = [
        spawn_agent("c1", "a", model="no-such-model", run_in_background=False),
        spawn_agent("c2", "look", subagent_type="Explore"),
    ]
    fork_script = ForkScript(
        lambda request: "found" if request.messages[-1].text == "look" else lead(request), lambda _: "ok"
    )
    lead = fork_once(*calls)
    async with open_session_with_forks(tmp_path, fork_script.model) as session:
        events = await run_to_end(session)
        model = session.agent.model.card.id
    assert [(event.kind, event.background, event.model) for event in list_agent_starts(events)] == [
        ("fork", True, model),
        ("Explore", True, model),
    ]
    returned = [event.data for event in events if isinstance(event, ToolOutputReturned)]
    assert [each["status"] for each in returned] == ["async_launched"] * 2
    inputs = map_tools(fork_script.lead_requests[0])["Agent"].input_schema["properties"]
    assert "run_in_background" not in inputs
    assert "fork" in inputs["subagent_type"]["description"]


async def test_without_forks_the_agent_tool_does_not_mention_them(tmp_path: Path) -> None:
    fork_script = ForkScript(lambda _: "ok", lambda _: "")
    async with open_session_with_forks(tmp_path, fork_script.model, settings=None) as session:
        await run_to_end(session)
    agent = map_tools(fork_script.lead_requests[0])["Agent"]
    assert "run_in_background" in agent.input_schema["properties"]
    assert "fork" not in agent.description


async def test_a_fork_can_edit_files_its_parent_has_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha")
    read = ToolUseBlock(id="c0", name="Read", input={"file_path": "a.txt"})
    edit = ToolUseBlock(
        id="e1", name="Edit", input={"file_path": "a.txt", "old_string": "alpha", "new_string": "beta"}
    )

    def lead(request: ModelRequest) -> Any:
        turns = sum(bool(message.tool_uses) for message in request.messages)
        return [read, spawn_agent("c1", "change it"), "done"][min(turns, 2)]

    def fork(request: ModelRequest) -> Any:
        return "changed" if any(edit in message.tool_uses for message in request.messages) else edit

    fork_script = ForkScript(lead, fork)
    async with open_session_with_forks(tmp_path, fork_script.model, allowed_tools=["Edit"]) as session:
        await run_to_end(session)
    assert (tmp_path / "a.txt").read_text() == "beta"


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.spec("TRN-02")
@pytest.mark.parametrize("when", ["same process", "nothing kept", "later process"])
async def test_a_resumed_fork_has_its_own_and_its_parents_conversation(tmp_path: Path, when: str) -> None:
    agent = ""

    def lead(request: ModelRequest) -> Any:
        last = get_last_text(request)
        if last == "the harbour":
            return [
                "I split it.",
                ToolUseBlock(id="c0", name="Glob", input={"pattern": "*"}),
                spawn_agent("c1", "job"),
            ]
        if last == "tell it more":
            return send_message(agent, "and the cranes?")
        return "so be it"

    fork_script = ForkScript(lead, lambda request: f"answer {len(fork_script.fork_requests)}")
    options = {"persist": when != "nothing kept"}
    async with open_session_with_forks(tmp_path, fork_script.model, **options) as session:
        events = await run_to_end(session, "the harbour")
        agent = list_agent_starts(events)[0].agent
        if when != "later process":
            await run_to_end(session, "tell it more")
    if when != "nothing kept":
        lines = read_lines(find_transcript(session, agent))
        assert {line["agentId"] for line in lines} == {agent}
        assert "the harbour" not in find_transcript(session, agent).read_text()
    if when == "later process":
        async with open_session_with_forks(tmp_path, fork_script.model, resume=session.id) as again:
            events = await run_to_end(again, "tell it more")
            assert [(event.kind, event.mode) for event in list_agent_starts(events)] == [("fork", "bubble")]
    first, second = fork_script.fork_requests
    assert second.messages[: len(first.messages)] == first.messages
    assert (second.system, second.tools) == (first.system, first.tools)
    assert second.messages[len(first.messages)].text == "answer 1"
    assert "and the cranes?" in second.messages[-1].text
    assert len(second.messages) == len(first.messages) + 2


@pytest.mark.spec("TRN-02")
async def test_a_resumed_fork_of_a_sub_agent_has_the_sub_agents_conversation(
    tmp_path: Path,
) -> None:
    def choose_reply(request: ModelRequest) -> Any:
        first, last = request.messages[0].text, get_last_text(request)
        forked = any(call.id == "n1" for message in request.messages for call in message.tool_uses)
        if first == "the cranes":
            return "counted" if forked else spawn_agent("n1", "count one")
        if last == "the harbour":
            return spawn_agent("c1", "the cranes", subagent_type="general-purpose")
        return resume_agent(fork)(request)

    fork = ""
    fork_script = ForkScript(choose_reply, lambda _: "one")
    async with open_session_with_forks(tmp_path, fork_script.model) as session:
        await run_to_end(session, "the harbour")
        _, nested = session.supervisor.list_agents()
        fork = nested.agent
    assert (nested.kind, list_reports(session)) == ("fork", ["counted", "one"])
    async with open_session_with_forks(tmp_path, fork_script.model, resume=session.id) as again:
        await run_to_end(again, "go on")
    first, second = fork_script.fork_requests
    assert first.messages[0].text == "the cranes"
    assert second.messages[: len(first.messages)] == first.messages
    assert second.system == first.system


@pytest.mark.spec("FRK-05")
async def test_a_compacted_fork_still_cannot_fork(tmp_path: Path) -> None:
    answers: list[str] = []

    def choose_reply(request: ModelRequest) -> Any:
        last = get_last_text(request)
        if "about to be replaced by a summary" in last:
            return "I am counting berths."
        if any(call.id == "f2" for message in request.messages for call in message.tool_uses):
            answers.append(last)
            return "counted"
        if request.messages[0].text.startswith("The conversation so far was summarised"):
            return spawn_agent("f2", "again")
        return lead(request)

    @shoal.tool(reads_only=True)
    async def fill() -> str:
        """Fill the conversation."""
        return "word " * 40_000

    lead = fork_once(spawn_agent("c1", "job"))
    small = ModelCard(id="small", provider="x", window=24_000, max_output=1_000)
    fork_script = ForkScript(
        choose_reply, lambda request: choose_reply(request) if "summary" in get_last_text(request) else FILL
    )
    model = ScriptedModel(fork_script, card=small)
    async with open_session_with_forks(tmp_path, model, tools=[fill], allowed_tools=["fill"]) as session:
        await run_to_end(session)
    (answer,) = answers
    assert "cannot fork again" in answer
    assert list_reports(session) == ["counted"]


async def test_a_fork_is_not_resumed_if_its_parents_conversation_is_gone(tmp_path: Path) -> None:
    fork_script = ForkScript(fork_once(spawn_agent("c1", "job")), lambda _: "ok")
    async with open_session_with_forks(tmp_path, fork_script.model) as session:
        (event,) = list_agent_starts(await run_to_end(session))
    meta = find_transcript(session, event.agent).with_suffix(".meta.json")
    meta.write_text(meta.read_text().replace('"forkOf":"', '"forkOf":"x'))
    fork_script = ForkScript(
        lambda r: send_message(event.agent, "more") if get_last_text(r) == "go on" else "so", lambda _: "ok"
    )
    async with open_session_with_forks(tmp_path, fork_script.model, resume=session.id) as again:
        events = await run_to_end(again, "go on")
    (returned,) = (each for each in events if isinstance(each, ToolOutputReturned))
    assert returned.result.is_error
    assert "from which this fork was created, is gone" in extract_tool_result_text(returned.result)
    assert not fork_script.fork_requests


async def test_a_fork_killed_before_its_prompt_was_written_must_be_started_again(tmp_path: Path) -> None:
    fork_script = ForkScript(fork_once(spawn_agent("c1", "job")), lambda _: "ok")
    async with open_session_with_forks(tmp_path, fork_script.model) as session:
        (event,) = list_agent_starts(await run_to_end(session))
    path = find_transcript(session, event.agent)
    path.write_bytes(b"")
    fork_script = ForkScript(
        lambda r: send_message(event.agent, "more") if get_last_text(r) == "go on" else "so", lambda _: "ok"
    )
    async with open_session_with_forks(tmp_path, fork_script.model, resume=session.id) as again:
        events = await run_to_end(again, "go on")
    assert list_agent_starts(events) == []
    assert f"The agent '{event.agent}' has no transcript to continue" in get_last_text(
        fork_script.lead_requests[-1]
    )
    assert fork_script.fork_requests == []


@pytest.mark.spec("FRK-07")
async def test_a_running_agent_answers_a_progress_query_without_a_trace(tmp_path: Path) -> None:
    summaries: list[str] = []

    @shoal.tool(reads_only=True)
    async def wait_here() -> str:
        """Wait."""
        (glimpse,) = session.supervisor.list_agents()
        summaries.append(await session.supervisor.ask_agent_for_progress(glimpse.agent))
        return "waited"

    def fork(request: ModelRequest) -> Any:
        mine = [message for message in request.messages if message.tool_uses][1:]
        if "asks for its status" in request.messages[-1].text:
            return "Counting berths in harbour.txt; seven so far."
        return "nine" if mine else ToolUseBlock(id="w", name="wait_here", input={})

    fork_script = ForkScript(fork_once(spawn_agent("c1", "job")), fork)
    async with open_session_with_forks(
        tmp_path, fork_script.model, tools=[wait_here], allowed_tools=["wait_here"]
    ) as session:
        await run_to_end(session)
        (glimpse,) = session.supervisor.list_agents()
        with pytest.raises(AgentRequestRefused, match="not running"):
            await session.supervisor.ask_agent_for_progress(glimpse.agent)
    assert summaries == ["Counting berths in harbour.txt; seven so far."]
    assert list_reports(session) == ["nine"]
    assert "seven so far" not in find_transcript(session, glimpse.agent).read_text()
    assert glimpse.tokens > 0


@pytest.mark.needs("git", "bwrap")
@pytest.mark.spec("ISO-03")
async def test_a_fork_in_a_worktree_gets_a_path_mapping_and_an_empty_read_state(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha")
    named = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "-A"), (*named, "commit", "-qm", "first")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    read = ToolUseBlock(id="c0", name="Read", input={"file_path": "a.txt"})
    change = {"file_path": "a.txt", "old_string": "alpha", "new_string": "beta"}
    edit = ToolUseBlock(id="e1", name="Edit", input=change)

    def lead(request: ModelRequest) -> Any:
        turns = sum(bool(message.tool_uses) for message in request.messages)
        return [read, spawn_agent("c1", "change it", isolation="worktree"), "done"][min(turns, 2)]

    def fork(request: ModelRequest) -> Any:
        return (
            get_last_text(request) if any(edit in message.tool_uses for message in request.messages) else edit
        )

    fork_script = ForkScript(lead, fork)
    async with open_session_with_forks(tmp_path, fork_script.model, allowed_tools=["Edit"]) as session:
        await run_to_end(session)
        (glimpse,) = session.supervisor.list_agents()
    assert glimpse.kind == "fork"
    directive = get_last_text(fork_script.fork_requests[0])
    assert "Translate its paths" in directive
    assert directive.endswith("change it")
    assert "read" in list_reports(session)[0].lower()
    assert (tmp_path / "a.txt").read_text() == "alpha"
