"""Sessions as Python programs use them: turns to await and to read, in blocks, notebooks and threads."""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path
from typing import Any, NotRequired, get_args, get_origin, get_type_hints

import pytest

import shoal
from shoal.app.options import Options
from shoal.core.conversation.model_requests import ModelRequest, TextDelta
from shoal.core.errors import BadRequest, SettingsError
from shoal.core.events import RunFinished, TurnEnded
from shoal.core.extensions.hook_events import HOOK_EVENT_DESCRIPTIONS
from shoal.wire.hook_output_codec import InvalidHookOutputError, parse_hook_output_json


class HangingModel(shoal.ScriptedModel):
    """Hangs on the prompt `hang`, and answers every other one."""

    def __init__(self, says_first: str = "") -> None:
        super().__init__(lambda request: f"heard {request.messages[-1].text.split()[-1]}")
        self.says_first = says_first
        self.was_cancelled = False

    async def generate_reply(self, request: ModelRequest, on_delta: Any) -> Any:
        if request.messages[-1].text.endswith("hang"):
            if self.says_first:
                await on_delta(TextDelta(self.says_first))
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.was_cancelled = True
                raise
        return await super().generate_reply(request, on_delta)


@pytest.mark.spec("API-05")
async def test_a_turn_is_awaited_for_its_result(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(["hello"])) as session:
        result = await session.run("hi")
    assert (result.text, result.reason, result.ok, result.requests) == ("hello", "done", True, 1)
    assert result.cost_usd == 0


@pytest.mark.spec("API-05")
async def test_a_turn_is_read_as_text_and_then_awaited(tmp_path: Path) -> None:
    text = "one two three " * 20
    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel([text])) as session:
        turn = session.run("hi")
        pieces = [piece async for piece in turn.text()]
        assert len(pieces) > 1
        assert "".join(pieces) == text
        assert (await turn).text == text


@pytest.mark.spec("API-05")
async def test_a_failed_turn_raises_when_it_is_awaited_or_read_as_text(tmp_path: Path) -> None:
    model = shoal.ScriptedModel(lambda _: BadRequest("no such thing"))
    async with shoal.open(cwd=tmp_path, model=model) as session:
        with pytest.raises(shoal.RunFailed, match=r"model_error.*no such thing") as failure:
            await session.run("hi")
        assert isinstance(failure.value.__cause__, BadRequest)
        assert failure.value.result.reason == "model_error"
        with pytest.raises(shoal.RunFailed):
            async for _ in session.run("hi").text():
                pass
        events = [event async for event in session.run("hi")]
        assert isinstance(events[-1], RunFinished)


@pytest.mark.spec("API-05")
async def test_leaving_the_loop_early_ends_the_turn_and_the_next_one_starts_at_once(tmp_path: Path) -> None:
    model, ends = HangingModel(), []
    async with shoal.open(cwd=tmp_path, model=model) as session:
        session.subscribe(lambda event: ends.append(event) if isinstance(event, TurnEnded) else None)
        async for _ in session.run("hang"):
            break
        async with asyncio.timeout(20):
            result = await session.run("again")
        assert result.text == "heard again"
        assert [end.reason for end in ends] == ["interrupted", "done"]
        # Also if the program raises in the loop.
        with pytest.raises(ZeroDivisionError):
            await read_and_raise(session.run("hang"))
        async with asyncio.timeout(20):
            assert (await session.run("more")).text == "heard more"


async def read_and_raise(turn: shoal.Turn[Any]) -> None:
    async for _ in turn:
        raise ZeroDivisionError


