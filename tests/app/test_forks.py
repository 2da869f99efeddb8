"""Forks as agents: a copy of the agent that asks, with all it knows and nothing more."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fork_kit import (
    Minds,
    agent_call,
    last_of,
    message_to,
    open_forking,
    reports,
    started,
    through,
    transcript_of,
)

import shoal
from shoal.agent.forking import PLACEHOLDER
from shoal.core.errors import AgentRefused
from shoal.core.events import ToolReturned
from shoal.core.messages import Text, ToolResult, ToolUse, result_text
from shoal.core.questions import Allowed
from shoal.core.requests import Request
from shoal.core.usage import ModelCard
from shoal.models.scripted import ScriptedModel

FILL = ToolUse(id="x1", name="fill", input={})


def forks_once(*calls: ToolUse) -> Any:
    """The lead's mind: forks at the first chance, then is content."""

    def lead(request: Request) -> Any:
        begun = any(message.tool_uses for message in request.messages)
        return "so be it" if begun else ["I split it.", *calls]

    return lead


def goes_on(agent: str) -> Any:
    """The lead's mind in a later process: told to go on, it wakes the agent."""
    return lambda request: message_to(agent, "more") if last_of(request) == "go on" else "so be it"


def tools_by_name(request: Request) -> dict[str, Any]:
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
async def test_an_agent_without_a_type_is_a_fork_only_where_that_is_on_and_a_person_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: Any, env: str, kind: str
) -> None:
    if env:
        monkeypatch.setenv(env, "1")

    def mind(request: Request) -> Any:
        if "count the berths" in request.messages[-1].text:
            return "nine"
        return lead(request)

    lead = forks_once(agent_call("c1", "count the berths"))
    minds = Minds(mind, lambda _: "nine")
    async with open_forking(tmp_path, minds.model, **options) as session:
        events = await through(session)
    assert [event.kind for event in started(events)] == [kind]
    assert reports(session) == ["nine"]


@pytest.mark.spec("AGT-03", "FRK-01")
@pytest.mark.parametrize("kind", ["Explore", "general-purpose"])
async def test_where_forks_are_on_an_agent_with_a_type_is_of_that_type(tmp_path: Path, kind: str) -> None:
    lead = forks_once(agent_call("c1", "count the berths", subagent_type=kind))
    minds = Minds(
        lambda request: "nine" if request.messages[0].text == "count the berths" else lead(request),
        lambda _: "I am a fork",
    )
    async with open_forking(tmp_path, minds.model) as session:
        events = await through(session)
    assert [event.kind for event in started(events)] == [kind]
    assert reports(session) == ["nine"]


@pytest.mark.spec("PRM-08", "AGT-04")
async def test_a_fork_that_a_rule_forbids_cannot_be_started(tmp_path: Path) -> None:
    minds = Minds(forks_once(agent_call("c1", "count the berths")), lambda _: "nine")
    async with open_forking(tmp_path, minds.model, disallowed_tools=["Agent(fork)"]) as session:
        events = await through(session)
    assert started(events) == []
    (returned,) = [event for event in events if isinstance(event, ToolReturned)]
    assert returned.result.is_error
    assert "Agent(fork)" in result_text(returned.result)


@pytest.mark.spec("FRK-02", "FRK-03", "AGT-07")
async def test_a_fork_is_sent_all_its_parent_was_then_placeholders_then_its_job(tmp_path: Path) -> None:
    # Its result is in the conversation before the forks begin.
    write = ToolUse(id="c0", name="Write", input={"file_path": "a.txt", "content": "alpha"})
    calls = [write, *(agent_call(f"c{n}", f"job {n}") for n in (1, 2))]
    minds = Minds(forks_once(*calls), lambda request: f"did {last_of(request)[-5:]}")
    async with open_forking(tmp_path, minds.model, allowed_tools=["Write"]) as session:
        session.agent.bounds = shoal_bounds(session, thinking_tokens=3_000)
        await through(session, "the harbour")
    asked, after = minds.of_lead[0], minds.of_lead[1]
    assert sorted(reports(session)) == ["did job 1", "did job 2"]
    for number, fork in enumerate(sorted(minds.of_forks, key=last_of), 1):
        assert (fork.system, fork.tools) == (asked.system, asked.tools)
        assert fork.thinking_tokens == asked.thinking_tokens == 3_000
        assert fork.max_tokens == asked.max_tokens
        assert fork.messages[:-1] == after.messages[:2]
        *results, directive = fork.messages[-1].content
        assert results == [ToolResult(tool_use_id=f"c{n}", content=PLACEHOLDER) for n in range(3)]
        assert isinstance(directive, Text)
        assert directive.text.endswith(f"job {number}")


