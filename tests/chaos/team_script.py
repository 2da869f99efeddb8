"""Scripts a lead and five teammates that work off a board; each reply depends on the conversation alone.

So a killed and resumed agent continues as a model would: it checks what took effect, and does the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from shoal.core.conversation.messages import (
    Message,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    extract_tool_result_text,
)
from shoal.core.conversation.model_requests import ModelRequest
from shoal.models.scripted_model import ReplyLike

TEAM = "crew"
WORKERS = ("ann", "bob", "cyd", "dan", "eve")
WORKTREE_MEMBER, PLANNING_MEMBER = "dan", "eve"
"""The member that works in a worktree, and the one whose plan is approved before it begins."""
TASKS = 20
BEGIN, GO_ON, FINISH = "Begin.", "Go on.", "Finish."
_NAME = re.compile(r"^- You are ([\w-]+), a member of the team", re.MULTILINE)
_LISTED = re.compile(r"^#(\d+) \w+(?: \([\w-]+\))?: (job \d+)", re.MULTILINE)
_MADE = re.compile(r"Task (\d+) is on the board: (job \d+)")
_TOLD = re.compile(r"Task #(\d+) is yours now")
_LIFE = re.compile(r"^Begin\. (\d+)$", re.MULTILINE)
_ENDED = re.compile(r"teammate_terminated: task (\w+)@crew")
_PLAN = re.compile(r"may only read until you approve its plan.*?\"request_id\": \"([^\"]+)\"", re.DOTALL)
_ASKED = re.compile(r"asks you to shut down.*?\"request_id\": \"([^\"]+)\"", re.DOTALL)


def list_blockers(job: int) -> tuple[int, ...]:
    """Return the jobs that block this one: two of the five before it."""
    return tuple(other for other in (job - 4, job - 5) if other > 0)


class FinishedCall(Struct, frozen=True):
    """A call and its result, with its position in the conversation."""

    at: int
    call: ToolUseBlock
    text: str
    ok: bool


class ScriptConversation:
    """A conversation from the view of its speaker."""

    def __init__(self, request: ModelRequest) -> None:
        self.messages: Sequence[Message] = request.messages
        self.finished_calls = list(_find_finished_calls(request.messages))
        self._calls = 0

    @property
    def reply_count(self) -> int:
        return sum(message.role == "assistant" for message in self.messages)

    def find_in_messages(self, pattern: re.Pattern[str], since: int = 0) -> Iterator[tuple[int, str]]:
        for at, message in enumerate(self.messages):
            if message.role == "user" and at >= since:
                yield from ((at, found.group(1)) for found in pattern.finditer(_get_text(message)))

    def list_calls(self, tool: str, since: int = 0) -> list[FinishedCall]:
        return [each for each in self.finished_calls if each.call.name == tool and each.at >= since]

    def has_succeeded(self, tool: str, since: int = 0) -> bool:
        return any(each.ok for each in self.list_calls(tool, since))

    def get_last_call(self, tool: str, since: int = 0) -> FinishedCall | None:
        return next(reversed([each for each in self.list_calls(tool, since) if each.ok]), None)

    def make_tool_use(self, tool: str, /, **arguments: Any) -> ToolUseBlock:
        self._calls += 1
        return ToolUseBlock(id=f"{tool}-{len(self.messages)}-{self._calls}", name=tool, input=arguments)

    def send_message(self, to: str, label: str) -> ToolUseBlock:
        text = f"<{label} {len(self.messages)}.{self._calls}>"
        return self.make_tool_use("SendMessage", to=to, message=text, summary="a word")


def _find_finished_calls(messages: Sequence[Message]) -> Iterator[FinishedCall]:
    calls = {call.id: (at, call) for at, message in enumerate(messages) for call in message.tool_uses}
    for message in messages:
        for block in message.content:
            if isinstance(block, ToolResultBlock) and block.tool_use_id in calls:
                at, call = calls[block.tool_use_id]
                yield FinishedCall(at, call, extract_tool_result_text(block), not block.is_error)


def _get_text(message: Message) -> str:
    return "\n".join(block.text for block in message.content if isinstance(block, TextBlock))


def find_speaker(request: ModelRequest) -> str:
    found = _NAME.search(request.system)
    return found.group(1) if found else "team-lead"


def choose_reply(request: ModelRequest) -> ReplyLike:
    me, said = find_speaker(request), ScriptConversation(request)
    if me == "team-lead":
        return _reply_as_lead(said)
    return (
        _approve_shutdown(said)
        or _submit_plan(me, said)
        or _work_on_tasks(me, said)
        or _report_idle(me, said)
    )


def _report_idle(me: str, conversation: ScriptConversation) -> str:
    """Return a different text each time; a member that was started again has another number."""
    life = [number for _, number in conversation.find_in_messages(_LIFE)]
    return f"{me} rests {conversation.reply_count} in life {life[-1] if life else 0}"


def _reply_as_lead(conversation: ScriptConversation) -> ReplyLike:
    finish = [at for at, m in enumerate(conversation.messages) if m.role == "user" and FINISH in _get_text(m)]
    if finish:
        return _finish_team(conversation, finish[0])
    return (
        _approve_plans(conversation)
        or _create_team(conversation)
        or _create_tasks(conversation)
        or _spawn_missing(conversation)
        or _message_all(conversation)
        or f"waiting {conversation.reply_count}"
    )


def _message_all(conversation: ScriptConversation) -> list[ToolUseBlock]:
    if any(each.ok and each.call.input.get("to") == "*" for each in conversation.list_calls("SendMessage")):
        return []
    return [conversation.send_message("*", "all of you, from the lead")]


def _approve_plans(conversation: ScriptConversation) -> list[ToolUseBlock]:
    answered = {
        each.call.input["message"]["request_id"]
        for each in conversation.list_calls("SendMessage")
        if isinstance(each.call.input.get("message"), dict)
    }
    return [
        conversation.make_tool_use(
            "SendMessage", to=PLANNING_MEMBER, message=_make_answer("plan_approval_response", request)
        )
        for _, request in conversation.find_in_messages(_PLAN)
        if request not in answered
    ]


def _make_answer(kind: str, request: str) -> dict[str, Any]:
    return {"type": kind, "request_id": request, "approve": True}


def _create_team(conversation: ScriptConversation, since: int = 0) -> list[ToolUseBlock]:
    led = any(" lead the team" in each.text for each in conversation.list_calls("TeamCreate", since))
    return [] if led else [conversation.make_tool_use("TeamCreate", team_name=TEAM)]


def _is_uncertain(conversation: ScriptConversation, tool: str, list_tool: str, since: int = 0) -> bool:
    """Return True if a call since the last listing may or may not have taken effect."""
    last = conversation.get_last_call(list_tool, since)
    return last is None or any(not each.ok for each in conversation.list_calls(tool, last.at))


def _create_tasks(conversation: ScriptConversation) -> list[ToolUseBlock]:
    if _is_uncertain(conversation, "TaskCreate", "TaskList"):
        return [conversation.make_tool_use("TaskList")]
    listed = conversation.get_last_call("TaskList")
    assert listed is not None
    jobs = {job: number for number, job in _LISTED.findall(listed.text)}
    for made in conversation.list_calls("TaskCreate", listed.at):
        jobs |= {job: number for number, job in _MADE.findall(made.text)}
    wanted = [f"job {number}" for number in range(1, TASKS + 1)]
    if missing := [job for job in wanted if job not in jobs]:
        return [
            conversation.make_tool_use("TaskCreate", subject=job, description="as always") for job in missing
        ]
    linked = {each.call.input["taskId"] for each in conversation.list_calls("TaskUpdate") if each.ok}
    return [
        conversation.make_tool_use(
            "TaskUpdate", taskId=jobs[job], addBlockedBy=[jobs[f"job {other}"] for other in waits_for]
        )
        for number, job in enumerate(wanted, 1)
        if (waits_for := list_blockers(number)) and jobs[job] not in linked
    ]


def _spawn_missing(conversation: ScriptConversation) -> list[ToolUseBlock]:
    listed = conversation.get_last_call("ListAgents")
    if _is_uncertain(conversation, "Agent", "ListAgents") or (
        listed and any(conversation.find_in_messages(_ENDED, listed.at))
    ):
        return [conversation.make_tool_use("ListAgents")]
    assert listed is not None
    there = set(re.findall(r"^([\w-]+): teammate", listed.text, re.MULTILINE))
    there |= {each.call.input["name"] for each in conversation.list_calls("Agent", listed.at) if each.ok}
    return [_spawn_member(conversation, name) for name in WORKERS if name not in there]


def _spawn_member(conversation: ScriptConversation, name: str) -> ToolUseBlock:
    more: dict[str, Any] = {}
    if name == WORKTREE_MEMBER:
        more["isolation"] = "worktree"
    if name == PLANNING_MEMBER:
        more["mode"] = "plan"
    return conversation.make_tool_use(
        "Agent",
        description=f"{name} works",
        prompt=f"{BEGIN} {len(conversation.messages)}",
        name=name,
        **more,
    )


def _finish_team(conversation: ScriptConversation, since: int) -> ReplyLike:
    """Ask all members to shut down, delete the team, and create another of the same name."""
    gone = [
        each
        for each in conversation.list_calls("TeamDelete", since)
        if each.ok or "There is no team" in each.text
    ]
    calls = _recreate_team(conversation, gone[0].at) if gone else _shut_down_members(conversation, since)
    return calls or f"waiting {conversation.reply_count}"


def _recreate_team(conversation: ScriptConversation, since: int) -> list[ToolUseBlock]:
    if calls := _create_team(conversation, since):
        return calls
    listed = conversation.get_last_call("ListAgents", since)
    if _is_uncertain(conversation, "Agent", "ListAgents", since) or (
        listed and any(conversation.find_in_messages(_ENDED, listed.at))
    ):
        return [conversation.make_tool_use("ListAgents")]
    there = listed is not None and (
        "ann: teammate" in listed.text or conversation.has_succeeded("Agent", listed.at)
    )
    return [] if there else [_spawn_member(conversation, "ann")]


def _shut_down_members(conversation: ScriptConversation, since: int) -> list[ToolUseBlock]:
    listed = conversation.get_last_call("ListAgents", since)
    if listed is None or _is_uncertain(conversation, "SendMessage", "ListAgents", since):
        return [conversation.make_tool_use("ListAgents")]
    there = re.findall(r"^([\w-]+): teammate", listed.text, re.MULTILINE)
    if not there:
        return [conversation.make_tool_use("TeamDelete")]
    asked = {each.call.input["to"] for each in conversation.list_calls("SendMessage", since) if each.ok}
    if calls := [
        conversation.make_tool_use(
            "SendMessage", to=name, message={"type": "shutdown_request", "reason": "all is done"}
        )
        for name in there
        if name not in asked
    ]:
        return calls
    heard_more = not isinstance(conversation.messages[-1].content[-1], ToolResultBlock)
    return [conversation.make_tool_use("ListAgents")] if heard_more else []


def _approve_shutdown(conversation: ScriptConversation) -> list[ToolUseBlock]:
    asked = list(conversation.find_in_messages(_ASKED))
    if not asked:
        return []
    return [
        conversation.make_tool_use(
            "SendMessage", to="team-lead", message=_make_answer("shutdown_response", asked[-1][1])
        )
    ]


def _submit_plan(me: str, conversation: ScriptConversation) -> list[ToolUseBlock]:
    if me != PLANNING_MEMBER:
        return []
    if not conversation.has_succeeded("ExitPlanMode"):
        return [
            conversation.make_tool_use(
                "ExitPlanMode", plan=f"# Work off the board {len(conversation.messages)}"
            )
        ]
    if conversation.has_succeeded("Write"):
        return []
    # Under a new name each time: it is unknown whether an interrupted call has written.
    return [
        conversation.make_tool_use(
            "Write", file_path=f"{me}-{len(conversation.messages)}.txt", content="as planned\n"
        )
    ]


def _work_on_tasks(me: str, conversation: ScriptConversation) -> list[ToolUseBlock]:
    for at, number in conversation.find_in_messages(_TOLD):
        if (calls := _next_task_calls(me, conversation, at, number)) is not None:
            return calls
    return []


def _next_task_calls(
    me: str, conversation: ScriptConversation, since: int, number: str
) -> list[ToolUseBlock] | None:
    """Return the calls that are left to do for a task, or None if it is done."""
    ended = [
        each
        for each in conversation.list_calls("TaskUpdate", since)
        if each.call.input.get("taskId") == number
    ]
    # A task of a killed member is released, and may be completed by another one meanwhile.
    if any(each.ok or "was already completed by" in each.text for each in ended):
        return None
    written = [
        each
        for each in conversation.list_calls("SendMessage", since)
        if f"task {number} by" in str(each.call.input)
    ]
    if not any(each.ok for each in written):
        peer = WORKERS[(WORKERS.index(me) + 1) % len(WORKERS)]
        # A member that has not joined yet cannot be reached; the lead can.
        to = "team-lead" if written else "*" if int(number) % 7 == 0 else peer
        return [conversation.send_message(to, f"task {number} by {me}")]
    if int(number) % 3 == 0 and not any(
        _is_about_task(each, number) for each in conversation.list_calls("Bash", since)
    ):
        return [
            conversation.make_tool_use(
                "Bash",
                command=f"sleep 0.01; echo task {number} {me} {len(conversation.messages)} >> effects.txt",
            )
        ]
    if int(number) % 4 == 0 and not any(
        _is_about_task(each, number) for each in conversation.list_calls("Write", since)
    ):
        name = f"{me}-{len(conversation.messages)}.txt"
        return [conversation.make_tool_use("Write", file_path=name, content=f"task {number}\n")]
    return [conversation.make_tool_use("TaskUpdate", taskId=number, status="completed")]


def _is_about_task(finished: FinishedCall, number: str) -> bool:
    return finished.ok and re.search(rf"task {number}\b", str(finished.call.input)) is not None
