"""Sessions through the public API, with real files, real processes and a scripted model."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any, Literal

import pytest
from app_session_helpers import run_prompt, run_turn
from msgspec import structs

import shoal
from agent_scripts import read_events
from process_search import find_processes_in
from shoal.app.config.undo_history import NothingToUndoError
from shoal.app.session.session_changes import rewind_files_to_before_message
from shoal.core.budgets.usage import ModelCard
from shoal.core.conversation.messages import Message, ToolResultBlock, ToolUseBlock, extract_tool_result_text
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import (
    BudgetError,
    ContextTooLong,
    ModelError,
    SessionNotFound,
    SettingsError,
    ShoalError,
    StateFileError,
    Unauthorized,
)
from shoal.core.events import Event, FileChanged, QuestionAnswered, RunFinished, ToolOutputReturned
from shoal.core.ids import LEAD_ID
from shoal.core.permissions.questions import AllowAnswer, DenyAnswer, PermissionQuestion
from shoal.models.scripted_model import ScriptedModel
from shoal.stores.files.sessions.question_files import QuestionFiles
from shoal.testing import FakeClock, chat_server
from team_scripts import get_home


def make_call(tool_name: str, call_id: str = "c1", **arguments: Any) -> ToolUseBlock:
    return ToolUseBlock(id=call_id, name=tool_name, input=arguments)


def read_transcript(session_id: str) -> list[dict[str, Any]]:
    (path,) = get_home().glob(f"projects/*/{session_id}.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_a_session_edits_a_real_file_and_runs_a_real_command(tmp_path: Path) -> None:
    (tmp_path / "greet.py").write_text("print('helo')\n")
    replies = [
        make_call("Read", "c1", file_path="greet.py"),
        make_call("Edit", "c2", file_path="greet.py", old_string="helo", new_string="hello"),
        make_call("Bash", "c3", command="python3 greet.py"),
        "fixed",
    ]
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(replies), skip_permissions=True) as session:
        events = await run_turn(session, "fix the greeting")
    returned = [e for e in events if isinstance(e, ToolOutputReturned)]
    assert [e.result.is_error for e in returned] == [False, False, False]
    assert "hello" in extract_tool_result_text(returned[2].result)
    assert (tmp_path / "greet.py").read_text() == "print('hello')\n"
    assert isinstance(events[-1], RunFinished)
    assert events[-1].text == "fixed"


@pytest.mark.spec("TRN-01", "HOM-02")
async def test_the_transcript_has_every_message_in_the_ecosystems_format(tmp_path: Path) -> None:
    async with shoal.open(
        cwd=tmp_path, model=ScriptedModel([make_call("Glob", pattern="*"), "none"])
    ) as session:
        await run_prompt(session, "any files?")
    lines = read_transcript(session.id)
    assert [line["type"] for line in lines] == ["user", "assistant", "user", "assistant"]
    assert [line["parentUuid"] for line in lines] == [None, *(line["uuid"] for line in lines[:-1])]
    assert {line["sessionId"] for line in lines} == {session.id}
    assert {line["cwd"] for line in lines} == {str(tmp_path)}
    assert lines[1]["message"]["content"][0]["name"] == "Glob"
    assert lines[1]["message"]["usage"]["output_tokens"] > 0


async def test_a_resumed_conversation_that_fills_the_context_is_compacted_before_the_request(
    tmp_path: Path,
) -> None:
    small = ModelCard(id="small", provider="x", window=20_000, max_output=1_000)
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(["noted"])) as first:
        await run_prompt(first, "word " * 15_000)
    asked: list[ModelRequest] = []

    def choose_reply(request: ModelRequest) -> str:
        asked.append(structs.replace(request, messages=list(request.messages)))
        return "said"

    model = ScriptedModel(choose_reply, card=small)
    async with shoal.open(cwd=tmp_path, model=model, resume=first.id) as again:
        await run_prompt(again, "go on")
    assert "about to be replaced by a summary" in asked[0].messages[-1].text
    assert len(asked) == 2


@pytest.mark.spec("TRN-02")
async def test_a_resumed_session_sends_the_earlier_messages(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(["I will remember"])) as first:
        await run_prompt(first, "the word is mussel")
    sent_messages: list[Message] = []

    def choose_reply(request: ModelRequest) -> str:
        sent_messages.extend(request.messages)
        return "mussel"

    async with shoal.open(cwd=tmp_path, model=ScriptedModel(choose_reply), resume=first.id[:8]) as second:
        assert second.id == first.id
        assert second.turn == 1
        await run_prompt(second, "what was the word?")
    assert [m.text for m in sent_messages] == ["the word is mussel", "I will remember", "what was the word?"]
    assert len(read_transcript(first.id)) == 4


async def test_continue_resumes_the_latest_session_and_fork_leaves_it_unchanged(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(["one"])) as first:
        await run_prompt(first, "a")
    before = read_transcript(first.id)
    async with shoal.open(
        cwd=tmp_path, model=ScriptedModel(["two"]), continue_last=True, fork=True
    ) as second:
        await run_prompt(second, "b")
    assert second.id != first.id
    assert read_transcript(first.id) == before
    assert len(read_transcript(second.id)) == 4


async def test_a_session_that_is_open_cannot_be_opened_twice(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(["one"])) as first:
        await run_prompt(first)
        with pytest.raises(StateFileError, match="in a copy, without its workflows, use fork="):
            async with shoal.open(cwd=tmp_path, model=ScriptedModel([]), resume=first.id):
                pass


async def test_an_unknown_session_id_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(SessionNotFound, match="no session 'nothere'"):
        async with shoal.open(cwd=tmp_path, model=ScriptedModel([]), resume="nothere"):
            pass


@pytest.mark.spec("RUN-01")
async def test_an_interrupted_turn_stops_its_command_and_the_conversation_continues(
    tmp_path: Path,
) -> None:
    command = "echo $$ > pid; exec sleep 600"
    replies = [[make_call("Glob", "c0", pattern="*"), make_call("Bash", "c1", command=command)], "going on"]
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(replies), skip_permissions=True) as session:
        turn = session.run("wait")
        last: Event | None = None
        async with asyncio.TaskGroup() as group:

            async def interrupt() -> None:
                async with asyncio.timeout(10):
                    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
                        await asyncio.sleep(0.01)
                assert find_processes_in(tmp_path)
                await session.interrupt()

            group.create_task(interrupt())
            async for event in turn:
                last = event
        assert isinstance(last, RunFinished)
        assert last.reason == "interrupted"
        async with asyncio.timeout(30):
            while find_processes_in(tmp_path):
                await asyncio.sleep(0.01)
        assert (await run_prompt(session, "go on")).text == "going on"
    results = [
        block
        for line in read_transcript(session.id)
        if isinstance(line["message"]["content"], list)
        for block in line["message"]["content"]
        if block["type"] == "tool_result"
    ]
    assert [(r["tool_use_id"], r.get("is_error", False)) for r in results] == [("c0", False), ("c1", True)]


@pytest.mark.spec("USR-07")
async def test_the_deadline_of_a_session_stops_its_work(tmp_path: Path) -> None:
    clock = FakeClock()
    started = asyncio.Event()

    @shoal.tool(deadline=None)
    async def hang() -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    model = ScriptedModel([make_call("hang")], clock=clock)
    async with shoal.open(
        cwd=tmp_path, model=model, tools=[hang], skip_permissions=True, deadline=60, clock=clock
    ) as session:
        async with asyncio.TaskGroup() as group:
            turn = group.create_task(run_prompt(session))
            await started.wait()
            await clock.advance(60)
        assert turn.result().reason == "deadline"


async def test_a_model_error_ends_the_turn_with_a_result_instead_of_an_exception(tmp_path: Path) -> None:
    async with shoal.open(
        cwd=tmp_path, model=ScriptedModel([Unauthorized("wrong key", provider="x", status=401), "fine"])
    ) as session:
        finished = await run_prompt(session)
        assert finished.reason == "model_error"
        assert isinstance(finished.error, ModelError)
        assert (await run_prompt(session)).text == "fine"


async def test_a_context_that_stays_too_long_is_an_error_instead_of_a_loop(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: ContextTooLong("too long"))
    async with shoal.open(cwd=tmp_path, model=model) as session:
        assert (await run_prompt(session)).reason == "model_error"


@pytest.mark.spec("USR-30")
async def test_the_same_seed_clock_and_replies_give_the_same_journal_byte_for_byte(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()

    async def run(name: str) -> bytes:
        os.environ["SHOAL_HOME"] = str(tmp_path / name)
        (project / "a.txt").write_text("one\n")
        replies = [
            [make_call("Read", "c1", file_path="a.txt"), make_call("Grep", "c2", pattern="one")],
            make_call("Write", "c3", file_path="a.txt", content="two\n"),
            make_call("Bash", "c4", command="cat a.txt"),
            "done",
        ]
        clock = FakeClock()
        async with shoal.open(
            cwd=project,
            model=ScriptedModel(replies, clock=clock),
            skip_permissions=True,
            seed=42,
            clock=clock,
        ) as session:
            await run_prompt(session)
        return (tmp_path / name / "shoal" / "runs" / session.id / "journal.jsonl").read_bytes()

    assert await run("first") == await run("second")


@pytest.mark.spec("USR-30")
async def test_a_recorded_session_replays_in_another_directory_at_another_time(tmp_path: Path) -> None:
    recording = tmp_path / "run.jsonl"

    async def work(place: str, *, days: int, **options: Any) -> RunFinished:
        project = tmp_path / place
        project.mkdir()
        (project / "a.txt").write_text("one\n")
        os.environ["SHOAL_HOME"] = str(tmp_path / f"{place}-home")
        clock = FakeClock()
        await clock.advance(days * 86_400)
        async with shoal.open(cwd=project, mode="acceptEdits", clock=clock, **options) as session:
            finished = await run_prompt(session, "change the file")
        assert (project / "a.txt").read_text() == "two\n"
        return finished

    here = tmp_path / "here" / "a.txt"
    replies = [
        make_call("Read", "c1", file_path=str(here)),
        make_call("Write", "c2", file_path=str(here), content="two\n"),
        f"changed {here}",
    ]
    first = await work("here", days=0, model=ScriptedModel(replies), record=recording)
    assert str(tmp_path / "here") not in recording.read_text()
    second = await work("there", days=40, model=f"replay:{recording}")
    assert first.text == f"changed {here}"
    assert second.text == f"changed {tmp_path / 'there' / 'a.txt'}"


@pytest.mark.spec("USR-30")
async def test_a_changed_prompt_fails_the_replay_with_an_error(tmp_path: Path) -> None:
    recording = tmp_path / "run.jsonl"
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(["hello"]), record=recording) as session:
        await run_prompt(session, "say hello")
    async with shoal.open(cwd=tmp_path, model=f"replay:{recording}") as session:
        finished = await run_prompt(session, "say goodbye")
    assert finished.reason == "model_error"
    assert "-say hello" in finished.detail
    assert "+say goodbye" in finished.detail


async def test_undo_restores_files_and_the_conversation(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("original\n")
    message_counts: list[int] = []

    def choose_reply(request: ModelRequest) -> Any:
        message_counts.append(len(request.messages))
        last = request.messages[-1]
        if any(isinstance(b, ToolResultBlock) for b in last.content):
            return "wrote it"
        if "write" in last.text:
            return [make_call("Read", "r", file_path="a.txt")] if len(request.messages) == 3 else "?"
        return "hello"

    script = [
        "hello",
        make_call("Read", "c1", file_path="a.txt"),
        make_call("Write", "c2", file_path="a.txt", content="changed\n"),
        make_call("Write", "c3", file_path="new.txt", content="new\n"),
        "done",
        "after",
    ]
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(script), skip_permissions=True) as session:
        await run_prompt(session, "hi")
        await run_prompt(session, "write")
        assert [len(t.files) for t in session.list_undoable_turns()] == [0, 2]
        report = await session.undo(conversation=True)
        assert [p.name for p in report.restored] == ["a.txt"]
        assert [p.name for p in report.removed] == ["new.txt"]
        assert (tmp_path / "a.txt").read_text() == "original\n"
        assert not (tmp_path / "new.txt").exists()
        assert [m.text for m in session.agent.conversation.messages] == ["hi", "hello"]
        await run_prompt(session, "next")
    async with shoal.open(cwd=tmp_path, model=ScriptedModel([]), resume=session.id) as again:
        assert [m.text for m in again.agent.conversation.messages] == ["hi", "hello", "next", "after"]


async def test_a_session_without_persistence_leaves_no_files(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(["hi"]), persist=False) as session:
        assert (await run_prompt(session)).text == "hi"
        assert session.list_undoable_turns() == ()
        with pytest.raises(NothingToUndoError):
            await session.undo()
        with pytest.raises(NothingToUndoError, match="stores nothing"):
            await rewind_files_to_before_message(session, "m")
    assert not any(get_home().rglob("*.jsonl"))


def test_run_sync_returns_the_run_result(tmp_path: Path) -> None:
    received: list[Event] = []
    result = shoal.run_sync("hi", cwd=tmp_path, model=ScriptedModel(["hello"]), on_event=received.append)
    assert result.text == "hello"
    assert isinstance(received[-1], RunFinished)


@pytest.mark.spec("HOM-02")
async def test_the_debug_log_has_every_event_and_latest_links_to_it(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(["hello"]), debug=True) as session:
        await run_prompt(session)
    log = get_home() / "debug" / f"{session.id}.txt"
    assert (get_home() / "debug" / "latest").resolve() == log.resolve()
    kinds = [json.loads(line.split(" ", 1)[1])["type"] for line in log.read_text().splitlines()]
    assert {"session_started", "request_sent", "heard", "message_added", "turn_ended"} <= set(kinds)


async def test_a_file_written_by_a_tool_is_in_the_journal(tmp_path: Path) -> None:
    model = ScriptedModel([make_call("Write", file_path="a.txt", content="x"), "done"])
    async with shoal.open(cwd=tmp_path, model=model, mode="acceptEdits") as session:
        changed = [e for e in await run_turn(session) if isinstance(e, FileChanged)]
    assert [(e.turn, e.path) for e in changed] == [(1, str(tmp_path / "a.txt"))]


async def test_a_switched_model_is_recorded_and_counts_against_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "script.json"
    script.write_text('[{"text": "from the second"}]')
    recording = tmp_path / "run.jsonl"
    monkeypatch.setenv("ANTHROPIC_API_KEY", "x")
    async with shoal.open(
        cwd=tmp_path, model=ScriptedModel(["from the first"]), record=recording, max_budget_usd=1
    ) as session:
        await run_prompt(session)
        await session.set_model(f"scripted:{script}")
        assert (await run_prompt(session)).text == "from the second"
        with pytest.raises(BudgetError, match="price of unheard-of"):
            await session.set_model("anthropic:unheard-of")
        assert session.agent.model.card.id == "scripted"
    assert len(recording.read_text().splitlines()) == 2


async def test_a_hosted_model_without_an_api_key_is_refused_at_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(Unauthorized, match="Set OPENAI_API_KEY"):
        await shoal.open(cwd=tmp_path, model="openai:gpt-5").__aenter__()


async def test_a_custom_server_is_asked_for_its_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with chat_server(["hello"], models=["my-model"]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        async with shoal.open(cwd=tmp_path) as session:
            assert session.agent.model.card.id == "my-model"
            assert (await run_prompt(session)).text == "hello"


@pytest.mark.parametrize("option", ["allowed_tools", "disallowed_tools"])
async def test_a_rule_for_an_unknown_tool_is_refused(tmp_path: Path, option: str) -> None:
    with pytest.raises(
        SettingsError, match=f"{option}: the rule Bsah names an unknown tool. Did you mean Bash\\?"
    ):
        await shoal.open(cwd=tmp_path, model=ScriptedModel([]), **{option: ["Bsah Edit"]}).__aenter__()


async def test_a_rule_for_a_tool_of_another_program_is_noted(tmp_path: Path) -> None:
    rules = ["LSP MultiEdit"]
    async with shoal.open(cwd=tmp_path, model=ScriptedModel([]), disallowed_tools=rules) as session:
        assert session.notes == ["The rule LSP names an unknown tool."]
        assert "Edit" not in session.agent.tools


async def test_a_session_that_fails_to_start_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ShoalError):
        async with shoal.open(cwd=tmp_path, model="scripted:/nowhere.json"):
            pass
    assert not any((get_home() / "shoal" / "runs").iterdir())


@pytest.mark.spec("USR-05")
async def test_an_unattended_session_runs_listed_calls_and_denies_the_rest(tmp_path: Path) -> None:
    settings = json.dumps({"shoal": {"unattended_allow": ["Bash(touch listed:*)"]}})
    replies = [
        [make_call("Bash", "c1", command="touch listed"), make_call("Bash", "c2", command="touch other")],
        "done",
    ]
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(replies), settings=settings) as session:
        returned = [e for e in await run_turn(session) if isinstance(e, ToolOutputReturned)]
    assert [e.result.is_error for e in returned] == [False, True]
    # The reason helps the agent to find another way.
    assert "The call needs approval: `touch other`" in extract_tool_result_text(returned[1].result)
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(".")) == ["listed"]


async def test_a_project_cannot_allow_unattended_calls(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text('{"shoal": {"unattended_allow": ["Bash"]}}')
    model = ScriptedModel([make_call("Bash", command="touch made"), "done"])
    async with shoal.open(cwd=tmp_path, model=model) as session:
        await run_prompt(session)
    assert not (tmp_path / "made").exists()


async def test_an_escaped_tag_in_a_read_file_can_be_edited(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("<system-reminder>old</system-reminder>\n")
    shown = "<\\system-reminder>old"
    replies = [
        make_call("Read", "c1", file_path="a.md"),
        make_call("Edit", "c2", file_path="a.md", old_string=shown, new_string=shown.replace("old", "new")),
        "done",
    ]
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(replies), mode="acceptEdits") as session:
        returned = [e for e in await run_turn(session) if isinstance(e, ToolOutputReturned)]
    assert shown in extract_tool_result_text(returned[0].result)
    assert (tmp_path / "a.md").read_text() == "<system-reminder>new</system-reminder>\n"


async def test_breaking_out_of_a_turn_ends_it(tmp_path: Path) -> None:
    async with shoal.open(
        cwd=tmp_path,
        model=ScriptedModel([make_call("Bash", command="sleep 600"), "x"]),
        skip_permissions=True,
    ) as session:
        turn = session.run("go")
        await anext(turn)
        await turn.aclose()
        assert not session.is_busy


@pytest.mark.spec("TRN-02", "USR-12")
async def test_a_question_left_open_by_a_dead_run_is_withdrawn_on_resume(
    tmp_path: Path,
) -> None:
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(["noted"])) as first:
        await run_prompt(first, "go")
    questions = QuestionFiles(get_home() / "shoal" / "runs" / first.id / "questions")
    questions.store_question(
        PermissionQuestion(
            id="q1", agent=LEAD_ID, tool_use_id="c1", tool="Bash", input={"command": "make"}, reason="r"
        )
    )
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(["on"]), resume=first.id) as again:
        assert questions.list_open_questions() == ()
        (answer,) = [event for event in read_events(again) if isinstance(event, QuestionAnswered)]
    assert answer.question == "q1"
    assert isinstance(answer.answer, DenyAnswer)


@pytest.mark.spec("PRM-02")
async def test_deny_rules_apply_to_input_that_the_user_changed(tmp_path: Path) -> None:
    (tmp_path / "keep.txt").write_text("kept")
    model = ScriptedModel([make_call("Bash", command="touch new.txt"), "done"])
    async with shoal.open(
        cwd=tmp_path, model=model, attended=True, disallowed_tools=["Bash(rm:*)"]
    ) as session:
        turn = asyncio.create_task(run_turn(session))
        async for question in session.runtime.question_broker.watch_questions():
            session.runtime.question_broker.submit_answer(
                question.id, AllowAnswer(input={"command": "rm keep.txt"})
            )
            break
        async with asyncio.timeout(20):
            events = await turn
    (returned,) = [event for event in events if isinstance(event, ToolOutputReturned)]
    assert returned.result.is_error
    assert "Bash(rm:*)" in extract_tool_result_text(returned.result)
    assert (tmp_path / "keep.txt").exists()


@pytest.mark.parametrize("remember", ["session", "settings"])
async def test_a_remembered_answer_with_changed_input_allows_only_the_changed_call(
    tmp_path: Path, remember: Literal["session", "settings"]
) -> None:
    commands = ("touch first", "touch second", "mkdir third")
    model = ScriptedModel([*(make_call("Bash", command=command) for command in commands), "done"])
    asked: list[str] = []

    async def answer_questions(broker: Any) -> None:
        async for question in broker.watch_questions():
            asked.append(question.input["command"])
            changed = AllowAnswer(input={"command": "mkdir third"}, remember=remember)
            denied = DenyAnswer(reason="not this one")
            broker.submit_answer(question.id, changed if len(asked) == 1 else denied)

    async with shoal.open(cwd=tmp_path, model=model, attended=True) as session, asyncio.timeout(20):
        answers = asyncio.create_task(answer_questions(session.runtime.question_broker))
        await run_turn(session)
        answers.cancel()
    assert asked == ["touch first", "touch second"]


async def test_a_remembered_answer_whose_changed_input_is_refused_allows_nothing(tmp_path: Path) -> None:
    model = ScriptedModel([*(make_call("Bash", command="touch new.txt") for _ in range(2)), "done"])
    asked: list[str] = []

    async def answer_questions(broker: Any) -> None:
        async for question in broker.watch_questions():
            asked.append(question.input["command"])
            changed = AllowAnswer(input={"command": "rm keep.txt"}, remember="session")
            broker.submit_answer(question.id, changed if len(asked) == 1 else DenyAnswer(reason="no"))

    async with (
        shoal.open(cwd=tmp_path, model=model, attended=True, disallowed_tools=["Bash(rm:*)"]) as session,
        asyncio.timeout(20),
    ):
        answers = asyncio.create_task(answer_questions(session.runtime.question_broker))
        await run_turn(session)
        answers.cancel()
    assert asked == ["touch new.txt"] * 2
    assert not (tmp_path / "new.txt").exists()


@pytest.mark.spec("FRK-07")
async def test_a_prompt_suggestion_leaves_no_trace_in_the_conversation(tmp_path: Path) -> None:
    model = ScriptedModel(["nine", "  now count\nthe cranes ", "NONE."])
    async with shoal.open(cwd=tmp_path, model=model) as session:
        assert await session.suggest_prompt() == ""
        await run_prompt(session, "count the berths")
        before = list(session.agent.conversation.messages)
        assert await session.suggest_prompt() == "now count the cranes"
        assert await session.suggest_prompt() == ""
        assert session.agent.conversation.messages == before
    assert "cranes" not in json.dumps(read_transcript(session.id))


async def test_undo_before_the_first_turn_has_nothing_to_restore(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=ScriptedModel([])) as session:
        with pytest.raises(NothingToUndoError, match="'no-such-message'"):
            await rewind_files_to_before_message(session, "no-such-message")