async def test_a_fork_sees_the_tools_for_schedules_and_makes_none(tmp_path: Path) -> None:
    create = ToolUse(id="s1", name="CronCreate", input={"cron": "* * * * *", "prompt": "look"})
    minds = Minds(
        forks_once(agent_call("c1", "keep looking")),
        lambda request: last_of(request) if request.messages[-2].tool_uses == (create,) else create,
    )
    async with open_forking(tmp_path, minds.model) as session:
        await through(session)
        assert not session.parts.timetable.all()
    assert minds.of_forks[0].tools == minds.of_lead[0].tools
    assert [report.startswith("Schedules are the lead's") for report in reports(session)] == [True]


def shoal_bounds(session: shoal.Session, **changed: Any) -> Any:
    from msgspec import structs

    return structs.replace(session.agent.bounds, **changed)


@pytest.mark.spec("FRK-04")
async def test_a_fork_asks_the_person_where_its_parent_would(tmp_path: Path) -> None:
    write = ToolUse(id="w1", name="Write", input={"file_path": "b.txt", "content": "from the fork"})

    def fork(request: Request) -> Any:
        return "written" if any(m.tool_uses == (write,) for m in request.messages) else write

    minds = Minds(forks_once(agent_call("c1", "write it")), fork)
    async with open_forking(tmp_path, minds.model) as session:
        (event,) = started([event async for event in session.run("go")])
        async with asyncio.timeout(30):
            question = await anext(session.parts.desk.incoming())
        assert not (tmp_path / "b.txt").exists()
        session.parts.desk.answer(question.id, Allowed())
        await session.parts.crew.quiet()
    assert event.mode == "bubble"
    assert question.agent == event.agent
    assert reports(session) == ["written"]
    assert (tmp_path / "b.txt").read_text() == "from the fork"


@pytest.mark.spec("FRK-04")
async def test_a_fork_of_a_planner_only_plans(tmp_path: Path) -> None:
    minds = Minds(forks_once(agent_call("c1", "plan it")), lambda _: "planned")
    async with open_forking(tmp_path, minds.model, mode="plan") as session:
        events = await through(session)
    assert [event.mode for event in started(events)] == ["plan"]


@pytest.mark.spec("FRK-05")
async def test_a_fork_cannot_fork_but_may_start_an_agent_that_is_named(tmp_path: Path) -> None:
    answers: list[str] = []

    def fork(request: Request) -> Any:
        mine = [message.tool_uses for message in request.messages if message.tool_uses][1:]
        if len(mine) == 0:
            return agent_call("f1", "again")
        if len(mine) == 1:
            answers.append(last_of(request))
            return agent_call("f2", "look", subagent_type="Explore")
        return "the end"

    def lead(request: Request) -> Any:
        return "found" if request.messages[-1].text == "look" else forks_once(agent_call("c1", "do"))(request)

    minds = Minds(lead, fork)
    async with open_forking(tmp_path, minds.model) as session:
        await through(session)
        kinds = [each.kind for each in session.parts.crew.agents()]
    assert "a fork cannot fork" in answers[0]
    assert kinds == ["fork", "Explore"]
    assert "Agent" in tools_by_name(minds.of_forks[0])


@pytest.mark.spec("AGT-02", "RUN-05", "AGT-14")
async def test_with_forks_on_all_run_in_the_background_and_on_their_parents_model(tmp_path: Path) -> None:
    calls = [
        agent_call("c1", "a", model="no-such-model", run_in_background=False),
        agent_call("c2", "look", subagent_type="Explore"),
    ]
    minds = Minds(
        lambda request: "found" if request.messages[-1].text == "look" else lead(request), lambda _: "ok"
    )
    lead = forks_once(*calls)
    async with open_forking(tmp_path, minds.model) as session:
        events = await through(session)
        model = session.agent.model.card.id
    assert [(event.kind, event.background, event.model) for event in started(events)] == [
        ("fork", True, model),
        ("Explore", True, model),
    ]
    returned = [event.data for event in events if isinstance(event, ToolReturned)]
    assert [each["status"] for each in returned] == ["async_launched"] * 2
    inputs = tools_by_name(minds.of_lead[0])["Agent"].input_schema["properties"]
    assert "run_in_background" not in inputs
    assert "fork" in inputs["subagent_type"]["description"]


async def test_without_forks_the_tool_speaks_of_none(tmp_path: Path) -> None:
    minds = Minds(lambda _: "ok", lambda _: "")
    async with open_forking(tmp_path, minds.model, settings=None) as session:
        await through(session)
    agent = tools_by_name(minds.of_lead[0])["Agent"]
    assert "run_in_background" in agent.input_schema["properties"]
    assert "fork" not in agent.description


