"""Sessions of different tenants in one process: homes, environments, budgets and questions."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, cast, get_args

import pytest

import shoal
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import BudgetError, SettingsError
from shoal.core.ids import LEAD_ID
from shoal.core.names import AgentName
from shoal.core.permissions.permission_changes import (
    AddPermissionRulesSuggestion,
    RuleDestination,
    SuggestedPermissionRule,
)
from shoal.core.teams.mail_bodies import MailedPermissionGrant, PermissionRequestMail
from shoal.models.scripted_model import ReplyLike
from shoal.runs.late_answers import resolve_answer_permission_updates
from shoal.team.channel.mail_question_broker import (
    build_permission_response,
    permission_updates_from_suggestions,
)
from shoal.testing import make_tool_call, messages_server


def list_headers(server: Any) -> set[str]:
    return {request.headers["x-api-key"] for request in server.requests}


@pytest.mark.spec("API-09")
async def test_two_tenants_at_once_have_their_own_keys_homes_and_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-the-process")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("SECRET_OF_THE_PROCESS", "yes")
    command = make_tool_call("Bash", command="env", description="Show the variables")

    async def run_tenant(name: str) -> tuple[shoal.Result[None], Any]:
        project = tmp_path / name
        project.mkdir()
        async with messages_server([command, f"I am {name}"]) as server:
            environ = {
                "ANTHROPIC_API_KEY": f"key-of-{name}",
                "ANTHROPIC_BASE_URL": server.url,
                "TENANT": name,
                "PATH": os.environ["PATH"],
                "IS_SANDBOX": "1",
            }
            outputs: list[str] = []

            def on_event(event: shoal.Event) -> None:
                if isinstance(event, shoal.events.ToolOutputReturned):
                    outputs.append(str(event.result.content))

            result = await shoal.run(
                "Who are you?",
                cwd=project,
                home=tmp_path / f"home-{name}",
                environ=environ,
                model="anthropic:claude-sonnet-4-5",
                allowed_tools=["Bash(env)"],
                on_event=on_event,
            )
            assert list_headers(server) == {f"key-of-{name}"}
            assert f"TENANT={name}" in outputs[0]
            assert "SECRET_OF_THE_PROCESS" not in outputs[0]
            return result, server

    (first, _), (second, _) = await asyncio.gather(run_tenant("anna"), run_tenant("ben"))
    assert (first.text, second.text) == ("I am anna", "I am ben")
    for name in ("anna", "ben"):
        assert len(list((tmp_path / f"home-{name}").rglob("journal.jsonl"))) == 1
    assert not any(Path(os.environ["SHOAL_HOME"]).rglob("journal.jsonl"))


@pytest.mark.spec("API-09")
@pytest.mark.fresh_interpreter
async def test_a_session_with_its_own_environment_reads_nothing_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: set[str] = set()
    kind: Any = type(os.environ)
    read_variable, list_variables = kind.__getitem__, kind.__iter__

    def record_read(environ: Any, name: str) -> str:
        reads.add(name)
        return str(read_variable(environ, name))

    def record_all(environ: Any) -> Any:
        reads.add("all of them")
        return list_variables(environ)

    environ = {"PATH": os.environ["PATH"], "IS_SANDBOX": "1"}
    replies = [make_tool_call("Bash", command="env", description="Show the variables"), "Done."]
    monkeypatch.setattr(kind, "__getitem__", record_read)
    monkeypatch.setattr(kind, "__iter__", record_all)
    async with shoal.open(
        cwd=tmp_path,
        home=tmp_path / "home",
        environ=environ,
        model=shoal.ScriptedModel(replies),
        allowed_tools=["Bash"],
    ) as session:
        await session.run("go")
        await session.map("Plan", ["look around"])
    assert not reads
    reads.clear()
    async with shoal.open(cwd=tmp_path, model=shoal.ScriptedModel(["ok"])):
        pass
    # Without environ= the variables of the process count, so the test notices reads.
    assert "all of them" in reads or len(reads) > 5


@pytest.mark.spec("API-09")
async def test_a_session_without_the_key_in_its_environment_does_not_use_that_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-the-process")
    with pytest.raises(shoal.ShoalError, match="ANTHROPIC_API_KEY"):
        await shoal.run("hi", cwd=tmp_path, home=tmp_path, environ={}, model="anthropic:claude-sonnet-4-5")


@pytest.mark.spec("API-09")
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"environ": {}}, "environ does not set a home directory. Pass home=DIRECTORY"),
        ({"environ": {"HOME": "srv/other"}, "home": "x"}, "environ: HOME must be an absolute path, got 'srv"),
        ({"environ": {"HOME": ""}, "home": "x"}, "environ: HOME must be an absolute path, got ''"),
        ({"environ": {"A=B": "x"}, "home": "x"}, r"environ: 'A=B' is not a name of a variable"),
        ({"environ": {"": "x"}, "home": "x"}, r"environ: '' is not a name of a variable"),
        ({"environ": {"A\0": "x"}, "home": "x"}, r"environ: 'A\\x00' is not a name of a variable"),
        ({"environ": {"A": "x\0y"}, "home": "x"}, "environ: the value of A contains a NUL byte"),
        ({"environ": {"A": "\ud800"}, "home": "x"}, "environ: the value of A contains a character that"),
        ({"home": "a\0b"}, r"home: 'a\\x00b' contains a NUL byte"),
        ({"home": "a\ud800"}, r"home: 'a\\ud800' contains a character that"),
        ({"add_dirs": ["a\0b"]}, r"add_dirs: 'a\\x00b' contains a NUL byte"),
        ({"environ": {"A": 1}, "home": "x"}, "environ: expected a mapping of strings"),
        ({"home": 3}, "home: expected a path"),
        ({"budget": 5}, r"budget: expected a shoal.Budget, got 5. Write shoal.Budget\(usd="),
        ({"on_question": "yes"}, "on_question: expected a function"),
    ],
)
async def test_a_wrong_tenant_is_refused(tmp_path: Path, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        await shoal.open(cwd=tmp_path, model=shoal.ScriptedModel([]), **options).__aenter__()


PRICED = shoal.ModelCard(
    id="priced", provider="scripted", price=shoal.TokenPrice(input=0.0, output=1_000_000.0)
)


@pytest.mark.spec("API-10")
async def test_several_sessions_share_one_budget(tmp_path: Path) -> None:
    budget = shoal.Budget(usd=3)
    model = shoal.ScriptedModel(lambda _: "one", card=PRICED)  # one token, one dollar
    async with (
        shoal.open(cwd=tmp_path, model=model, budget=budget) as first,
        shoal.open(cwd=tmp_path, model=model, budget=budget) as second,
    ):
        await first.run("hi")
        await second.run("hi")
        await first.run("hi")
        assert budget.spent_usd == 3
        with pytest.raises(shoal.RunFailed, match=r"the budget of \$3 is spent"):
            await second.run("hi")
        with pytest.raises(shoal.errors.AgentRequestRefused, match=r"the budget of \$3 is spent"):
            await second.spawn(shoal.Agent("a", prompt="x"), "go")
    # A resumed session is not counted twice, and a new budget counts what it spent before.
    async with shoal.open(cwd=tmp_path, model=model, budget=budget, resume=first.id):
        assert budget.spent_usd == 3
    other = shoal.Budget(usd=10)
    async with shoal.open(cwd=tmp_path, model=model, budget=other, resume=first.id):
        assert other.spent_usd == 2


@pytest.mark.spec("API-10")
async def test_a_shared_budget_needs_a_price(tmp_path: Path) -> None:
    unpriced = shoal.ScriptedModel(["hi"], card=shoal.ModelCard(id="unpriced", provider="scripted"))
    with pytest.raises(BudgetError, match="the price of unpriced is unknown"):
        await shoal.run("hi", cwd=tmp_path, model=unpriced, budget=shoal.Budget(usd=1))


@pytest.mark.parametrize("limits", [{}, {"usd": 0}, {"usd": -1}, {"tokens": True}, {"usd": float("nan")}])
def test_a_budget_without_a_limit_is_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"shoal.Budget\(\): "):
        shoal.Budget(**limits)


def ask_for_touch(request: ModelRequest) -> ReplyLike:
    is_first = len(request.messages) == 1
    return [make_tool_call("Bash", command="touch made", description="x")] if is_first else "done"


@pytest.mark.spec("API-11")
async def test_a_function_answers_the_questions_of_all_agents(tmp_path: Path) -> None:
    questions: list[shoal.Question] = []

    async def answer(question: shoal.Question) -> shoal.Answer:
        questions.append(question)
        assert isinstance(question, shoal.PermissionQuestion)
        return question.allow()

    model = shoal.ScriptedModel(ask_for_touch)
    async with shoal.open(cwd=tmp_path, model=model, on_question=answer) as session:
        await session.run("go")
        assert (tmp_path / "made").exists()
        (tmp_path / "made").unlink()
        handle = await session.spawn(shoal.Agent("worker", prompt="Work."), "go")
        await handle
    assert (tmp_path / "made").exists()
    assert [question.agent for question in questions] == ["lead", handle.id]


def raise_error(_: shoal.Question) -> shoal.Answer:
    raise ZeroDivisionError("broken")


@pytest.mark.spec("API-11")
@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (lambda question: question.deny("not here"), "not here"),
        (lambda _: None, "The program did not answer"),
        (lambda _: True, "on_question returned True instead of AllowAnswer"),
        (lambda _: shoal.ChoiceAnswer(answers={}), "instead of AllowAnswer"),
        (raise_error, "on_question failed: ZeroDivisionError: broken"),
        (lambda question: question.allow(remember="sessoin"), "Did you mean session?"),
        (lambda _: shoal.AllowAnswer(remember=cast("Any", "forever")), "once, session, settings"),
        (lambda _: shoal.AllowAnswer(remember=cast("Any", ["session"])), "remember=['session']"),
        (lambda question: question.allow(input=["x"]), "input=['x']"),
        (lambda question: question.allow(input={"command": object()}), "input={"),
        (lambda _: shoal.AllowAnswer(updates=cast("Any", ("x",))), "updates=('x',)"),
        (lambda question: question.deny(3), "reason=3"),
    ],
)
async def test_a_question_without_a_usable_answer_is_denied(
    tmp_path: Path, handler: Any, reason: str
) -> None:
    outputs: list[str] = []

    def on_event(event: shoal.Event) -> None:
        if isinstance(event, shoal.events.ToolOutputReturned):
            outputs.append(str(event.result.content))

    model = shoal.ScriptedModel(ask_for_touch)
    async with asyncio.timeout(30):
        await shoal.run("go", cwd=tmp_path, model=model, on_question=handler, on_event=on_event)
    assert not (tmp_path / "made").exists()
    assert not (tmp_path / ".claude").exists()
    assert reason in outputs[0]


@pytest.mark.spec("API-11")
async def test_a_function_chooses_and_approves_plans(tmp_path: Path) -> None:
    choice = {"question": "Which?", "header": "Pick", "options": [{"label": "a"}, {"label": "b"}]}

    def reply(request: ModelRequest) -> ReplyLike:
        if len(request.messages) == 1:
            return [make_tool_call("AskUserQuestion", questions=[choice])]
        return str(request.messages[-1])

    def answer(question: shoal.Question) -> shoal.Answer:
        assert isinstance(question, shoal.ChoiceQuestion)
        return question.choose("b")

    result = await shoal.run("go", cwd=tmp_path, model=shoal.ScriptedModel(reply), on_question=answer)
    assert "b" in result.text.partition("Which?")[2]


@pytest.mark.spec("API-11")
async def test_closing_a_session_ends_a_question_that_nobody_answered(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def never_answer(_: shoal.Question) -> shoal.Answer:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with asyncio.timeout(30):
        async with shoal.open(
            cwd=tmp_path, model=shoal.ScriptedModel(ask_for_touch), on_question=never_answer
        ) as session:
            turn = session.run("go")
            await asked.wait()
        assert (await turn.wait()).reason == "interrupted"


@pytest.mark.parametrize(
    ("remember", "stored"), [("session", 1), ("settings", 1), ("once", 0), ("sessoin", 0)]
)
def test_an_answer_stores_a_rule_only_for_a_scope_that_exists(remember: Any, stored: int) -> None:
    rule = SuggestedPermissionRule(tool_name="Bash", rule_content="touch:*")
    suggestions = tuple(
        AddPermissionRulesSuggestion(rules=(rule,), destination=destination)
        for destination in get_args(RuleDestination)
    )
    question = shoal.PermissionQuestion(
        id="q", agent=LEAD_ID, tool_use_id="c", tool="Bash", input={}, reason="", suggestions=suggestions
    )
    request = PermissionRequestMail(
        request_id="r",
        agent_id=AgentName("worker"),
        tool_name="Bash",
        tool_use_id="c",
        description="",
        input={},
        permission_suggestions=permission_updates_from_suggestions(suggestions),
    )
    answer = shoal.AllowAnswer(remember=remember)
    mailed = build_permission_response(request, answer).response
    assert isinstance(mailed, MailedPermissionGrant)
    assert len(mailed.permission_updates) == stored
    assert len(resolve_answer_permission_updates(question, answer)) == stored
