"""Finds faults of a team whose lead was killed and resumed until it was done, before any clean-up."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.chaos.team_script import PLANNING_MEMBER, TASKS, TEAM, WORKERS, WORKTREE_MEMBER, list_blockers
from tests.chaos.transcript_facts import (
    TranscriptFacts,
    find_effect_faults,
    find_file_faults,
    read_transcript,
)

from shoal.app.teams.team_store import TeamStore
from shoal.core.clock import SystemClock
from shoal.core.errors import InboxNotFound
from shoal.core.events import AgentEnded, AgentStarted
from shoal.core.ids import IdGenerator
from shoal.core.names import AgentName, TeamName
from shoal.core.teams.mail import MailMessage
from shoal.core.teams.mail_bodies import IdleNotificationMail
from shoal.stores.files.sessions.file_journal import read_journal
from shoal.wire.mail_body_codec import get_authorized_mail_body

LEAD = "team-lead"
_TAG = re.compile(r"<[^<>]+ \d+\.\d+>")
_EXPECTED_FILES = (
    r"plans/[\w-]+\.md",
    r"projects/[^/]+/[\w-]+\.jsonl",
    r"projects/[^/]+/[\w-]+/subagents/agent-\w+@crew(\.meta\.json|\.jsonl)",
    r"shoal/runs/[\w-]+/(journal\.jsonl|lock|checkpoints/.+|tasks/\w+@crew\.output|results/.+|members/.+)",
    r"shoal/(teams|tasks)/crew/.+",
    r"shoal/teams\.lock",
    r"shoal/swept",
    r"shoal/keys/crew",
    r"tasks/crew/(\.lock|\.highwatermark|\d+\.json)",
    r"teams/crew/(config\.json|inboxes/([\w-]+\.json|\.lock))",
    r"worktrees/[^/]+/(\.lock|agent-\w+\.json|agent-\w+/.+)",
    r"plans/\.[\w-]+\.md\.tmp\.\w+",
    # Half a line is set aside, so that the next one is complete.
    r"projects/.+\.jsonl\.torn-[\w.-]+",
)
_TEMPORARY_FILES = (
    r"(teams|tasks)/crew/(inboxes/)?(\..+\.tmp\.[0-9a-f]{8}|[\w.-]+\.json\.lock)",
    r"worktrees/[^/]+/(\.shoal-[\d-]+\.tmp|\.agent-\w+\.index)",
    r"shoal/leases/\.?\w+",
    r"worktrees/[^/]+/\.owners/.+",
    r"shell-snapshots/snapshot-\w+-\d+-[\w-]+\.sh(\.part)?",
)
"""Files of a killed writer: the next one takes them over, or removes them when they are old enough."""


async def find_work_faults(directory: Path, session: str) -> list[str]:
    """Find faults when all work is done and the members are still there."""
    home = directory / "home"
    tales = {name: _read_agent_transcript(home, session, name) for name in (LEAD, *WORKERS)}
    boxes = await _read_mailboxes(home, (LEAD, *WORKERS))
    return [
        *_find_roster_faults(home),
        *_find_board_faults(home, tales),
        *_find_mail_faults(tales, boxes),
        *_find_idle_faults(tales, boxes[LEAD]),
        *_find_plan_faults(tales[PLANNING_MEMBER]),
        *find_effect_faults(directory, [call for tale in tales.values() for call in tale.calls]),
        *find_file_faults(
            home, (*_EXPECTED_FILES, *_TEMPORARY_FILES), project_marker=f"agent-{WORKTREE_MEMBER}"
        ),
    ]


def find_backend_faults(directory: Path, backend: str) -> list[str]:
    """Check that teammates run in the backend: else it was not tested."""
    members = _read_team_config(directory / "home")["members"]
    places = [each.get("backendType") for each in members if each["name"] != LEAD]
    return [] if set(places) == {backend} else [f"teammates run in {places}, not in {backend}"]


def find_end_faults(directory: Path, session: str) -> list[str]:
    """Find faults when all members have ended and a new team of the same name exists."""
    home = directory / "home"
    tale = _read_agent_transcript(home, session, LEAD)
    ended = Counter(re.findall(r"teammate_terminated: task (\w+)@crew", "\n".join(tale.user_texts)))
    started: Counter[str] = Counter()
    gone: Counter[str] = Counter()
    for recorded in read_journal(home / "shoal" / "runs" / session / "journal.jsonl"):
        match recorded.event:
            case AgentStarted(agent=agent, team=team) if team:
                started[agent] += 1
            case AgentEnded(agent=agent, notice=notice):
                started[agent] = 0
                gone[agent.removesuffix(f"@{TEAM}")] += bool(notice)
            case _:
                pass
    names = [each["name"] for each in _read_team_config(home)["members"]]
    return [
        *(
            f"the lead heard {ended[name]} times that {name} ended, which did so {gone[name]} times"
            for name in WORKERS
            if ended[name] != gone[name] or not ended[name]
        ),
        *(f"{agent} runs on for ever in the journal" for agent, count in started.items() if count),
        *([] if names == [LEAD, "ann"] else [f"the new team has {names}"]),
        *find_file_faults(
            home, (*_EXPECTED_FILES, *_TEMPORARY_FILES), project_marker=f"agent-{WORKTREE_MEMBER}"
        ),
    ]


def has_team(directory: Path) -> bool:
    return (directory / "home/teams" / TEAM / "config.json").exists()


def find_removal_faults(directory: Path) -> list[str]:
    """Find what is left after a person has removed the team."""
    home = directory / "home"
    if (home / "shoal" / "teams" / TEAM / "deleting").exists():
        # The lead was killed while it deleted the team. The next team that is created removes the rest.
        return []
    left = [path for above in (home, home / "shoal") for path in above.glob(f"*/{TEAM}*")]
    return [f"left of the team: {path.relative_to(home)}" for path in left]


def _read_team_config(home: Path) -> dict[str, Any]:
    path = home / "teams" / TEAM / "config.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"members": []}
    return found


def _find_roster_faults(home: Path) -> Iterator[str]:
    members = _read_team_config(home)["members"]
    names = [each["name"] for each in members]
    if sorted(names) != sorted((LEAD, *WORKERS)):
        yield f"the roster has {names}"
    yield from (f"{each['name']} is at work in the roster" for each in members if each.get("isActive"))


def _find_board_faults(home: Path, transcripts: dict[str, TranscriptFacts]) -> Iterator[str]:
    tasks = [json.loads(path.read_text()) for path in (home / "tasks" / TEAM).glob("[0-9]*.json")]
    jobs = {task["subject"]: task for task in tasks}
    if len(tasks) != TASKS or len(jobs) != TASKS:
        yield f"{len(tasks)} tasks with {len(jobs)} subjects are on the board"
    numbers = {subject: task["id"] for subject, task in jobs.items()}
    for number in range(1, TASKS + 1):
        task = jobs.get(f"job {number}")
        if task is None:
            yield f"job {number} is lost"
            continue
        if task["status"] != "completed" or task.get("owner") not in WORKERS:
            yield f"{task['subject']} is {task['status']} with {task.get('owner')}"
        wanted = {numbers.get(f"job {other}") for other in list_blockers(number)}
        if set(task.get("blockedBy", ())) != wanted:
            yield f"{task['subject']} waits for {task.get('blockedBy')}, not for {wanted}"
    accepted = Counter(
        call.input["taskId"]
        for tale in transcripts.values()
        for call in tale.calls
        if call.tool == "TaskUpdate" and call.ok and call.input.get("status") == "completed"
    )
    yield from (f"task {task} was completed {count} times" for task, count in accepted.items() if count > 1)


def _find_mail_faults(
    transcripts: dict[str, TranscriptFacts], boxes: dict[str, Sequence[MailMessage]]
) -> Iterator[str]:
    for name, tale in transcripts.items():
        heard = Counter(tale.delivered)
        yield from (f"{name} heard {ident} {count} times" for ident, count in heard.items() if count > 1)
        yield from (f"{name} has not read {mail.text[:80]!r}" for mail in boxes[name] if not mail.read)
        words = [mail for mail in boxes[name] if get_authorized_mail_body(mail) is None]
        yield from (f"{name} missed {mail.text[:80]!r}" for mail in words if mail.id not in heard)
    arrived = {
        name: Counter(tag for mail in box for tag in _TAG.findall(mail.text)) for name, box in boxes.items()
    }
    for name, tale in transcripts.items():
        for call in tale.calls:
            text = call.input.get("message")
            if call.tool != "SendMessage" or not isinstance(text, str):
                continue
            to = [each for each in boxes if each != name] if call.input["to"] == "*" else [call.input["to"]]
            for each in to:
                count = arrived.get(each, Counter())[text]
                # Sent to all members at that time: some may have joined later.
                least = call.ok and call.input["to"] != "*"
                if count > 1 or (least and not count):
                    yield f"{text} of {name} came {count} times to {each}"


def _find_idle_faults(transcripts: dict[str, TranscriptFacts], box: Sequence[MailMessage]) -> Iterator[str]:
    """Check that a member reports the end of its work to the lead once."""
    told = Counter(
        body.result
        for mail in box
        if isinstance(body := get_authorized_mail_body(mail), IdleNotificationMail) and body.result
    )
    yield from (f"the lead was told {count} times: {words}" for words, count in told.items() if count > 1)
    for name in WORKERS:
        last = transcripts[name].final_texts[-1:]
        yield from (f"the lead was not told: {words}" for words in last if not told[words])
        if not last:
            yield f"{name} has not come to rest"


def _find_plan_faults(transcript: TranscriptFacts) -> Iterator[str]:
    approved = False
    for call in transcript.calls:
        approved = approved or (call.tool == "ExitPlanMode" and call.ok)
        if call.tool == "Write" and not call.ok and approved and "plan mode" in (call.result or ""):
            yield "an approved plan was forgotten"


async def _read_mailboxes(home: Path, names: Sequence[str]) -> dict[str, Sequence[MailMessage]]:
    record = TeamStore(home, clock=SystemClock(), ids=IdGenerator())
    try:
        boxes = record.open_mailboxes(TeamName(TEAM))
        found: dict[str, Sequence[MailMessage]] = {}
        for name in names:
            try:
                found[name] = await boxes.read_history(AgentName(name))
            except InboxNotFound:
                found[name] = ()
        return found
    finally:
        await record.aclose()


def _read_agent_transcript(home: Path, session: str, name: str) -> TranscriptFacts:
    (main,) = home.glob(f"projects/*/{session}.jsonl")
    return read_transcript(
        main if name == LEAD else main.with_suffix("") / f"subagents/agent-{name}@{TEAM}.jsonl"
    )
