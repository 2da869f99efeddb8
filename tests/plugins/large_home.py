"""Writes homes with long histories: journals and transcripts of any size, boards of any number of tasks.

Events and entries are encoded once for one task; the other tasks are copies with other ids, so that a
gigabyte takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from shoal.core.budgets.usage import Usage
from shoal.core.clock import format_iso_time
from shoal.core.conversation.messages import (
    Message,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    user_message,
)
from shoal.core.conversation.transcript_entries import (
    ModelReplyMetadata,
    TranscriptCompactionMarker,
    TranscriptEntry,
    TranscriptMessageEntry,
)
from shoal.core.events import (
    AgentStarted,
    AssistantReplied,
    JournaledEvent,
    MailPosted,
    MailTaken,
    MemberWentIdle,
    MemberWoken,
    ModelRequestSent,
    ModelRequestSettled,
    SessionEnded,
    SessionStarted,
    TaskChanged,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    WorkflowEnded,
    WorkflowStarted,
)
from shoal.core.ids import LEAD_ID, AgentId, EntryId, RequestId, SessionId
from shoal.core.names import AgentName, TaskId, TeamName
from shoal.core.teams.roster import RosterEntry, TeamRoster
from shoal.core.teams.tasks import Task
from shoal.stores.files.home.home_paths import get_journal_path, get_transcript_path
from shoal.wire.journal_codec import encode_journal_line
from shoal.wire.roster_codec import encode_new_team_roster
from shoal.wire.task_codec import encode_new_task
from shoal.wire.transcript_codec import TranscriptEncoder

SESSION = SessionId("66666666-6666-4666-8666-666666666666")
TEAM = TeamName("crew")
STARTED_AT = 1_700_000_000_000
_TASK_MARK, _AGENT_MARK, _TIME_MARK, _PARENT_MARK = b"7654321", b"m987654", b"2001-01-01", b"before-it"
_TIME = 978_307_200_000
"""The first moment of the day in the time mark."""
MODEL = "claude-sonnet-4-5"
PREVIEW = "The tests of the parser pass, and the next step is the codec of the second format. "


class LargeHome(Struct, frozen=True, kw_only=True):
    home: Path
    project: Path
    session: SessionId
    tasks: int
    requests: int
    """Settled requests in the journal."""

    @property
    def journal(self) -> Path:
        return get_journal_path(self.home, self.session)

    @property
    def transcript(self) -> Path:
        return get_transcript_path(self.home, str(self.project), self.session)


def write_large_home(
    directory: Path,
    *,
    tasks: int,
    journal_size: int = 0,
    transcript_size: int = 0,
    members: int = 20,
    is_ended: bool = True,
) -> LargeHome:
    """Write a home with one session that led a team; about `journal_size` bytes are spread over the tasks."""
    home, project = directory / "home", directory / "project"
    project.mkdir(parents=True)
    names = [AgentName(f"m{number:06d}") for number in range(members)]
    _write_team(home, project, names)
    _write_board(home, tasks, names)
    large = LargeHome(home=home, project=project, session=SESSION, tasks=tasks, requests=0)
    requests = _write_journal(large, journal_size, names, is_ended=is_ended)
    _write_transcript(large, transcript_size)
    return LargeHome(home=home, project=project, session=SESSION, tasks=tasks, requests=requests)


def _write_team(home: Path, project: Path, names: list[AgentName]) -> None:
    (home / "teams" / TEAM / "inboxes").mkdir(parents=True, mode=0o700)
    roster = TeamRoster(
        name=TEAM,
        description="",
        created_at=STARTED_AT,
        lead_agent_id=f"team-lead@{TEAM}",
        lead_session_id=SESSION,
        members=tuple(
            RosterEntry(
                agent_id=f"{name}@{TEAM}",
                name=name,
                agent_type="general-purpose",
                model=MODEL,
                cwd=str(project),
                joined_at=STARTED_AT,
            )
            for name in (AgentName("team-lead"), *names)
        ),
    )
    (home / "teams" / TEAM / "config.json").write_bytes(encode_new_team_roster(roster))


def _write_board(home: Path, tasks: int, names: list[AgentName]) -> None:
    board = home / "tasks" / TEAM
    board.mkdir(parents=True, mode=0o700)
    pattern = encode_new_task(
        Task(
            id=TaskId(_TASK_MARK.decode()),
            subject=_make_subject(_TASK_MARK.decode()),
            description=PREVIEW * 4,
            status="completed",
            owner=AgentName(_AGENT_MARK.decode()),
        )
    )
    for number in range(1, tasks + 1):
        owner = names[number % len(names)].encode()
        content = pattern.replace(_TASK_MARK, b"%d" % number).replace(_AGENT_MARK, owner)
        (board / f"{number}.json").write_bytes(content)


def _make_subject(number: str) -> str:
    return f"Convert the module number {number} and run its tests"


def _write_journal(large: LargeHome, size: int, names: list[AgentName], *, is_ended: bool) -> int:
    large.journal.parent.mkdir(parents=True, mode=0o700)
    per_task = size // max(1, large.tasks)
    rounds = max(1, (per_task - len(_encode_task_events(0))) // (_measure(1) - _measure(0)))
    pattern = _encode_task_events(rounds)
    with large.journal.open("wb") as file:
        for event in _list_start_events(large, names):
            file.write(encode_journal_line(event, STARTED_AT))
        for number in range(1, large.tasks + 1):
            day = format_iso_time(STARTED_AT + number * 86_400_00)[:10].encode()
            file.write(
                pattern.replace(_TASK_MARK, b"%d" % number)
                .replace(_AGENT_MARK, names[number % len(names)].encode())
                .replace(_TIME_MARK, day)
            )
        if is_ended:
            file.write(
                encode_journal_line(TurnEnded(agent=LEAD_ID, turn=1, reason="done", requests=1), _TIME)
            )
            file.write(encode_journal_line(SessionEnded(agent=LEAD_ID), _TIME))
    return large.tasks * rounds


def _measure(rounds: int) -> int:
    return len(_encode_task_events(rounds))


def _list_start_events(large: LargeHome, names: list[AgentName]) -> Iterator[JournaledEvent]:
    yield SessionStarted(
        agent=LEAD_ID,
        session=large.session,
        cwd=str(large.project),
        model=MODEL,
        mode="default",
        tools=("Read",),
        version="0.1.0",
    )
    yield TurnStarted(agent=LEAD_ID, turn=1, prompt="Convert all modules.")
    yield WorkflowStarted(agent=LEAD_ID, workflow="w1", name="survey", arguments={})
    yield WorkflowEnded(agent=LEAD_ID, workflow="w1", status="completed", value="20 modules")
    for name in names:
        yield AgentStarted(
            agent=AgentId(f"{name}@{TEAM}"),
            kind="general-purpose",
            name=name,
            description="Convert modules",
            parent=LEAD_ID,
            call="",
            depth=1,
            model=MODEL,
            mode="default",
            background=True,
            cwd=str(large.project),
            team=TEAM,
        )


def _encode_task_events(rounds: int) -> bytes:
    task, name = _TASK_MARK.decode(), _AGENT_MARK.decode()
    agent = AgentId(f"{name}@{TEAM}")
    subject = _make_subject(task)
    change: Callable[..., TaskChanged] = lambda **changed: TaskChanged(  # noqa: E731 - one line per change below
        agent=LEAD_ID, board=TEAM, task=task, subject=subject, **changed
    )
    mail = {"team": TEAM, "mail": f"mail-{task}", "sender": name, "to": "team-lead", "kind": "message"}
    events: list[JournaledEvent] = [
        change(status="pending"),
        change(status="in_progress", owner=name),
        MemberWoken(agent=agent),
        *(event for number in range(rounds) for event in _list_round_events(agent, task, number)),
        change(status="completed", owner=name),
        MailPosted(agent=LEAD_ID, preview=PREVIEW, **mail),
        MailTaken(agent=LEAD_ID, preview=PREVIEW, **mail),
        MemberWentIdle(agent=agent, reason="available"),
    ]
    return b"".join(encode_journal_line(event, _TIME) for event in events)


def _list_round_events(agent: AgentId, task: str, number: int) -> Iterator[JournaledEvent]:
    request, call = RequestId(f"req-{task}-{number}"), f"toolu_{task}_{number}"
    usage = Usage(input_tokens=12, output_tokens=300, cache_read_input_tokens=40_000)
    yield ModelRequestSent(
        agent=agent, request=request, model=MODEL, reserved_usd=0.02, reserved_tokens=41_000
    )
    yield ModelRequestSettled(
        agent=agent, request=request, model=MODEL, usage=usage, cost_usd=0.0165, duration_ms=2500
    )
    yield AssistantReplied(agent=agent, entry=EntryId(f"entry-{task}-{number}"), preview=PREVIEW, tool_uses=1)
    yield ToolStarted(agent=agent, call=call, tool="Bash", preview="python -m pytest -q tests/wire")
    yield ToolFinished(
        agent=agent, call=call, tool="Bash", is_error=False, size=900, duration_ms=1500, preview=PREVIEW
    )


_ROUNDS_PER_BLOCK, _BLOCKS_PER_COMPACTION = 20, 8


def _write_transcript(large: LargeHome, size: int) -> None:
    large.transcript.parent.mkdir(parents=True, mode=0o700)
    encoder = TranscriptEncoder(session=large.session, cwd=str(large.project), version="0.1.0")
    plain, compacted = (_encode_block(encoder, compaction=each) for each in (False, True))
    with large.transcript.open("wb") as file:
        written, number = 0, 0
        while written < size or not number:
            pattern = compacted if number % _BLOCKS_PER_COMPACTION == _BLOCKS_PER_COMPACTION - 1 else plain
            parent = b"null" if not number else b'"entry-%d-last"' % (number - 1)
            block = pattern.replace(b'"%b"' % _PARENT_MARK, parent).replace(_TASK_MARK, b"%d" % number)
            written += file.write(block)
            number += 1


def _encode_block(encoder: TranscriptEncoder, *, compaction: bool) -> bytes:
    """Encode a prompt, rounds of calls with their results, and an answer; first a compaction, if wanted."""
    block, entries = _TASK_MARK.decode(), list[TranscriptEntry]()
    parent = EntryId(_PARENT_MARK.decode())
    if compaction:
        entries.append(
            TranscriptCompactionMarker(
                id=EntryId(f"entry-{block}-compaction"),
                before=parent,
                at=STARTED_AT,
                trigger="auto",
                tokens_before=150_000,
            )
        )
        parent = entries[-1].id
    messages: list[tuple[Message, bool]] = [(user_message(f"Continue with part {block}."), False)]
    for number in range(_ROUNDS_PER_BLOCK):
        call = f"toolu_{block}_{number}"
        use = ToolUseBlock(id=call, name="Read", input={"file_path": f"/project/module_{block}.py"})
        messages.append((Message(role="assistant", content=(TextBlock(text=PREVIEW), use)), True))
        result = ToolResultBlock(tool_use_id=call, content=PREVIEW * 100)
        messages.append((Message(role="user", content=(result,)), False))
    messages.append((Message(role="assistant", content=(TextBlock(text=PREVIEW),)), True))
    for index, (message, is_reply) in enumerate(messages):
        is_last = index == len(messages) - 1
        entry = EntryId(f"entry-{block}-last" if is_last else f"entry-{block}-{index}")
        billing = ModelReplyMetadata(
            message_id=f"msg_{block}_{index}",
            model=MODEL,
            stop_reason="end_turn" if is_last else "tool_use",
            usage=Usage(input_tokens=12, output_tokens=300, cache_read_input_tokens=40_000),
            request=RequestId(f"req-{block}-{index}"),
        )
        entries.append(
            TranscriptMessageEntry(
                id=entry, parent=parent, at=STARTED_AT, message=message, billing=billing if is_reply else None
            )
        )
        parent = entry
    return b"".join(map(encoder.encode_entry, entries))