@pytest.mark.spec("API-05")
async def test_leaving_the_loop_over_the_text_ends_the_turn_and_the_next_one_starts_at_once(
    tmp_path: Path,
) -> None:
    model, ends = HangingModel(says_first="one moment"), []
    async with asyncio.timeout(20), shoal.open(cwd=tmp_path, model=model) as session:
        session.subscribe(lambda event: ends.append(event) if isinstance(event, TurnEnded) else None)
        async for piece in session.run("hang").text():
            assert piece == "one moment"
            break
        assert (await session.run("again")).text == "heard again"
        assert model.was_cancelled
        with pytest.raises(ZeroDivisionError):
            await read_text_and_raise(session.run("hang"))
        assert (await session.run("more")).text == "heard more"
        # Also while the exception that ended the wait for the next piece is handled.
        try:
            await read_text_until_canceled(session.run("hang"))
        except asyncio.CancelledError:
            assert (await session.run("last")).text == "heard last"
        text: Any = session.run("hang").text()
        async with contextlib.aclosing(text):
            assert await anext(text) == "one moment"
        assert not session.is_busy
        assert (await session.run("closed")).text == "heard closed"
        # A reader that never read ends nothing.
        turn = session.run("unread")
        turn.text()
        assert (await turn).text == "heard unread"
    assert [end.reason for end in ends] == [*["interrupted", "done"] * 4, "done"]


async def read_text_and_raise(turn: shoal.Turn[Any]) -> None:
    async for _ in turn.text():
        raise ZeroDivisionError


async def read_text_until_canceled(turn: shoal.Turn[Any]) -> None:
    task = asyncio.current_task()
    assert task is not None
    try:
        async for _ in turn.text():
            task.cancel()
    finally:
        task.uncancel()


@pytest.mark.spec("API-05")
async def test_a_turn_that_is_read_to_its_end_is_not_interrupted(tmp_path: Path) -> None:
    ends = []
    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(["one", "two"])) as session:
        session.subscribe(lambda event: ends.append(event) if isinstance(event, TurnEnded) else None)
        async for event in session.run("hi"):
            if isinstance(event, RunFinished):
                break
        async for _ in session.run("hi"):
            pass
    assert [end.reason for end in ends] == ["done", "done"]


@pytest.mark.spec("API-06")
def test_a_session_opens_and_closes_in_different_tasks_as_in_a_notebook(tmp_path: Path) -> None:
    loop = asyncio.new_event_loop()
    try:
        session = shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(["one", "two"]))
        loop.run_until_complete(session.open())
        first = loop.run_until_complete(run_prompt(session, "hi"))
        second = loop.run_until_complete(run_prompt(session, "hi"))
        loop.run_until_complete(session.close())
        assert (first.text, second.text) == ("one", "two")
        with pytest.raises(RuntimeError, match=r"The session is closed\. Open another one"):
            loop.run_until_complete(run_prompt(session, "hi"))
    finally:
        loop.close()


async def run_prompt(session: shoal.Session[Any], prompt: str) -> shoal.Result[Any]:
    return await session.run(prompt)


@pytest.mark.spec("API-06")
async def test_an_error_at_the_start_is_raised_by_open(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="is not a directory"):
        await shoal.open(cwd=tmp_path / "missing", model=shoal.ScriptedModel([])).open()


@pytest.mark.spec("API-06")
async def test_run_sync_works_inside_a_running_loop(tmp_path: Path) -> None:
    result = shoal.run_sync("hi", cwd=tmp_path, model=shoal.ScriptedModel(["hello"]))
    assert result.text == "hello"
    with pytest.raises(shoal.RunFailed, match="no such thing"):
        shoal.run_sync("hi", cwd=tmp_path, model=shoal.ScriptedModel(lambda _: BadRequest("no such thing")))


@pytest.mark.spec("API-06")
async def test_a_session_that_is_not_open_says_so(tmp_path: Path) -> None:
    session = shoal.open(cwd=tmp_path, model=shoal.ScriptedModel([]))
    with pytest.raises(RuntimeError, match=r"The session is not open\. Enter it with `async with"):
        session.run("hi")
    with pytest.raises(RuntimeError, match="The session is not open"):
        _ = session.id
    with pytest.raises(RuntimeError, match="The session is not open"):
        session.subscribe(print)
    with pytest.raises(RuntimeError, match="The session is not open"):
        await session.spawn(shoal.Agent("a", prompt="x"), "go")
    async with session:
        with pytest.raises(RuntimeError, match="already opened"):
            await session.__aenter__()


