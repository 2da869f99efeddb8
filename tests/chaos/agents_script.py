"""Scripts a lead that gives jobs to sub-agents, and these agents; replies depend on the conversation alone.

There are two waves of jobs: some run in the foreground, some in the background, some in a worktree, and one
is passed on to a nested agent.
"""

from __future__ import annotations

import re
from typing import Any

from tests.chaos.team_script import FinishedCall, ScriptConversation

from shoal.core.conversation.messages import Message, ToolResultBlock, ToolUseBlock
from shoal.core.conversation.model_requests import ModelRequest
from shoal.models.scripted_model import ReplyLike

JOB_WAVES = (
    ("a-plain", "a-tree", "a-waited", "a-handing"),
    ("b-plain", "b-clean-tree", "b-waited", "b-handing"),
)
JOBS = tuple(job for wave in JOB_WAVES for job in wave)
NESTED_SUFFIX = "-handed-on"
"""Suffix of the job of a nested agent."""
NESTED_JOBS = tuple(f"{job}{NESTED_SUFFIX}" for job in JOBS if job.endswith("handing"))
BEGIN, GO_ON = "Begin.", "Go on."
_CHILD = re.compile(r"Do the job ([\w-]+)\.")
_LISTED = re.compile(r"^(\w+): [\w-]+, (\w+): job ([\w-]+) \[", re.MULTILINE)
_BROKEN_OFF = re.compile(
    r"<task-notification>(?:(?!</task-notification>).)*<status>(?:killed|failed)</status>.*?</task-notification>"
    r"|The agent (?:was stopped|failed): .*?\nagentId: ",
    re.DOTALL,
)
_OPENING = "Here begins the report of {}:"


def make_report(job: str) -> str:
    """Make a report that is too long to be shown in full."""
    return "\n".join(
        [_OPENING.format(job), *(f"{job} line {n:04d}" for n in range(400)), f"The end of {job}."]
    )


def get_report_opening(job: str) -> str:
    return _OPENING.format(job)


def runs_in_worktree(job: str) -> bool:
    return job.endswith("tree")


def choose_reply(request: ModelRequest) -> ReplyLike:
    said = ScriptConversation(request)
    found = _CHILD.search(_join_text(request.messages[0]))
    return _reply_as_lead(said) if found is None else _reply_as_child(said, found.group(1))


def _join_text(message: Message) -> str:
    return "\n".join(
        str(getattr(block, "text", None) or getattr(block, "content", "")) for block in message.content
    )


def _join_reports(said: ScriptConversation) -> str:
    return remove_interrupted_reports(
        "\n".join(_join_text(message) for message in said.messages if message.role == "user")
    )


def remove_interrupted_reports(heard: str) -> str:
    """Remove the last texts of agents that did not finish."""
    return _BROKEN_OFF.sub("", heard)


def _reply_as_lead(said: ScriptConversation) -> ReplyLike:
    heard = _join_reports(said)
    for wave in JOB_WAVES:
        left = [job for job in wave if get_report_opening(job) not in heard]
        if left:
            return _assign_jobs(said, left) or f"waiting {said.reply_count}"
    return f"all reports are here {said.reply_count}"


def _assign_jobs(said: ScriptConversation, left: list[str]) -> list[ToolUseBlock]:
    """Start jobs without an agent and resume interrupted ones, after listing the agents."""
    listed = said.get_last_call("ListAgents")
    if (
        listed is None
        or not isinstance(said.messages[-1].content[-1], ToolResultBlock)
        or _has_later_calls(said, listed)
    ):
        return [said.make_tool_use("ListAgents")]
    # Its process ended before it had begun: there is nothing to resume.
    unborn = {
        each.call.input["to"] for each in said.list_calls("SendMessage") if "no transcript to" in each.text
    }
    there = {job: (agent, state) for agent, state, job in _LISTED.findall(listed.text) if agent not in unborn}
    calls = []
    for job in left:
        agent, state = there.get(job, ("", ""))
        if not agent:
            calls.append(_assign_job(said, job))
        elif state in ("killed", "failed"):
            calls.append(
                said.make_tool_use("SendMessage", to=agent, message="Go on.", summary="it is not done yet")
            )
    return calls


def _has_later_calls(said: ScriptConversation, listed: FinishedCall) -> bool:
    return any(each.at > listed.at for each in said.finished_calls)


def _assign_job(said: ScriptConversation, job: str) -> ToolUseBlock:
    more: dict[str, Any] = {"isolation": "worktree"} if runs_in_worktree(job) else {}
    waited = "waited" in job or NESTED_SUFFIX in job
    return said.make_tool_use(
        "Agent", description=f"job {job}", prompt=f"Do the job {job}.", run_in_background=not waited, **more
    )


def _reply_as_child(said: ScriptConversation, job: str) -> ReplyLike:
    if not said.has_succeeded("Bash"):
        return [said.make_tool_use("Bash", command=_build_command(said, job))]
    if "clean" not in job and not said.has_succeeded("Write"):
        return [said.make_tool_use("Write", file_path=f"{job}-{len(said.messages)}.txt", content=f"{job}\n")]
    if job.endswith("handing") and get_report_opening(job + NESTED_SUFFIX) not in _join_reports(said):
        return [_assign_job(said, job + NESTED_SUFFIX)]
    return make_report(job)


def _build_command(said: ScriptConversation, job: str) -> str:
    """Build a command whose effect can be counted: each attempt has its own line."""
    token = f"{job} {len(said.messages)}"
    if "clean" in job:
        return f"sleep 0.05; echo {token}"
    return f"sleep 0.05; echo {token} >> effects.txt"
