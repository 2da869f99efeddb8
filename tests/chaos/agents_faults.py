"""Finds faults of a lead and its sub-agents that were disturbed until they were done."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from tests.chaos.agents_script import (
    JOBS,
    NESTED_JOBS,
    get_report_opening,
    make_report,
    remove_interrupted_reports,
    runs_in_worktree,
)
from tests.chaos.transcript_facts import (
    TranscriptFacts,
    find_effect_faults,
    find_file_faults,
    read_transcript,
)

from shoal.core.agents.subagents import AgentResult
from shoal.core.events import AgentEnded, AgentStarted, WorktreeWorkRetained
from shoal.core.ids import LEAD_ID
from shoal.stores.files.locks.pid_locks import is_session_running
from shoal.stores.files.sessions.file_journal import read_journal

_EXPECTED_FILES = (
    r"projects/[^/]+/[\w-]+\.jsonl",
    r"projects/[^/]+/[\w-]+/subagents/agent-\w+(\.meta\.json|\.jsonl)",
    r"shoal/runs/[\w-]+/(journal\.jsonl|lock|checkpoints/.+|tasks/\w+\.output|results/.+)",
    r"shoal/swept",
    r"worktrees/[^/]+/(\.lock|agent-\w+\.json|agent-\w+/.+)",
    r"projects/.+\.jsonl\.torn-[\w.-]+",
)
_TEMPORARY_FILES = (
    r"worktrees/[^/]+/(\.shoal-[\d-]+\.tmp|\.agent-\w+\.index)",
    r"shoal/leases/\.?\w+",
    r"worktrees/[^/]+/\.owners/.+",
    r"shell-snapshots/snapshot-\w+-\d+-\w+\.sh(\.part)?",
)
"""Files of a killed writer: the next one takes them over, or removes them when they are old enough."""


def find_agent_faults(directory: Path, session: str) -> list[str]:
    home = directory / "home"
    (main,) = home.glob(f"projects/*/{session}.jsonl")
    tales = {LEAD_ID: read_transcript(main)}
    for path in main.with_suffix("").glob("subagents/agent-*.jsonl"):
        tales[path.stem.removeprefix("agent-")] = read_transcript(path)
    started: Counter[str] = Counter()
    ends: list[AgentResult] = []
    told_of: set[str] = set()
    for recorded in read_journal(home / "shoal" / "runs" / session / "journal.jsonl"):
        match recorded.event:
            case AgentStarted(agent=agent):
                started[agent] += 1
            case AgentEnded(completion=completion):
                ends.append(completion)
            case WorktreeWorkRetained(work=work):
                told_of.add(Path(work.path).name)
            case _:
                pass
    return [
        *_find_end_faults(started, ends, tales),
        *_find_report_faults(ends, tales),
        *_find_worktree_faults(directory, ends, told_of, tales[LEAD_ID]),
        *find_effect_faults(directory, [call for tale in tales.values() for call in tale.calls]),
        *find_file_faults(home, (*_EXPECTED_FILES, *_TEMPORARY_FILES), project_marker="worktrees/"),
        *(["the session is still locked"] if is_session_running(home, session) else ()),
    ]


def _find_end_faults(
    started: Counter[str], ends: list[AgentResult], transcripts: dict[str, TranscriptFacts]
) -> Iterator[str]:
    """Check that each start has an end, and that the parent of an agent received it once."""
    ended = Counter(end.agent for end in ends)
    for agent in started:
        if started[agent] != ended[agent]:
            yield f"agent {agent} was started {started[agent]} times and ended {ended[agent]} times"
    for end in ends:
        if end.report_to in transcripts:
            times = transcripts[end.report_to].delivered.count(end.id)
            if times > 1 or (end.background and times < 1):
                yield f"the end of {end.agent} ({end.status}) was told {times} times to {end.report_to}"


def _find_report_faults(ends: list[AgentResult], transcripts: dict[str, TranscriptFacts]) -> Iterator[str]:
    """Check that each job has one complete report, which was received once."""
    done: dict[str, list[AgentResult]] = {}
    for end in ends:
        if end.status == "completed":
            done.setdefault(end.description.removeprefix("job "), []).append(end)
    for job in (*JOBS, *NESTED_JOBS):
        reports = done.get(job, [])
        if job in JOBS and len(reports) != 1:
            yield f"{job} was done {len(reports)} times"
        if not reports:
            yield f"{job} was not done"
        for end in reports:
            kept = Path(end.result).read_text() if end.result and Path(end.result).exists() else ""
            if kept != make_report(job) or sha256(kept.encode()).hexdigest() != end.digest:
                yield f"the report of {job} is not whole: {len(kept)} of {len(make_report(job))} characters"
            listener = transcripts.get(end.report_to)
            heard = 0 if listener is None else _count_report(listener, job)
            if heard != len([each for each in reports if each.report_to == end.report_to]):
                yield f"{end.report_to} heard the report of {job} {heard} times"


def _count_report(transcript: TranscriptFacts, job: str) -> int:
    said = [
        *transcript.user_texts,
        *(call.result or "" for call in transcript.calls if call.tool != "TaskOutput"),
    ]
    return sum(remove_interrupted_reports(text).count(get_report_opening(job)) for text in said)


def _find_worktree_faults(
    directory: Path, ends: list[AgentResult], announced: set[str], lead: TranscriptFacts
) -> Iterator[str]:
    """Check that a worktree remains while there is work in it, or while nobody could check."""
    listed = subprocess.run(
        ["git", "worktree", "list", "--porcelain"],
        cwd=directory / "project",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    there = {Path(row.split(" ", 1)[1]).name for row in listed.splitlines() if row.startswith("worktree ")}
    there.discard("project")
    wanted = {
        f"agent-{end.agent[:8]}"
        for end in ends
        if runs_in_worktree(end.description) and "clean" not in end.description and end.status == "completed"
    }
    yield from (f"the worktree {name} is left over" for name in sorted(there - wanted - announced))
    yield from (f"the worktree {name} with work in it is gone" for name in sorted(wanted - there))
    for name in wanted & there:
        (found,) = (directory / "home").glob(f"worktrees/*/{name}")
        if not list(found.glob("a-tree-*.txt")):
            yield f"the worktree {name} has lost its work"
        if not any(f"<path>{found}</path>" in said for said in lead.user_texts):
            yield f"the lead was not told of the work in {name}"