async def test_a_fork_may_change_what_its_parent_has_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha")
    read = ToolUse(id="c0", name="Read", input={"file_path": "a.txt"})
    edit = ToolUse(
        id="e1", name="Edit", input={"file_path": "a.txt", "old_string": "alpha", "new_string": "beta"}
    )

    def lead(request: Request) -> Any:
        turns = sum(bool(message.tool_uses) for message in request.messages)
        return [read, agent_call("c1", "change it"), "done"][min(turns, 2)]

    def fork(request: Request) -> Any:
        return "changed" if any(edit in message.tool_uses for message in request.messages) else edit

    minds = Minds(lead, fork)
    async with open_forking(tmp_path, minds.model, allowed_tools=["Edit"]) as session:
        await through(session)
    assert (tmp_path / "a.txt").read_text() == "beta"


def its_own(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.spec("TRN-02")
@pytest.mark.parametrize("when", ["same process", "nothing kept", "later process"])
async def test_a_fork_that_ended_goes_on_with_all_it_and_its_parent_knew(tmp_path: Path, when: str) -> None:
    agent = ""

    def lead(request: Request) -> Any:
        last = last_of(request)
        if last == "the harbour":
            return [
                "I split it.",
                ToolUse(id="c0", name="Glob", input={"pattern": "*"}),
                agent_call("c1", "job"),
            ]
        if last == "tell it more":
            return message_to(agent, "and the cranes?")
        return "so be it"

    minds = Minds(lead, lambda request: f"answer {len(minds.of_forks)}")
    options = {"persist": when != "nothing kept"}
    async with open_forking(tmp_path, minds.model, **options) as session:
        events = await through(session, "the harbour")
        agent = started(events)[0].agent
        if when != "later process":
            await through(session, "tell it more")
    if when != "nothing kept":
        lines = its_own(transcript_of(session, agent))
        assert {line["agentId"] for line in lines} == {agent}
        assert "the harbour" not in transcript_of(session, agent).read_text()
    if when == "later process":
        async with open_forking(tmp_path, minds.model, resume=session.id) as again:
            events = await through(again, "tell it more")
            assert [(event.kind, event.mode) for event in started(events)] == [("fork", "bubble")]
    first, second = minds.of_forks
    assert second.messages[: len(first.messages)] == first.messages
    assert (second.system, second.tools) == (first.system, first.tools)
    assert second.messages[len(first.messages)].text == "answer 1"
    assert "and the cranes?" in second.messages[-1].text
    assert len(second.messages) == len(first.messages) + 2


@pytest.mark.spec("TRN-02")
async def test_a_fork_of_a_started_agent_goes_on_from_the_words_of_that_one(
    tmp_path: Path,
) -> None:
    def mind(request: Request) -> Any:
        first, last = request.messages[0].text, last_of(request)
        forked = any(call.id == "n1" for message in request.messages for call in message.tool_uses)
        if first == "the cranes":
            return "counted" if forked else agent_call("n1", "count one")
        if last == "the harbour":
            return agent_call("c1", "the cranes", subagent_type="general-purpose")
        return goes_on(fork)(request)

    fork = ""
    minds = Minds(mind, lambda _: "one")
    async with open_forking(tmp_path, minds.model) as session:
        await through(session, "the harbour")
        _, nested = session.parts.crew.agents()
        fork = nested.agent
    assert (nested.kind, reports(session)) == ("fork", ["counted", "one"])
    async with open_forking(tmp_path, minds.model, resume=session.id) as again:
        await through(again, "go on")
    first, second = minds.of_forks
    assert first.messages[0].text == "the cranes"
    assert second.messages[: len(first.messages)] == first.messages
    assert second.system == first.system


@pytest.mark.spec("FRK-05")
async def test_a_fork_that_was_compacted_still_cannot_fork(tmp_path: Path) -> None:
    answers: list[str] = []

    def mind(request: Request) -> Any:
        last = last_of(request)
        if "about to be replaced by a summary" in last:
            return "I am counting berths."
        if any(call.id == "f2" for message in request.messages for call in message.tool_uses):
            answers.append(last)
            return "counted"
        if request.messages[0].text.startswith("The conversation so far was summarised"):
            return agent_call("f2", "again")
        return lead(request)

    @shoal.tool(reads_only=True)
    async def fill() -> str:
        """Fill the conversation."""
        return "word " * 40_000

    lead = forks_once(agent_call("c1", "job"))
    small = ModelCard(id="small", provider="x", window=24_000, max_output=1_000)
    minds = Minds(mind, lambda request: mind(request) if "summary" in last_of(request) else FILL)
    model = ScriptedModel(minds, card=small)
    async with open_forking(tmp_path, model, tools=[fill], allowed_tools=["fill"]) as session:
        await through(session)
    (answer,) = answers
    assert "a fork cannot fork" in answer
    assert reports(session) == ["counted"]


async def test_a_fork_whose_parents_words_are_gone_is_not_resumed_without_them(tmp_path: Path) -> None:
    minds = Minds(forks_once(agent_call("c1", "job")), lambda _: "ok")
    async with open_forking(tmp_path, minds.model) as session:
        (event,) = started(await through(session))
    meta = transcript_of(session, event.agent).with_suffix(".meta.json")
    meta.write_text(meta.read_text().replace('"forkOf":"', '"forkOf":"x'))
    minds = Minds(
        lambda r: message_to(event.agent, "more") if last_of(r) == "go on" else "so", lambda _: "ok"
    )
    async with open_forking(tmp_path, minds.model, resume=session.id) as again:
        events = await through(again, "go on")
    (returned,) = (each for each in events if isinstance(each, ToolReturned))
    assert returned.result.is_error
    assert "what it knows from its parent is gone" in result_text(returned.result)
    assert not minds.of_forks


async def test_a_fork_killed_before_its_job_was_written_down_is_to_be_started_anew(tmp_path: Path) -> None:
    minds = Minds(forks_once(agent_call("c1", "job")), lambda _: "ok")
    async with open_forking(tmp_path, minds.model) as session:
        (event,) = started(await through(session))
    path = transcript_of(session, event.agent)
    path.write_bytes(b"")
    minds = Minds(
        lambda r: message_to(event.agent, "more") if last_of(r) == "go on" else "so", lambda _: "ok"
    )
    async with open_forking(tmp_path, minds.model, resume=session.id) as again:
        events = await through(again, "go on")
    assert started(events) == []
    assert f"There is no agent '{event.agent}'" in last_of(minds.of_lead[-1])
    assert minds.of_forks == []


@pytest.mark.spec("FRK-07")
async def test_a_running_agent_says_what_it_is_doing_and_forgets_that_it_did(tmp_path: Path) -> None:
    told: list[str] = []

    @shoal.tool(reads_only=True)
    async def wait_here() -> str:
        """Wait."""
        (glimpse,) = session.parts.crew.agents()
        told.append(await session.parts.crew.summary_of(glimpse.agent))
        return "waited"

    def fork(request: Request) -> Any:
        mine = [message for message in request.messages if message.tool_uses][1:]
        if "asks where it stands" in request.messages[-1].text:
            return "Counting berths in harbour.txt; seven so far."
        return "nine" if mine else ToolUse(id="w", name="wait_here", input={})

    minds = Minds(forks_once(agent_call("c1", "job")), fork)
    async with open_forking(tmp_path, minds.model, tools=[wait_here], allowed_tools=["wait_here"]) as session:
        await through(session)
        (glimpse,) = session.parts.crew.agents()
        with pytest.raises(AgentRefused, match="not running"):
            await session.parts.crew.summary_of(glimpse.agent)
    assert told == ["Counting berths in harbour.txt; seven so far."]
    assert reports(session) == ["nine"]
    assert "seven so far" not in transcript_of(session, glimpse.agent).read_text()
    assert glimpse.tokens > 0


@pytest.mark.needs("git", "bwrap")
@pytest.mark.spec("ISO-03")
async def test_a_fork_in_a_worktree_is_told_how_paths_translate_and_has_read_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha")
    named = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "-A"), (*named, "commit", "-qm", "first")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    read = ToolUse(id="c0", name="Read", input={"file_path": "a.txt"})
    change = {"file_path": "a.txt", "old_string": "alpha", "new_string": "beta"}
    edit = ToolUse(id="e1", name="Edit", input=change)

    def lead(request: Request) -> Any:
        turns = sum(bool(message.tool_uses) for message in request.messages)
        return [read, agent_call("c1", "change it", isolation="worktree"), "done"][min(turns, 2)]

    def fork(request: Request) -> Any:
        return last_of(request) if any(edit in message.tool_uses for message in request.messages) else edit

    minds = Minds(lead, fork)
    async with open_forking(tmp_path, minds.model, allowed_tools=["Edit"]) as session:
        await through(session)
        (glimpse,) = session.parts.crew.agents()
    assert glimpse.kind == "fork"
    directive = last_of(minds.of_forks[0])
    assert "must be translated" in directive
    assert directive.endswith("change it")
    assert "read" in reports(session)[0].lower()
    assert (tmp_path / "a.txt").read_text() == "alpha"