@pytest.mark.spec("API-07")
@pytest.mark.parametrize("function", [shoal.open, shoal.run_sync])
def test_an_unknown_option_is_refused_with_the_nearest_name(function: Any) -> None:
    prompt = () if function is shoal.open else ("hi",)
    with pytest.raises(TypeError, match=r"unknown option 'max_turn'. Did you mean max_turns\?"):
        function(*prompt, max_turn=3)


@pytest.mark.spec("API-07")
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"max_turns": 0}, "max_turns: expected an integer of at least 1, got 0"),
        ({"max_turns": 1.5}, "max_turns: expected an integer of at least 1, got 1.5"),
        ({"max_budget_usd": 0}, "max_budget_usd: expected a number greater than 0, got 0"),
        ({"deadline": -1}, "deadline: expected a number greater than 0, got -1"),
        ({"max_agents": -1}, "max_agents: expected an integer of at least 0, got -1"),
        ({"settings": 3}, "settings: expected a mapping or a path, got 3"),
        ({"settings": {"a": {1, 2}}}, "settings: cannot be written as JSON"),
        ({"cwd": 3}, "cwd: expected a path, got 3"),
        ({"agents": shoal.Agent("a", prompt="x")}, r"agents: expected a list of agents. Write agents=\["),
        ({"agents": ["a"]}, "agents: expected Agent objects, got 'a'"),
    ],
)
async def test_a_wrong_value_gets_a_sentence(tmp_path: Path, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        await shoal.open(**{"cwd": tmp_path, "model": shoal.ScriptedModel([]), **options}).__aenter__()


async def test_settings_are_a_mapping_or_a_path(tmp_path: Path) -> None:
    model = shoal.ScriptedModel(lambda _: "done")
    (tmp_path / "s.json").write_text("{}")
    for settings in ({"model": "sonnet"}, tmp_path / "s.json", '{"env": {}}'):
        async with shoal.open(cwd=tmp_path, model=model, settings=settings) as session:
            assert (await session.run("hi")).text == "done"


@pytest.mark.spec("API-07")
async def test_an_agent_with_an_unknown_tool_is_refused_at_open_and_at_spawn(tmp_path: Path) -> None:
    agent = shoal.Agent("a", prompt="x", tools=["Read", shoal.ToolRule("Gerp")])
    model = shoal.ScriptedModel([])
    problem = r"shoal.Agent\('a'\): tools: there is no tool named 'Gerp'. Did you mean Grep\?"
    with pytest.raises(SettingsError, match=problem):
        await shoal.open(cwd=tmp_path, model=model, agents=[agent]).__aenter__()
    async with shoal.open(cwd=tmp_path, model=model) as session:
        with pytest.raises(SettingsError, match=problem):
            await session.spawn(agent, "go")


@pytest.mark.spec("API-01")
def test_every_public_name_is_exported_and_loads() -> None:
    for name in shoal.__all__:
        assert getattr(shoal, name) is not None
    assert {"Agent", "AgentHandle", "Budget", "Hook", "Hooks", "Member", "Model", "Question"} <= {
        *shoal.__all__
    }
    assert {"Result", "Session", "Task", "Team", "Turn", "open", "run", "run_sync"} <= {*shoal.__all__}
    for union in (shoal.StreamDelta, shoal.Question, shoal.Answer):
        assert {each.__name__ for each in get_args(union)} <= {*shoal.__all__}
    annotations = {
        shoal.ModelReply: "StopReason",
        shoal.ModelRequest: "WebSearchOptions",
        shoal.TokenPrice: "LongPromptPrice",
        shoal.ChoiceQuestion: "MultipleChoice",
        shoal.MultipleChoice: "ChoiceOption",
        shoal.PermissionQuestion: "PermissionSuggestion",
        shoal.AllowAnswer: "RememberScope",
    }
    for kind, name in annotations.items():
        assert name in str(kind.__annotations__)
        assert name in shoal.__all__
    assert {"Store", "HookEntry", "ShellStepResult", "MailMessage"} <= {*shoal.__all__}
    assert "McpServerStatus" in str(shoal.Session.list_mcp_servers.__annotations__["return"])
    assert "McpServerStatus" in shoal.__all__
    assert [*dir(shoal)] == sorted([*shoal.__all__, "__version__"])


@pytest.mark.spec("API-07")
def test_the_types_of_hooks_and_tools_match_the_events_and_tools_that_exist() -> None:
    from shoal.core.extensions import hook_types
    from shoal.core.extensions.hook_events import (
        AGENT_FIELDS,
        COMMON_FIELDS,
        HOOK_EVENT_DESCRIPTIONS,
        LATER_FIELDS,
    )
    from shoal.core.names import TOOL_NAMES

    assert set(get_args(shoal.ToolName)) == TOOL_NAMES
    assert set(shoal.Hooks.__annotations__) == set(HOOK_EVENT_DESCRIPTIONS)
    for event, description in HOOK_EVENT_DESCRIPTIONS.items():
        fields = get_type_hints(getattr(hook_types, f"{event}Input"), include_extras=True)
        optional = {name for name, kind in fields.items() if get_origin(kind) is NotRequired}
        assert {*AGENT_FIELDS, *LATER_FIELDS, *description.optional_fields} == optional
        assert {*COMMON_FIELDS, *description.fields} == {*fields} - optional
        assert f"{event}Input" in shoal.__all__


@pytest.mark.spec("API-07")
@pytest.mark.parametrize("event", HOOK_EVENT_DESCRIPTIONS)
def test_the_output_of_every_hook_event_has_a_type_with_the_keys_that_have_an_effect(event: Any) -> None:
    """The types and the runtime agree: the runtime refuses a narrowing key that the type does not have."""
    output = get_type_hints(getattr(shoal, f"{event}HookOutput"))
    entry = shoal.Hooks.__annotations__[event]
    assert f"HookEntry[{event}Input, {event}HookOutput]" in str(entry)
    assert {"systemMessage", "suppressOutput", "decision", "reason"} <= set(output)
    assert ("continue" in output) == _is_understood(event, {"continue": False})
    specific = output.get("hookSpecificOutput")
    keys = set() if specific is None else set(get_type_hints(specific))
    samples = {
        "permissionDecision": "deny",
        "updatedInput": {},
        "decision": {"behavior": "deny"},
        "updatedToolOutput": "x",
    }
    for key, value in samples.items():
        understood = _is_understood(event, {"hookSpecificOutput": {key: value}})
        # A permission request also takes the decision in the form of a call.
        assert (key in keys) == understood or (event == "PermissionRequest" and understood)


def _is_understood(event: Any, answer: dict[str, Any]) -> bool:
    try:
        parse_hook_output_json(event, answer, strict=True)
    except InvalidHookOutputError as error:
        return f"has no effect for {event}" not in str(error)
    return True


@pytest.mark.spec("API-07")
def test_the_keywords_of_open_are_the_options_that_a_program_may_set() -> None:
    internal = {"agent_extras", "begun", "membership", "output", "relayed_servers"}
    assert set(shoal.SessionOptions.__annotations__) == {*Options.__struct_fields__} - internal


@pytest.mark.spec("API-07")
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"resume": "0000"}, r"shoal\.open\(continue_last=True\)|resume="),
        ({"settings": "missing.json"}, "settings= takes a file path or JSON"),
        (
            {"allowed_tools": ["Read"], "disallowed_tools": ["Read"]},
            "in both allowed_tools= and disallowed_tools=",
        ),
    ],
)
async def test_errors_name_options_and_not_flags(
    tmp_path: Path, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(shoal.ShoalError, match=problem) as raised:
        async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(["ok"]), **options):
            pass
    assert not re.search(r"(?<!\w)--[a-z]", str(raised.value))
