"""Wrong keywords of the Python API: the error names the nearest keyword, and the keywords that exist."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.core.keyword_checks import check_keywords

SHOAL: Any = shoal
"""Untyped: type checkers refuse these calls as well."""
EDITOR = shoal.Agent("editor", prompt="You edit.")
QUESTION: Any = shoal.PermissionQuestion(
    id="1", agent="lead", tool_use_id="2", tool="Bash", input={}, reason=""  # type: ignore[arg-type]
)  # fmt: skip

WRONG_CALLS: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: SHOAL.Agent("a", prompt="x", outputt=int),
        r"shoal.Agent\(\) .*'outputt'. Did you mean output\?",
    ),
    (lambda: SHOAL.Agent("a", promt="x"), r"'promt'. Did you mean prompt\?"),
    (lambda: SHOAL.Agent("a"), r"shoal.Agent\(\) needs prompt=\."),
    (SHOAL.Agent, r"shoal.Agent\(\) needs name=, prompt=\."),
    (lambda: SHOAL.Agent("a", "You edit."), r"shoal.Agent\(\) takes only name without a keyword. .*prompt="),
    (lambda: SHOAL.open(on_questoin=print), r"shoal.open\(\) .*Did you mean on_question\?"),
    (lambda: SHOAL.open("."), r"shoal.open\(\) takes nothing without a keyword"),
    (lambda: SHOAL.open(modle="x"), r"Did you mean model\?"),
    (lambda: SHOAL.open(permission_mode="plan"), r"'permission_mode'. Did you mean mode\?$"),
    (lambda: SHOAL.open(max_budget=1), r"Did you mean max_budget_usd\?$"),
    (lambda: SHOAL.open(instructions="x"), r"Did you mean system_prompt\?$"),
    (lambda: SHOAL.open(can_use_tool=print), r"Did you mean on_question\?$"),
    (lambda: SHOAL.open(skip_permission=True), r"'skip_permission'. (?!Did you mean)"),
    (lambda: SHOAL.open(allow_by_pass=True), r"'allow_by_pass'. (?!Did you mean allow_bypass)"),
    (lambda: SHOAL.run("x", outpt=int), r"shoal.run\(\) .*'outpt'. Did you mean output\?"),
    (lambda: SHOAL.run_sync("x", on_evnt=print), r"shoal.run_sync\(\) .*Did you mean on_event\?"),
    (lambda: SHOAL.run_sync(cwd="."), r"shoal.run_sync\(\) needs prompt=\."),
    (lambda: SHOAL.Team("t", members=[EDITOR], leed=EDITOR), r"shoal.Team\(\) .*Did you mean lead or seed\?"),
    (lambda: SHOAL.Team("t", member=[EDITOR]), r"'member'. Did you mean members\?"),
    (lambda: SHOAL.Team("t"), r"shoal.Team\(\) needs members=\."),
    (lambda: SHOAL.Team.resume("t", membrs=[]), r"shoal.Team.resume\(\) .*Did you mean members\?"),
    (
        lambda: SHOAL.Budget(usdd=1),
        r"shoal.Budget\(\) .*'usdd'. Did you mean usd\? It takes usd=, tokens=, requests=\.",
    ),
    (lambda: SHOAL.Budget(zzz=1), r"'zzz'. It takes usd=, tokens=, requests=\."),
    (lambda: SHOAL.Budget(5), r"shoal.Budget\(\) takes nothing without a keyword. Its keywords: usd=, "),
    (lambda: SHOAL.tool(read_only=True), r"shoal.tool\(\) .*'read_only'. Did you mean reads_only\? It takes"),
    (lambda: SHOAL.Hook(evnt="Stop"), r"shoal.Hook\(\) .*Did you mean event\?"),
    (lambda: SHOAL.Hook(event="Stop"), r"shoal.Hook\(\) needs action=, origin=\."),
    (lambda: SHOAL.HookDecision(blockd="no"), r"shoal.HookDecision\(\) .*Did you mean blocked\?"),
    (
        lambda: SHOAL.DenyAnswer(reson="no"),
        r"shoal.DenyAnswer\(\) .*mean reason\? It takes reason=, ",
    ),
    (lambda: SHOAL.DenyAnswer("no"), r"shoal.DenyAnswer\(\) takes nothing without a keyword"),
    (lambda: SHOAL.ModelCard(id="a", provider="b", prise=1), r"shoal.ModelCard\(\) .*Did you mean price\?"),
    (lambda: SHOAL.TokenPrice(inputs=1.0), r"shoal.TokenPrice\(\) .*Did you mean input\?"),
    (lambda: SHOAL.ToolOutput(contnt="x"), r"shoal.ToolOutput\(\) .*Did you mean content\?"),
    (lambda: SHOAL.ModelReply(messages=[]), r"shoal.ModelReply\(\) .*Did you mean message\?"),
    (lambda: SHOAL.ScriptedModel([], crad=1), r"shoal.ScriptedModel\(\) .*Did you mean card\?"),
    (lambda: SHOAL.MemoryStore(max_evnts=1), r"shoal.MemoryStore\(\) .*Did you mean max_events\?"),
    (lambda: SHOAL.FileStore(Path(), durabel=True), r"shoal.FileStore\(\) .*Did you mean durable\?"),
    (lambda: QUESTION.allow(remembr="session"), r"question.allow\(\) .*Did you mean remember\?"),
    (QUESTION.deny, r"question.deny\(\) needs reason=\."),
]


@pytest.mark.spec("API-07")
@pytest.mark.parametrize(("call", "problem"), WRONG_CALLS)
def test_a_wrong_keyword_gets_the_nearest_name(call: Callable[[], Any], problem: str) -> None:
    with pytest.raises(TypeError, match=problem) as caught:
        call()
    assert caught.value.__cause__ is None


@pytest.mark.spec("API-07")
async def test_wrong_keywords_of_sessions_and_teams_get_the_nearest_name(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(lambda _: "ok")) as opened:
        session: Any = opened
        for call, problem in (
            (lambda: session.spawn(EDITOR, "x", outputt=int), r"session.spawn\(\) .*mean output\?"),
            (lambda: session.map(EDITOR, ["x"], at_onc=2), r"session.map\(\) .*mean at_once\? It takes"),
            (lambda: session.run(promt="x"), r"session.run\(\) .*mean prompt\?"),
            (lambda: session.undo(conversatoin=True), r"session.undo\(\) .*mean conversation\?"),
        ):
            with pytest.raises(TypeError, match=problem):
                call()
        handle: Any = await session.spawn(EDITOR, "x")
        with pytest.raises(TypeError, match=r"handle.stop\(\) .*mean reason\? It takes reason=\."):
            handle.stop(reasn="x")
        await handle
    model = shoal.ScriptedModel(lambda _: "ok")
    async with shoal.Team("repair", members=[EDITOR], cwd=tmp_path, model=model) as entered:
        team: Any = entered
        with pytest.raises(TypeError, match=r"team.add_task\(\) .*'blockedby'. Did you mean blocked_by\?"):
            team.add_task("x", blockedby=[])
        with pytest.raises(TypeError, match=r"team.send\(\) .*mean text\? It takes to=, text=\."):
            team.send("editor", txt="x")
        with pytest.raises(TypeError, match=r"team.add_task\(\) needs subject=\."):
            team.add_task()


@pytest.mark.spec("API-07")
async def test_wrong_keywords_of_steps_get_the_nearest_name(tmp_path: Path) -> None:
    @shoal.workflow
    async def plan(flow: shoal.Workflow) -> list[str]:
        step: Any = flow
        problems = []
        for call in (
            lambda: step.agent(EDITOR, "x", outputt=str),
            lambda: step.map(EDITOR, ["x"], defalt=None),
            lambda: step.pipeline([1], at_onces=3),
            lambda: step.shell("ls", timout=3),
        ):
            with pytest.raises(TypeError) as caught:
                call()
            problems.append(str(caught.value))
        return problems

    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(lambda _: "ok")) as session:
        problems = await plan.run(session)
    assert [each.partition(" It takes")[0] for each in problems] == [
        "flow.agent() got an unknown option 'outputt'. Did you mean output?",
        "flow.map() got an unknown option 'defalt'. Did you mean default?",
        "flow.pipeline() got an unknown option 'at_onces'. Did you mean at_once?",
        "flow.shell() got an unknown option 'timout'. Did you mean timeout?",
    ]


def test_an_error_in_the_body_of_a_checked_function_is_left_alone() -> None:
    @check_keywords("f()")
    def add(left: Any, right: Any = 1) -> Any:
        return left + right

    with pytest.raises(TypeError, match="unsupported operand"):
        add(None)


def test_a_checked_function_keeps_its_signature() -> None:
    assert "prompt: 'str', *, output" in str(inspect.signature(shoal.run))
    assert "usd: 'float | None' = None" in str(inspect.signature(shoal.Budget))
    assert asyncio.iscoroutinefunction(shoal.run)
    assert shoal.run.__doc__ is not None


def echo(text: str) -> str:
    return text


WRONG_VALUES: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: SHOAL.tool(name="a b")(echo),
        r"@shoal.tool: name: 'a b' cannot name a tool. Use 1 to 64",
    ),
    (lambda: SHOAL.tool(name="")(echo), r"name: '' cannot name a tool"),
    (lambda: SHOAL.tool(lambda text: text), r"name: '<lambda>' cannot name a tool"),
    (
        lambda: SHOAL.tool(deadline=-1)(echo),
        r"deadline: expected a number of seconds .* got -1",
    ),
    (lambda: SHOAL.tool(deadline="2m")(echo), r"deadline: expected a number of seconds .* got '2m'"),
    (lambda: SHOAL.Agent("a", prompt="x", mode="plann"), r"did you mean plan\?$"),
    (
        lambda: SHOAL.Agent("a", prompt="x", instructions="no"),
        r"instructions: expected True or False",
    ),
    (lambda: SHOAL.ScriptedModel(3), r"a function or a sequence of replies"),
    (lambda: SHOAL.ScriptedModel("hello"), r"Put a single reply in a list"),
]


@pytest.mark.spec("API-07")
@pytest.mark.parametrize(("call", "problem"), WRONG_VALUES)
def test_a_wrong_value_is_refused_at_once(call: Callable[[], Any], problem: str) -> None:
    with pytest.raises((TypeError, ValueError, shoal.SettingsError), match=problem):
        call()


@pytest.mark.spec("API-07")
async def test_an_unknown_mode_of_a_running_session_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(lambda _: "ok"), mode="plan") as opened:
        session: Any = opened
        with pytest.raises(shoal.SettingsError, match=r"'acceptEdit'. Did you mean acceptEdits\?"):
            session.set_mode("acceptEdit")
        assert session.permission_mode == "plan"
        with pytest.raises(TypeError, match=r"session.steer\(\): prompt: expected a string"):
            session.steer(3)
        with pytest.raises(shoal.errors.AgentRequestRefused, match=r"session.list_subagents\(\) returns"):
            await session.send("nobody", "hi")


async def test_a_store_takes_its_directory_as_text(tmp_path: Path) -> None:
    store = shoal.FileStore(str(tmp_path / "home"))
    model = shoal.ScriptedModel(["ok"])
    assert (await shoal.run("hi", cwd=tmp_path, model=model, store=store)).text == "ok"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"mode": "plam"},
            "shoal.Agent('a'): mode: 'plam' is not one of default, acceptEdits, plan, dontAsk, "
            "bypassPermissions, delegate, bubble; did you mean plan?",
        ),
        (
            {"memory": "usr"},
            "shoal.Agent('a'): memory: 'usr' is not one of user, project, local; did you mean user?",
        ),
        ({"model": ""}, "shoal.Agent('a'): model: it is empty."),
        (
            {"disallowed_tools": ["Bash("]},
            "shoal.Agent('a'): disallowed_tools: 'Bash(' is not a tool; write Tool, Tool(pattern) or *.",
        ),
    ],
)
def test_a_wrong_value_of_an_agent_is_explained_in_one_sentence(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(shoal.SettingsError) as raised:
        SHOAL.Agent("a", prompt="x", **fields)
    assert str(raised.value) == message
