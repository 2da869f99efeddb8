"""Sessions through the library's door: real files, real processes, a scripted mind."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import shoal
from cast import recorded
from processes_in import processes_in
from shoal.app.basis.undo import NothingToUndo
from shoal.app.session.adjusting import rewind_files
from shoal.core.errors import (
    BudgetError,
    ContextTooLong,
    ModelError,
    NoSuchSession,
    ShoalError,
    StoreError,
    Unauthorized,
)
from shoal.core.events import Answered, Event, FileChanged, Finished, ToolReturned
from shoal.core.ids import LEAD
from shoal.core.messages import Message, ToolResult, ToolUse, result_text
from shoal.core.questions import Allowed, Denied, MayRun
from shoal.core.requests import Request
from shoal.core.usage import ModelCard
from shoal.models.scripted import ScriptedModel
from shoal.stores.files.questions import Questions
from shoal.testing import FakeClock, chat_server


def call(tool_name: str, call_id: str = "c1", **arguments: Any) -> ToolUse:
    return ToolUse(id=call_id, name=tool_name, input=arguments)


async def events_of(session: shoal.Session, prompt: str = "go") -> list[Event]:
    return [event async for event in session.run(prompt)]


async def finish(session: shoal.Session, prompt: str = "go") -> Finished:
    last = (await events_of(session, prompt))[-1]
    assert isinstance(last, Finished)
    return last


def home() -> Path:
    return Path(os.environ["SHOAL_HOME"])


def transcript_lines(session_id: str) -> list[dict[str, Any]]:
    (path,) = home().glob(f"projects/*/{session_id}.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_a_session_edits_a_real_file_and_runs_a_real_command(tmp_path: Path) -> None:
    (tmp_path / "greet.py").write_text("print('helo')\n")
    mind = [
        call("Read", "c1", file_path="greet.py"),
        call("Edit", "c2", file_path="greet.py", old_string="helo", new_string="hello"),
        call("Bash", "c3", command="python3 greet.py"),
        "fixed",
    ]
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(mind), skip_permissions=True) as session:
        events = await events_of(session, "fix the greeting")
    returned = [e for e in events if isinstance(e, ToolReturned)]
    assert [e.result.is_error for e in returned] == [False, False, False]
    assert "hello" in result_text(returned[2].result)
    assert (tmp_path / "greet.py").read_text() == "print('hello')\n"
    assert isinstance(events[-1], Finished)
    assert events[-1].text == "fixed"


@pytest.mark.spec("TRN-01", "HOM-02")
async def test_the_transcript_has_every_message_in_the_layout_of_the_ecosystem(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=ScriptedModel([call("Glob", pattern="*"), "none"])) as session:
        await finish(session, "any files?")
    lines = transcript_lines(session.id)
    assert [line["type"] for line in lines] == ["user", "assistant", "user", "assistant"]
    assert [line["parentUuid"] for line in lines] == [None, *(line["uuid"] for line in lines[:-1])]
    assert {line["sessionId"] for line in lines} == {session.id}
    assert {line["cwd"] for line in lines} == {str(tmp_path)}
    assert lines[1]["message"]["content"][0]["name"] == "Glob"
    assert lines[1]["message"]["usage"]["output_tokens"] > 0


async def test_a_resumed_conversation_that_fills_the_window_is_compacted_before_it_is_sent(
    tmp_path: Path,
) -> None:
    small = ModelCard(id="small", provider="x", window=20_000, max_output=1_000)
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(["noted"])) as first:
        await finish(first, "word " * 15_000)
    asked: list[Request] = []

    def mind(request: Request) -> str:
        asked.append(structs.replace(request, messages=list(request.messages)))
        return "said"

    model = ScriptedModel(mind, card=small)
    async with shoal.open(cwd=tmp_path, model=model, resume=first.id) as again:
        await finish(again, "go on")
    assert "about to be replaced by a summary" in asked[0].messages[-1].text
    assert len(asked) == 2


@pytest.mark.spec("TRN-02")
async def test_a_resumed_session_sends_what_was_said_before(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(["I will remember"])) as first:
        await finish(first, "the word is mussel")
    seen: list[Message] = []

    def mind(request: Request) -> str:
        seen.extend(request.messages)
        return "mussel"

    async with shoal.open(cwd=tmp_path, model=ScriptedModel(mind), resume=first.id[:8]) as second:
        assert second.id == first.id
        assert second.turn == 1
        await finish(second, "what was the word?")
    assert [m.text for m in seen] == ["the word is mussel", "I will remember", "what was the word?"]
    assert len(transcript_lines(first.id)) == 4


async def test_continue_takes_the_latest_session_and_fork_leaves_it_alone(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(["one"])) as first:
        await finish(first, "a")
    before = transcript_lines(first.id)
    async with shoal.open(
        cwd=tmp_path, model=ScriptedModel(["two"]), continue_last=True, fork=True
    ) as second:
        await finish(second, "b")
    assert second.id != first.id
    assert transcript_lines(first.id) == before
    assert len(transcript_lines(second.id)) == 4


async def test_a_session_that_is_open_cannot_be_opened_twice(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(["one"])) as first:
        await finish(first)
        with pytest.raises(StoreError, match="--fork-session"):
            async with shoal.open(cwd=tmp_path, model=ScriptedModel([]), resume=first.id):
                pass


async def test_a_session_nobody_knows_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoSuchSession, match="no session 'nothere'"):
        async with shoal.open(cwd=tmp_path, model=ScriptedModel([]), resume="nothere"):
            pass


@pytest.mark.spec("RUN-01")
async def test_an_interrupted_turn_ends_its_command_and_leaves_a_conversation_that_goes_on(
    tmp_path: Path,
) -> None:
    command = "echo $$ > pid; exec sleep 600"
    mind = [[call("Glob", "c0", pattern="*"), call("Bash", "c1", command=command)], "going on"]
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(mind), skip_permissions=True) as session:
        turn = session.run("wait")
        last: Event | None = None
        async with asyncio.TaskGroup() as group:

            async def interrupt() -> None:
                async with asyncio.timeout(10):
                    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
                        await asyncio.sleep(0.01)
                assert processes_in(tmp_path)
                await session.interrupt()

            group.create_task(interrupt())
            async for event in turn:
                last = event
        assert isinstance(last, Finished)
        assert last.reason == "interrupted"
        async with asyncio.timeout(30):
            while processes_in(tmp_path):
                await asyncio.sleep(0.01)
        assert (await finish(session, "go on")).text == "going on"
    results = [
        block
        for line in transcript_lines(session.id)
        if isinstance(line["message"]["content"], list)
        for block in line["message"]["content"]
        if block["type"] == "tool_result"
    ]
    assert [(r["tool_use_id"], r.get("is_error", False)) for r in results] == [("c0", False), ("c1", True)]


@pytest.mark.spec("USR-07")
async def test_the_deadline_of_a_session_ends_its_work(tmp_path: Path) -> None:
    clock = FakeClock()
    started = asyncio.Event()

    @shoal.tool(deadline=None)
    async def hang() -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    model = ScriptedModel([call("hang")], clock=clock)
    async with shoal.open(
        cwd=tmp_path, model=model, tools=[hang], skip_permissions=True, deadline=60, clock=clock
    ) as session:
        async with asyncio.TaskGroup() as group:
            turn = group.create_task(finish(session))
            await started.wait()
            await clock.advance(60)
        assert turn.result().reason == "deadline"


async def test_a_model_that_fails_ends_the_turn_as_a_value(tmp_path: Path) -> None:
    async with shoal.open(
        cwd=tmp_path, model=ScriptedModel([Unauthorized("wrong key", provider="x", status=401), "fine"])
    ) as session:
        finished = await finish(session)
        assert finished.reason == "model_error"
        assert isinstance(finished.error, ModelError)
        assert (await finish(session)).text == "fine"


async def test_a_context_that_stays_too_long_is_an_error_and_not_a_loop(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: ContextTooLong("too long"))
    async with shoal.open(cwd=tmp_path, model=model) as session:
        assert (await finish(session)).reason == "model_error"


@pytest.mark.spec("USR-30")
async def test_the_same_seed_clock_and_replies_give_the_same_journal_byte_for_byte(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()

    async def run(name: str) -> bytes:
        os.environ["SHOAL_HOME"] = str(tmp_path / name)
        (project / "a.txt").write_text("one\n")
        mind = [
            [call("Read", "c1", file_path="a.txt"), call("Grep", "c2", pattern="one")],
            call("Write", "c3", file_path="a.txt", content="two\n"),
            call("Bash", "c4", command="cat a.txt"),
            "done",
        ]
        clock = FakeClock()
        async with shoal.open(
            cwd=project, model=ScriptedModel(mind, clock=clock), skip_permissions=True, seed=42, clock=clock
        ) as session:
            await finish(session)
        return (tmp_path / name / "shoal" / "runs" / session.id / "journal.jsonl").read_bytes()

    assert await run("first") == await run("second")


@pytest.mark.spec("USR-30")
async def test_a_recorded_run_can_be_played_in_another_place_on_another_day(tmp_path: Path) -> None:
    recording = tmp_path / "run.jsonl"

    async def work(place: str, *, days: int, **options: Any) -> Finished:
        project = tmp_path / place
        project.mkdir()
        (project / "a.txt").write_text("one\n")
        os.environ["SHOAL_HOME"] = str(tmp_path / f"{place}-home")
        clock = FakeClock()
        await clock.advance(days * 86_400)
        async with shoal.open(cwd=project, mode="acceptEdits", clock=clock, **options) as session:
            finished = await finish(session, "change the file")
        assert (project / "a.txt").read_text() == "two\n"
        return finished

    here = tmp_path / "here" / "a.txt"
    mind = [
        call("Read", "c1", file_path=str(here)),
        call("Write", "c2", file_path=str(here), content="two\n"),
        f"changed {here}",
    ]
    first = await work("here", days=0, model=ScriptedModel(mind), record=recording)
    assert str(tmp_path / "here") not in recording.read_text()
    second = await work("there", days=40, model=f"replay:{recording}")
    assert first.text == f"changed {here}"
    assert second.text == f"changed {tmp_path / 'there' / 'a.txt'}"


@pytest.mark.spec("USR-30")
async def test_a_changed_prompt_misses_the_recording_loudly(tmp_path: Path) -> None:
    recording = tmp_path / "run.jsonl"
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(["hello"]), record=recording) as session:
        await finish(session, "say hello")
    async with shoal.open(cwd=tmp_path, model=f"replay:{recording}") as session:
        finished = await finish(session, "say goodbye")
    assert finished.reason == "model_error"
    assert "-say hello" in finished.detail
    assert "+say goodbye" in finished.detail


async def test_undo_brings_back_files_and_the_conversation(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("original\n")
    seen: list[int] = []

    def mind(request: Request) -> Any:
        seen.append(len(request.messages))
        last = request.messages[-1]
        if any(isinstance(b, ToolResult) for b in last.content):
            return "wrote it"
        if "write" in last.text:
            return [call("Read", "r", file_path="a.txt")] if len(request.messages) == 3 else "?"
        return "hello"

    script = [
        "hello",
        call("Read", "c1", file_path="a.txt"),
        call("Write", "c2", file_path="a.txt", content="changed\n"),
        call("Write", "c3", file_path="new.txt", content="new\n"),
        "done",
        "after",
    ]
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(script), skip_permissions=True) as session:
        await finish(session, "hi")
        await finish(session, "write")
        assert [len(t.files) for t in session.turns()] == [0, 2]
        report = await session.undo(conversation=True)
        assert [p.name for p in report.restored] == ["a.txt"]
        assert [p.name for p in report.removed] == ["new.txt"]
        assert (tmp_path / "a.txt").read_text() == "original\n"
        assert not (tmp_path / "new.txt").exists()
        assert [m.text for m in session.agent.conversation.messages] == ["hi", "hello"]
        await finish(session, "next")
    async with shoal.open(cwd=tmp_path, model=ScriptedModel([]), resume=session.id) as again:
        assert [m.text for m in again.agent.conversation.messages] == ["hi", "hello", "next", "after"]


async def test_a_session_that_keeps_nothing_leaves_nothing(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(["hi"]), persist=False) as session:
        assert (await finish(session)).text == "hi"
    assert not any(home().rglob("*.jsonl"))


def test_run_sync_gives_back_how_it_ended(tmp_path: Path) -> None:
    heard: list[Event] = []
    finished = shoal.run_sync("hi", cwd=tmp_path, model=ScriptedModel(["hello"]), hear=heard.append)
    assert finished.text == "hello"
    assert heard[-1] is finished


@pytest.mark.spec("HOM-02")
async def test_a_debug_log_tells_everything_and_latest_points_at_it(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(["hello"]), debug=True) as session:
        await finish(session)
    log = home() / "debug" / f"{session.id}.txt"
    assert (home() / "debug" / "latest").resolve() == log.resolve()
    kinds = [json.loads(line.split(" ", 1)[1])["type"] for line in log.read_text().splitlines()]
    assert {"session_started", "request_sent", "heard", "message_added", "turn_ended"} <= set(kinds)


async def test_a_file_a_tool_wrote_is_on_the_record(tmp_path: Path) -> None:
    model = ScriptedModel([call("Write", file_path="a.txt", content="x"), "done"])
    async with shoal.open(cwd=tmp_path, model=model, mode="acceptEdits") as session:
        changed = [e for e in await events_of(session) if isinstance(e, FileChanged)]
    assert [(e.turn, e.path) for e in changed] == [(1, str(tmp_path / "a.txt"))]


async def test_another_model_is_recorded_too_and_held_to_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "script.json"
    script.write_text('[{"text": "from the second"}]')
    recording = tmp_path / "run.jsonl"
    monkeypatch.setenv("ANTHROPIC_API_KEY", "x")
    async with shoal.open(
        cwd=tmp_path, model=ScriptedModel(["from the first"]), record=recording, max_budget_usd=1
    ) as session:
        await finish(session)
        await session.set_model(f"scripted:{script}")
        assert (await finish(session)).text == "from the second"
        with pytest.raises(BudgetError, match="price of unheard-of"):
            await session.set_model("anthropic:unheard-of")
        assert session.agent.model.card.id == "scripted"
    assert len(recording.read_text().splitlines()) == 2


async def test_a_hosted_model_without_a_key_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(Unauthorized, match="Set OPENAI_API_KEY"):
        await shoal.open(cwd=tmp_path, model="openai:gpt-5").__aenter__()


async def test_a_server_of_ones_own_is_asked_for_its_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with chat_server(["hello"], models=["my-model"]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        async with shoal.open(cwd=tmp_path) as session:
            assert session.agent.model.card.id == "my-model"
            assert (await finish(session)).text == "hello"


async def test_a_rule_that_names_no_tool_is_noted(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=ScriptedModel([]), disallowed_tools=["Bsah Edit"]) as session:
        assert session.notes == ["The rule Bsah names no tool here. Is Bash meant?"]
        assert "Edit" not in session.agent.tools


async def test_a_session_that_cannot_begin_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ShoalError):
        async with shoal.open(cwd=tmp_path, model="scripted:/nowhere.json"):
            pass
    assert not any((home() / "shoal" / "runs").iterdir())


@pytest.mark.spec("USR-05")
async def test_unattended_what_the_person_listed_runs_and_the_rest_is_refused(tmp_path: Path) -> None:
    settings = json.dumps({"shoal": {"unattended_allow": ["Bash(touch listed:*)"]}})
    mind = [
        [call("Bash", "c1", command="touch listed"), call("Bash", "c2", command="touch other")],
        "done",
    ]
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(mind), settings=settings) as session:
        returned = [e for e in await events_of(session) if isinstance(e, ToolReturned)]
    assert [e.result.is_error for e in returned] == [False, True]
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(".")) == ["listed"]


async def test_a_project_cannot_list_what_runs_unattended(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text('{"shoal": {"unattended_allow": ["Bash"]}}')
    model = ScriptedModel([call("Bash", command="touch made"), "done"])
    async with shoal.open(cwd=tmp_path, model=model) as session:
        await finish(session)
    assert not (tmp_path / "made").exists()


async def test_a_marked_tag_that_was_read_can_be_edited(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("<system-reminder>old</system-reminder>\n")
    shown = "<\\system-reminder>old"
    mind = [
        call("Read", "c1", file_path="a.md"),
        call("Edit", "c2", file_path="a.md", old_string=shown, new_string=shown.replace("old", "new")),
        "done",
    ]
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(mind), mode="acceptEdits") as session:
        returned = [e for e in await events_of(session) if isinstance(e, ToolReturned)]
    assert shown in result_text(returned[0].result)
    assert (tmp_path / "a.md").read_text() == "<system-reminder>new</system-reminder>\n"


async def test_leaving_a_turn_early_ends_it(tmp_path: Path) -> None:
    async with shoal.open(
        cwd=tmp_path, model=ScriptedModel([call("Bash", command="sleep 600"), "x"]), skip_permissions=True
    ) as session:
        turn = session.run("go")
        await anext(turn)
        await turn.aclose()
        assert not session.busy


@pytest.mark.spec("TRN-02", "USR-12")
async def test_a_question_that_a_dead_run_left_open_is_withdrawn_when_the_session_goes_on(
    tmp_path: Path,
) -> None:
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(["noted"])) as first:
        await finish(first, "go")
    questions = Questions(home() / "shoal" / "runs" / first.id / "questions")
    questions.put(
        MayRun(id="q1", agent=LEAD, tool_use_id="c1", tool="Bash", input={"command": "make"}, reason="r")
    )
    async with shoal.open(cwd=tmp_path, model=ScriptedModel(["on"]), resume=first.id) as again:
        assert questions.open() == ()
        (answer,) = [event for event in recorded(again) if isinstance(event, Answered)]
    assert answer.question == "q1"
    assert isinstance(answer.answer, Denied)


@pytest.mark.spec("PRM-02")
async def test_what_a_person_changes_in_a_call_is_held_to_the_rules_that_forbid(tmp_path: Path) -> None:
    (tmp_path / "keep.txt").write_text("kept")
    model = ScriptedModel([call("Bash", command="touch new.txt"), "done"])
    async with shoal.open(
        cwd=tmp_path, model=model, attended=True, disallowed_tools=["Bash(rm:*)"]
    ) as session:
        turn = asyncio.create_task(events_of(session))
        async for question in session.parts.desk.incoming():
            session.parts.desk.answer(question.id, Allowed(input={"command": "rm keep.txt"}))
            break
        async with asyncio.timeout(20):
            events = await turn
    (returned,) = [event for event in events if isinstance(event, ToolReturned)]
    assert returned.result.is_error
    assert "Bash(rm:*)" in result_text(returned.result)
    assert (tmp_path / "keep.txt").exists()


@pytest.mark.spec("FRK-07")
async def test_what_a_person_may_want_to_say_next_is_asked_for_and_left_no_trace_of(tmp_path: Path) -> None:
    model = ScriptedModel(["nine", "  now count\nthe cranes ", "NONE."])
    async with shoal.open(cwd=tmp_path, model=model) as session:
        assert await session.suggest() == ""
        await finish(session, "count the berths")
        before = list(session.agent.conversation.messages)
        assert await session.suggest() == "now count the cranes"
        assert await session.suggest() == ""
        assert session.agent.conversation.messages == before
    assert "cranes" not in json.dumps(transcript_lines(session.id))


async def test_before_the_first_turn_there_is_nothing_to_bring_back(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=ScriptedModel([])) as session:
        with pytest.raises(NothingToUndo, match="'no-such-message'"):
            await rewind_files(session, "no-such-message")
