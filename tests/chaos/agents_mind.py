"""Scripts a lead that gives jobs to sub-agents, and these agents; replies depend on the conversation alone.

There are two waves of jobs: some run in the foreground, some in the background, some in a worktree, and one
is passed on to a nested agent.
"""

from __future__ import annotations

import re
from typing import Any

from tests.chaos.team_mind import Done, Said

from shoal.core.messages import Message, ToolResult, ToolUse
from shoal.core.requests import Request
from shoal.models.scripted import Sayable

WAVES = (("a-plain", "a-tree", "a-waited", "a-handing"), ("b-plain", "b-clean-tree", "b-waited", "b-handing"))
JOBS = tuple(job for wave in WAVES for job in wave)
HANDED = "-handed-on"
"""Suffix of the job of a nested agent."""
NESTED = tuple(f"{job}{HANDED}" for job in JOBS if job.endswith("handing"))
BEGIN, GO_ON = "Begin.", "Go on."
_CHILD = re.compile(r"Do the job ([\w-]+)\.")
_LISTED = re.compile(r"^(\w+): [\w-]+, (\w+): job ([\w-]+) \[", re.MULTILINE)
_BROKEN_OFF = re.compile(
    r"<task-notification>(?:(?!</task-notification>).)*<status>(?:killed|failed)</status>.*?</task-notification>"
    r"|The agent (?:was stopped|failed): .*?\nagentId: ",
    re.DOTALL,
)
_OPENING = "Here begins the report of {}:"


def report(job: str) -> str:
    """Make a report that is too long to be shown in full."""
    return "\n".join(
        [_OPENING.format(job), *(f"{job} line {n:04d}" for n in range(400)), f"The end of {job}."]
    )


def opening(job: str) -> str:
    return _OPENING.format(job)


def in_tree(job: str) -> bool:
    return job.endswith("tree")


def mind(request: Request) -> Sayable:
    said = Said(request)
    found = _CHILD.search(_all_words(request.messages[0]))
    return _lead(said) if found is None else _child(said, found.group(1))


def _all_words(message: Message) -> str:
    return "\n".join(
        str(getattr(block, "text", None) or getattr(block, "content", "")) for block in message.content
    )


def _heard(said: Said) -> str:
    return reported("\n".join(_all_words(message) for message in said.messages if message.role == "user"))


def reported(heard: str) -> str:
    """Remove the last texts of agents that did not finish."""
    return _BROKEN_OFF.sub("", heard)


def _lead(said: Said) -> Sayable:
    heard = _heard(said)
    for wave in WAVES:
        left = [job for job in wave if opening(job) not in heard]
        if left:
            return _handed_out(said, left) or f"waiting {said.spoken}"
    return f"all reports are here {said.spoken}"


def _handed_out(said: Said, left: list[str]) -> list[ToolUse]:
    """Start jobs without an agent and resume interrupted ones, after listing the agents."""
    listed = said.last("ListAgents")
    if listed is None or not isinstance(said.messages[-1].content[-1], ToolResult) or _later(said, listed):
        return [said.use("ListAgents")]
    # Its process ended before it had begun: there is nothing to resume.
    unborn = {each.call.input["to"] for each in said.of("SendMessage") if "no transcript of" in each.text}
    there = {job: (agent, state) for agent, state, job in _LISTED.findall(listed.text) if agent not in unborn}
    calls = []
    for job in left:
        agent, state = there.get(job, ("", ""))
        if not agent:
            calls.append(_hand(said, job))
        elif state in ("killed", "failed"):
            calls.append(said.use("SendMessage", to=agent, message="Go on.", summary="it is not done yet"))
    return calls


def _later(said: Said, listed: Done) -> bool:
    return any(each.at > listed.at for each in said.done)


def _hand(said: Said, job: str) -> ToolUse:
    more: dict[str, Any] = {"isolation": "worktree"} if in_tree(job) else {}
    waited = "waited" in job or HANDED in job
    return said.use(
        "Agent", description=f"job {job}", prompt=f"Do the job {job}.", run_in_background=not waited, **more
    )


def _child(said: Said, job: str) -> Sayable:
    if not said.did("Bash"):
        return [said.use("Bash", command=_command(said, job))]
    if "clean" not in job and not said.did("Write"):
        return [said.use("Write", file_path=f"{job}-{len(said.messages)}.txt", content=f"{job}\n")]
    if job.endswith("handing") and opening(job + HANDED) not in _heard(said):
        return [_hand(said, job + HANDED)]
    return report(job)


def _command(said: Said, job: str) -> str:
    """Build a command whose effect can be counted: each attempt has its own line."""
    token = f"{job} {len(said.messages)}"
    if "clean" in job:
        return f"sleep 0.05; echo {token}"
    return f"sleep 0.05; echo {token} >> effects.txt"
