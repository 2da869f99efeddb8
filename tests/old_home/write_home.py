"""Write the home directory that `home.tar.gz` holds, with the code of one commit.

The archive is history: commit c55cc925 wrote it, and nothing writes it again. Tests unpack it to check that
later code still reads what earlier code wrote. To record another commit, run the script on a copy of its
sources below /tmp/shoal-sources, so that no other path gets into the archive, and keep both archives:

    git archive COMMIT src tests/plugins | tar x -C /tmp/shoal-sources
    cd /tmp/shoal-sources && PYTHONPATH=src:tests/plugins python write_home.py NAME.tar.gz
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path("/tmp/shoal-old-home")
"""Every path in the archive starts with it; `unpack_home` replaces it."""
PROJECT, HOME = ROOT / "project", ROOT / "home"
os.environ["SHOAL_HOME"] = str(HOME)
os.environ["HOME"] = str(ROOT / "person")

from msgspec.structs import replace  # noqa: E402

import shoal  # noqa: E402
from agent_scripts import ToolGate, call_tool, run_all_turns, script_agents, spawn_agent  # noqa: E402
from shoal.app.teams.team_store import TeamStore  # noqa: E402
from shoal.core.budgets.usage import ModelCard, TokenPrice  # noqa: E402
from shoal.core.clock import SystemClock  # noqa: E402
from shoal.core.conversation.model_requests import (  # noqa: E402
    DeltaListener,
    ModelAttemptStartedDelta,
    ModelReply,
    ModelRequest,
    ModelRetryScheduledDelta,
    ignore_stream_delta,
)
from shoal.core.events import (  # noqa: E402
    Event,
    JournaledEvent,
    QuestionAsked,
    QueueItemWithdrawn,
    SessionEnded,
    SessionStarted,
    WorkflowEnded,
    WorkflowPhaseStarted,
    WorkflowStarted,
    WorkflowStepFinished,
    WorkflowStepStarted,
)
from shoal.core.ids import LEAD_ID, IdGenerator, SessionId  # noqa: E402
from shoal.core.names import AgentName, TaskId  # noqa: E402
from shoal.core.permissions.questions import AllowAnswer, ChoiceAnswer, ChoiceQuestion  # noqa: E402
from shoal.core.teams.mail import MailMessage  # noqa: E402
from shoal.models.scripted_model import ScriptedModel  # noqa: E402
from shoal.stores.files.home.home_paths import get_journal_path  # noqa: E402
from shoal.stores.files.sessions.file_journal import FileJournal, read_journal  # noqa: E402
from team_scripts import find_speaker, get_last_result, send_message, spawn_member  # noqa: E402

WORK = "11111111-1111-4111-8111-111111111111"
AGENTS = "22222222-2222-4222-8222-222222222222"
TEAM = "33333333-3333-4333-8333-333333333333"
CUT_OFF = "44444444-4444-4444-8444-444444444444"
EVERYTHING = "55555555-5555-4555-8555-555555555555"

CARD = ModelCard(
    id="scripted", provider="scripted", max_output=1_000, price=TokenPrice(input=3.0, output=15.0)
)
SETTINGS = {
    "permissions": {"allow": ["Bash(echo:*)"], "deny": ["Bash(curl:*)"]},
    "hooks": {"PostToolUse": [{"matcher": "Edit", "hooks": [{"type": "command", "command": "true"}]}]},
}


class FlakyModel(ScriptedModel):
    """Loses its first answer, as with a cut stream, and retries."""

    has_failed = False

    async def generate_reply(
        self, request: ModelRequest, on_delta: DeltaListener = ignore_stream_delta
    ) -> ModelReply:
        if not self.has_failed:
            self.has_failed = True
            await on_delta(ModelAttemptStartedDelta())
            await on_delta(
                ModelRetryScheduledDelta(reason="the stream was cut", delay=0.1, attempt=1, billed=True)
            )
        return await super().generate_reply(request, on_delta)


def script_in_order(script: list[Any]) -> Any:
    """Return a script that gives one line after another; a line may be a function of the request."""
    lines = iter(script)

    def next_reply(request: ModelRequest) -> Any:
        line = next(lines)
        return line(request) if callable(line) else line

    return next_reply


def delete_schedule(request: ModelRequest) -> Any:
    return call_tool("CronDelete", "s3", id=re.findall(r"[0-9a-f]{8}", get_last_result(request))[0])


def create_priced_model(mind: Any) -> ScriptedModel:
    return ScriptedModel(mind, card=CARD)


async def take_turn(session: shoal.Session, prompt: str) -> None:
    async with asyncio.timeout(60):
        async for _ in session.run(prompt):
            pass


def answer_questions(session: shoal.Session) -> None:
    """Answer what the session asks: allow calls, take the first option of a choice."""

    def answer_question(event: Event) -> None:
        if not isinstance(event, QuestionAsked):
            return
        question = event.question
        if isinstance(question, ChoiceQuestion):
            picked = {choice.question: choice.options[0].label for choice in question.choices}
            session.runtime.question_broker.submit_answer(question.id, ChoiceAnswer(answers=picked))
        else:
            session.runtime.question_broker.submit_answer(question.id, AllowAnswer(remember="session"))

    session.subscribe(answer_question)


COLOUR = {
    "question": "Which colour?",
    "header": "Colour",
    "options": [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}],
    "multiSelect": False,
}
TODO = {"content": "Write the report", "status": "in_progress", "activeForm": "Writing the report"}


async def write_work() -> None:
    """Tool calls, questions, a denial, a hook, a background shell, schedules, a compaction and an undo."""
    script: list[Any] = [
        call_tool("Read", "r1", file_path="notes.txt"),
        call_tool("Write", "w1", file_path="report.txt", content="first\n"),
        call_tool("Bash", "b1", command="curl http://example.org"),
        call_tool("AskUserQuestion", "q1", questions=[COLOUR]),
        call_tool("TodoWrite", "t1", todos=[TODO]),
        "The report is written.",
        call_tool("Edit", "e1", file_path="report.txt", old_string="first", new_string="second"),
        call_tool("Bash", "b2", command="echo built", run_in_background=True),
        call_tool("CronCreate", "s1", cron="*/5 * * * *", prompt="look at the build"),
        call_tool("CronCreate", "s2", cron="0 9 * * 1", prompt="weekly report"),
        delete_schedule,
        "The report is corrected.",
        "The build is done.",
        "Summary: a report was written and corrected.",
        call_tool("Write", "w2", file_path="extra.txt", content="too much\n"),
        "Written.",
        "Nothing more.",
    ]
    options: dict[str, Any] = {
        "cwd": PROJECT,
        "session_id": WORK,
        "settings": json.dumps(SETTINGS),
        "attended": True,
        "max_budget_usd": 0.5,
        "seed": 1,
    }
    async with shoal.open(model=FlakyModel(script_in_order(script), card=CARD), **options) as session:
        answer_questions(session)
        await take_turn(session, "Write the report")
        await take_turn(session, "Correct the report")
        shell = session.runtime.processes.shells.find_shell("bash_1")
        assert shell is not None
        await asyncio.wait_for(shell.ended.wait(), 20)
        turn = await session.next_turn()
        assert turn is not None
        async for _ in turn:
            pass
        await session.compact()
        session.set_mode("acceptEdits")
        await take_turn(session, "Write something else")
        await session.undo()
        session.steer("One more thing")
    del options["session_id"]
    async with shoal.open(model=create_priced_model(["Good bye."]), resume=WORK, **options) as session:
        await run_all_turns(session, "Say good bye")


async def write_agents() -> None:
    """Sub-agents in the foreground, moved to the background, nested and in a worktree."""
    gate = ToolGate()
    parts: dict[str, Any] = {
        "lead": [
            spawn_agent("You fix it", "c1", isolation="worktree"),
            spawn_agent("Middle starts another", "c2"),
            spawn_agent("Slow work", "c3"),
            "I wait for the slow one.",
            "All are done.",
        ],
        "You": [call_tool("Write", "f1", file_path="new.txt", content="work\n"), "It is fixed."],
        "Middle": [spawn_agent("Inner looks", "i1"), "The inner agent found it."],
        "Inner": [call_tool("Read", "i2", file_path="notes.txt"), "Found it in the notes."],
        "Slow": [call_tool("Gate"), "Slow but done."],
    }
    spoken = script_agents(**parts)
    model = ScriptedModel(spoken._choose_reply, card=CARD)
    async with shoal.open(
        cwd=PROJECT, model=model, session_id=AGENTS, skip_permissions=True, tools=[gate.tool], seed=2
    ) as session:
        turn = asyncio.create_task(take_turn(session, "lead: give the work out"))
        await gate.wait_until_reached()
        assert session.move_to_background()
        await turn
        gate.is_open.set()
        async with asyncio.timeout(30):
            while (late := await session.next_turn()) is not None:
                async for _ in late:
                    pass


def script_ann(request: ModelRequest) -> Any:
    said = sum(message.role == "assistant" for message in request.messages)
    part = [
        call_tool("TaskUpdate", "u2", taskId="1", owner="ann", status="in_progress"),
        send_message("bob", "I am digging", "digging"),
        call_tool("TaskUpdate", "u3", taskId="1", status="completed"),
        send_message("team-lead", "The hole is dug.", "dug"),
    ]
    return part[said] if said < len(part) else "I wait."


def script_bob(request: ModelRequest) -> Any:
    said = sum(message.role == "assistant" for message in request.messages)
    return (
        call_tool("TaskUpdate", "u4", taskId="3", owner="bob", status="in_progress")
        if not said
        else "I wait."
    )


async def write_team() -> None:
    """A team with a board in every state and mail that is read and unread."""
    lead: list[Any] = [
        call_tool("TeamCreate", "tc", team_name="crew", description="Digs holes"),
        call_tool("TaskCreate", "t1", subject="Dig", description="a hole"),
        call_tool("TaskCreate", "t2", subject="Fill", description="the hole"),
        call_tool("TaskCreate", "t3", subject="Paint", description="the fence"),
        call_tool("TaskCreate", "t4", subject="Rest", description="for a while"),
        call_tool("TaskUpdate", "u1", taskId="2", addBlockedBy=["3"], owner="bob"),
        call_tool("TaskUpdate", "u5", taskId="4", status="deleted"),
        call_tool("TaskCreate", "t5", subject="Sweep", description="the yard"),
        spawn_member("bob"),
        spawn_member("ann"),
        "They work.",
        send_message("bob", "Go on.", "go on"),
        "They work on.",
    ]
    parts = {"ann": script_ann, "bob": script_bob}

    def choose_reply(request: ModelRequest) -> Any:
        who = find_speaker(request)
        if who in parts:
            return parts[who](request)
        said = sum(message.role == "assistant" for message in request.messages)
        return lead[min(said, len(lead) - 1)]

    async with shoal.open(
        cwd=PROJECT, model=create_priced_model(choose_reply), session_id=TEAM, skip_permissions=True, seed=3
    ) as session:
        await run_all_turns(session, "Dig and fill")
    record = TeamStore(HOME, clock=SystemClock(), ids=IdGenerator(7))
    letter = MailMessage(
        id="unread-1",
        sender="guest",
        text="Are you there?",
        timestamp="2026-01-01T00:00:00.000Z",
        summary="a question",
    )
    await record.open_mailboxes("crew").post(AgentName("bob"), letter)
    assert (await record.open_board("crew").claim(TaskId("3"), by=AgentName("bob"))).success
    await record.aclose()


async def ask_and_die() -> None:
    """Ask for a permission, and be gone before the answer."""
    call = call_tool("Bash", "b1", command="touch made")
    async with shoal.open(
        cwd=PROJECT, model=create_priced_model([call]), session_id=CUT_OFF, attended=True, seed=4
    ) as session:
        session.subscribe(lambda event: os._exit(0) if isinstance(event, QuestionAsked) else None)
        await take_turn(session, "Make a file")


def find_first_events(sessions: tuple[str, ...]) -> Iterator[JournaledEvent]:
    """Yield the first event of each type that the sessions wrote."""
    seen: set[type] = set()
    for session in sessions:
        for recorded in read_journal(get_journal_path(HOME, SessionId(session))):
            if isinstance(recorded.event, JournaledEvent) and type(recorded.event) not in seen:
                seen.add(type(recorded.event))
                yield recorded.event


BY_HAND: tuple[JournaledEvent, ...] = (
    QueueItemWithdrawn(agent=LEAD_ID, item="item-9"),
    WorkflowStarted(agent=LEAD_ID, workflow="w-1", name="w", arguments={}),
    WorkflowPhaseStarted(agent=LEAD_ID, workflow="w-1", phase="edit"),
    WorkflowStepStarted(agent=LEAD_ID, workflow="w-1", step=1, path="edit/now", digest="0"),
    WorkflowStepFinished(agent=LEAD_ID, workflow="w-1", step=1, value=1),
    WorkflowEnded(agent=LEAD_ID, workflow="w-1", status="completed"),
)
"""Events that no run above writes."""


def write_everything() -> None:
    """Write a journal with every type of event: as the runs wrote them, the rest by hand."""
    real = {type(event): event for event in find_first_events((WORK, AGENTS, TEAM, CUT_OFF))}
    missing = set(JournaledEvent.__subclasses__()) - set(real) - {type(event) for event in BY_HAND}
    assert not missing, f"no run wrote these, and nobody else does: {missing}"
    events = {type(event): event for event in BY_HAND} | real
    first, last = events.pop(SessionStarted), events.pop(SessionEnded)
    assert isinstance(first, SessionStarted)
    journal = FileJournal(get_journal_path(HOME, SessionId(EVERYTHING)), SystemClock())
    journal.append(replace(first, session=SessionId(EVERYTHING)))
    for kind in JournaledEvent.__subclasses__():
        if kind in events:
            journal.append(events[kind])
    journal.append(last)
    journal.close()


def run_git(*words: str) -> None:
    subprocess.run(["git", *words], cwd=PROJECT, check=True, capture_output=True)


def make_project() -> None:
    shutil.rmtree(ROOT, ignore_errors=True)
    PROJECT.mkdir(parents=True)
    (ROOT / "person").mkdir()
    run_git("init", "-q", "-b", "main", "--template=")
    run_git("config", "user.name", "A Person")
    run_git("config", "user.email", "person@example.org")
    (PROJECT / "notes.txt").write_text("notes\n")
    run_git("add", "-A")
    run_git("commit", "-qm", "first")


def main() -> None:
    if sys.argv[1] == "--ask-and-die":
        asyncio.run(ask_and_die())
        return
    make_project()
    for write in (write_work, write_agents, write_team):
        asyncio.run(write())
    subprocess.run([sys.executable, __file__, "--ask-and-die"], check=True)
    write_everything()
    with tarfile.open(sys.argv[1], "w:gz") as archive:
        for name in ("project", "home"):
            archive.add(ROOT / name, name, filter=_normalize_member)
    shutil.rmtree(ROOT)


def _normalize_member(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    if "shell-snapshots" in member.name or not (member.isdir() or member.isreg()):
        return None
    return member


if __name__ == "__main__":
    main()
