"""Finds faults of a team whose lead was killed and resumed until it was done, before any clean-up."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.chaos.tales import Tale, effect_faults, file_faults, tale_in
from tests.chaos.team_mind import APART, PLANNER, TASKS, TEAM, WORKERS, blockers

from shoal.app.teams.record import AgentsRecord
from shoal.core.bodies import IdleNotification
from shoal.core.clock import SystemClock
from shoal.core.errors import NoSuchInbox
from shoal.core.events import AgentEnded, AgentStarted
from shoal.core.ids import Ids
from shoal.core.mail import Mail
from shoal.core.names import AgentName, TeamName
from shoal.stores.files.journal import read_journal
from shoal.wire.bodies import body_of

LEAD = "team-lead"
_TAG = re.compile(r"<[^<>]+ \d+\.\d+>")
_STAYS = (
    r"plans/[\w-]+\.md",
    r"projects/[^/]+/[\w-]+\.jsonl",
    r"projects/[^/]+/[\w-]+/subagents/agent-\w+@crew(\.meta\.json|\.jsonl)",
    r"shoal/runs/[\w-]+/(journal\.jsonl|lock|checkpoints/.+|tasks/\w+@crew\.output|results/.+|members/.+)",
    r"shoal/(teams|tasks)/crew/.+",
    r"shoal/teams\.lock",
    r"shoal/swept",
    r"shoal/keys/crew",
    r"tasks/crew/(\.lock|\.highwatermark|\d+\.json)",
    r"teams/crew/(config\.json|inboxes/[\w-]+\.json)",
    r"worktrees/[^/]+/(\.lock|agent-\w+\.json|agent-\w+/.+)",
    r"plans/\.[\w-]+\.md\.tmp\.\w+",
    # Half a line is set aside, so that the next one is complete.
    r"projects/.+\.jsonl\.torn-[\w.-]+",
)
_PASSING = (
    r"(teams|tasks)/crew/(inboxes/)?(\..+\.tmp\.[0-9a-f]{8}|[\w.-]+\.json\.lock)",
    r"worktrees/[^/]+/(\.shoal-[\d-]+\.tmp|\.agent-\w+\.index)",
    r"shoal/leases/\.?\w+",
    r"worktrees/[^/]+/\.owners/.+",
    r"shell-snapshots/snapshot-\w+-\d+-\w+\.sh(\.part)?",
)
"""Files of a killed writer: the next one takes them over, or removes them when they are old enough."""


async def faults_of_work(place: Path, session: str) -> list[str]:
    """Find faults when all work is done and the members are still there."""
    home = place / "home"
    tales = {name: _tale(home, session, name) for name in (LEAD, *WORKERS)}
    boxes = await _boxes(home, (LEAD, *WORKERS))
    return [
        *_roster_faults(home),
        *_board_faults(home, tales),
        *_mail_faults(tales, boxes),
        *_rest_faults(tales, boxes[LEAD]),
        *_plan_faults(tales[PLANNER]),
        *effect_faults(place, [call for tale in tales.values() for call in tale.calls]),
        *file_faults(home, (*_STAYS, *_PASSING), apart=f"agent-{APART}"),
    ]


def faults_of_places(place: Path, backend: str) -> list[str]:
    """Check that teammates run in the backend: else it was not tested."""
    members = _config(place / "home")["members"]
    places = [each.get("backendType") for each in members if each["name"] != LEAD]
    return [] if set(places) == {backend} else [f"teammates run in {places}, not in {backend}"]


def faults_of_end(place: Path, session: str) -> list[str]:
    """Find faults when all members have ended and a new team of the same name exists."""
    home = place / "home"
    tale = _tale(home, session, LEAD)
    ended = Counter(re.findall(r"teammate_terminated: task (\w+)@crew", "\n".join(tale.heard)))
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
    names = [each["name"] for each in _config(home)["members"]]
    return [
        *(
            f"the lead heard {ended[name]} times that {name} ended, which did so {gone[name]} times"
            for name in WORKERS
            if ended[name] != gone[name] or not ended[name]
        ),
        *(f"{agent} runs on for ever in the journal" for agent, count in started.items() if count),
        *([] if names == [LEAD, "ann"] else [f"the new team has {names}"]),
        *file_faults(home, (*_STAYS, *_PASSING), apart=f"agent-{APART}"),
    ]


def is_there(place: Path) -> bool:
    return (place / "home/teams" / TEAM / "config.json").exists()


def faults_of_removal(place: Path) -> list[str]:
    """Find what is left after a person has removed the team."""
    home = place / "home"
    left = [path for above in (home, home / "shoal") for path in above.glob(f"*/{TEAM}*")]
    return [f"left of the team: {path.relative_to(home)}" for path in left]


def _config(home: Path) -> dict[str, Any]:
    path = home / "teams" / TEAM / "config.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"members": []}
    return found


def _roster_faults(home: Path) -> Iterator[str]:
    members = _config(home)["members"]
    names = [each["name"] for each in members]
    if sorted(names) != sorted((LEAD, *WORKERS)):
        yield f"the roster has {names}"
    yield from (f"{each['name']} is at work in the roster" for each in members if each.get("isActive"))


def _board_faults(home: Path, tales: dict[str, Tale]) -> Iterator[str]:
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
        wanted = {numbers.get(f"job {other}") for other in blockers(number)}
        if set(task.get("blockedBy", ())) != wanted:
            yield f"{task['subject']} waits for {task.get('blockedBy')}, not for {wanted}"
    accepted = Counter(
        call.input["taskId"]
        for tale in tales.values()
        for call in tale.calls
        if call.tool == "TaskUpdate" and call.ok and call.input.get("status") == "completed"
    )
    yield from (f"task {task} was completed {count} times" for task, count in accepted.items() if count > 1)


def _mail_faults(tales: dict[str, Tale], boxes: dict[str, Sequence[Mail]]) -> Iterator[str]:
    for name, tale in tales.items():
        heard = Counter(tale.delivered)
        yield from (f"{name} heard {ident} {count} times" for ident, count in heard.items() if count > 1)
        yield from (f"{name} has not read {mail.text[:80]!r}" for mail in boxes[name] if not mail.read)
        words = [mail for mail in boxes[name] if body_of(mail) is None]
        yield from (f"{name} missed {mail.text[:80]!r}" for mail in words if mail.id not in heard)
    arrived = {
        name: Counter(tag for mail in box for tag in _TAG.findall(mail.text)) for name, box in boxes.items()
    }
    for name, tale in tales.items():
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


def _rest_faults(tales: dict[str, Tale], box: Sequence[Mail]) -> Iterator[str]:
    """Check that a member reports the end of its work to the lead once."""
    told = Counter(
        body.result for mail in box if isinstance(body := body_of(mail), IdleNotification) and body.result
    )
    yield from (f"the lead was told {count} times: {words}" for words, count in told.items() if count > 1)
    for name in WORKERS:
        last = tales[name].last_words[-1:]
        yield from (f"the lead was not told: {words}" for words in last if not told[words])
        if not last:
            yield f"{name} has not come to rest"


def _plan_faults(tale: Tale) -> Iterator[str]:
    approved = False
    for call in tale.calls:
        approved = approved or (call.tool == "ExitPlanMode" and call.ok)
        if call.tool == "Write" and not call.ok and approved and "plan mode" in (call.result or ""):
            yield "an approved plan was forgotten"


async def _boxes(home: Path, names: Sequence[str]) -> dict[str, Sequence[Mail]]:
    record = AgentsRecord(home, clock=SystemClock(), ids=Ids())
    try:
        boxes = record.mailboxes(TeamName(TEAM))
        found: dict[str, Sequence[Mail]] = {}
        for name in names:
            try:
                found[name] = await boxes.history(AgentName(name))
            except NoSuchInbox:
                found[name] = ()
        return found
    finally:
        await record.aclose()


def _tale(home: Path, session: str, name: str) -> Tale:
    (main,) = home.glob(f"projects/*/{session}.jsonl")
    return tale_in(main if name == LEAD else main.with_suffix("") / f"subagents/agent-{name}@{TEAM}.jsonl")
