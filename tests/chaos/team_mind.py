"""Scripts a lead and five teammates that work off a board; each reply depends on the conversation alone.

So a killed and resumed agent continues as a model would: it checks what took effect, and does the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from shoal.core.messages import Message, Text, ToolResult, ToolUse, result_text
from shoal.core.requests import Request
from shoal.models.scripted import Sayable

TEAM = "crew"
WORKERS = ("ann", "bob", "cyd", "dan", "eve")
APART, PLANNER = "dan", "eve"
"""The member that works in a worktree, and the one whose plan is approved before it begins."""
TASKS = 20
BEGIN, GO_ON, FINISH = "Begin.", "Go on.", "Finish."
_NAME = re.compile(r"^- You are ([\w-]+), a member of the team", re.MULTILINE)
_LISTED = re.compile(r"^#(\d+) \w+(?: \([\w-]+\))?: (job \d+)", re.MULTILINE)
_MADE = re.compile(r"Task (\d+) is on the board: (job \d+)")
_TOLD = re.compile(r"Task #(\d+) is yours now")
_LIFE = re.compile(r"^Begin\. (\d+)$", re.MULTILINE)
_ENDED = re.compile(r"teammate_terminated: task (\w+)@crew")
_PLAN = re.compile(r"may only read until its plan is approved.*?\"request_id\": \"([^\"]+)\"", re.DOTALL)
_ASKED = re.compile(r"asks you to shut down.*?\"request_id\": \"([^\"]+)\"", re.DOTALL)


def blockers(job: int) -> tuple[int, ...]:
    """Return the jobs that block this one: two of the five before it."""
    return tuple(other for other in (job - 4, job - 5) if other > 0)


class Done(Struct, frozen=True):
    """A call and its result, with its position in the conversation."""

    at: int
    call: ToolUse
    text: str
    ok: bool


class Said:
    """A conversation from the view of its speaker."""

    def __init__(self, request: Request) -> None:
        self.messages: Sequence[Message] = request.messages
        self.done = list(_done(request.messages))
        self._calls = 0

    @property
    def spoken(self) -> int:
        return sum(message.role == "assistant" for message in self.messages)

    def heard(self, pattern: re.Pattern[str], since: int = 0) -> Iterator[tuple[int, str]]:
        for at, message in enumerate(self.messages):
            if message.role == "user" and at >= since:
                yield from ((at, found.group(1)) for found in pattern.finditer(_words(message)))

    def of(self, tool: str, since: int = 0) -> list[Done]:
        return [each for each in self.done if each.call.name == tool and each.at >= since]

    def did(self, tool: str, since: int = 0) -> bool:
        return any(each.ok for each in self.of(tool, since))

    def last(self, tool: str, since: int = 0) -> Done | None:
        return next(reversed([each for each in self.of(tool, since) if each.ok]), None)

    def use(self, tool: str, /, **given: Any) -> ToolUse:
        self._calls += 1
        return ToolUse(id=f"{tool}-{len(self.messages)}-{self._calls}", name=tool, input=given)

    def write(self, to: str, what: str) -> ToolUse:
        text = f"<{what} {len(self.messages)}.{self._calls}>"
        return self.use("SendMessage", to=to, message=text, summary="a word")


def _done(messages: Sequence[Message]) -> Iterator[Done]:
    calls = {call.id: (at, call) for at, message in enumerate(messages) for call in message.tool_uses}
    for message in messages:
        for block in message.content:
            if isinstance(block, ToolResult) and block.tool_use_id in calls:
                at, call = calls[block.tool_use_id]
                yield Done(at, call, result_text(block), not block.is_error)


def _words(message: Message) -> str:
    return "\n".join(block.text for block in message.content if isinstance(block, Text))


def speaker(request: Request) -> str:
    found = _NAME.search(request.system)
    return found.group(1) if found else "team-lead"


def mind(request: Request) -> Sayable:
    me, said = speaker(request), Said(request)
    if me == "team-lead":
        return _lead(said)
    return _shut_down(said) or _planned(me, said) or _worked(me, said) or _rest(me, said)


def _rest(me: str, said: Said) -> str:
    """Return a different text each time; a member that was started again has another number."""
    life = [number for _, number in said.heard(_LIFE)]
    return f"{me} rests {said.spoken} in life {life[-1] if life else 0}"


def _lead(said: Said) -> Sayable:
    finish = [at for at, m in enumerate(said.messages) if m.role == "user" and FINISH in _words(m)]
    if finish:
        return _finished(said, finish[0])
    return (
        _approved(said)
        or _founded(said)
        or _planned_work(said)
        or _spawned(said)
        or _told_all(said)
        or f"waiting {said.spoken}"
    )


def _told_all(said: Said) -> list[ToolUse]:
    if any(each.ok and each.call.input.get("to") == "*" for each in said.of("SendMessage")):
        return []
    return [said.write("*", "all of you, from the lead")]


def _approved(said: Said) -> list[ToolUse]:
    answered = {
        each.call.input["message"]["request_id"]
        for each in said.of("SendMessage")
        if isinstance(each.call.input.get("message"), dict)
    }
    return [
        said.use("SendMessage", to=PLANNER, message=_answer("plan_approval_response", request))
        for _, request in said.heard(_PLAN)
        if request not in answered
    ]


def _answer(kind: str, request: str) -> dict[str, Any]:
    return {"type": kind, "request_id": request, "approve": True}


def _founded(said: Said, since: int = 0) -> list[ToolUse]:
    led = any("You lead the team" in each.text for each in said.of("TeamCreate", since))
    return [] if led else [said.use("TeamCreate", team_name=TEAM)]


def _uncertain(said: Said, tool: str, look: str, since: int = 0) -> bool:
    """Return True if a call since the last listing may or may not have taken effect."""
    last = said.last(look, since)
    return last is None or any(not each.ok for each in said.of(tool, last.at))


def _planned_work(said: Said) -> list[ToolUse]:
    if _uncertain(said, "TaskCreate", "TaskList"):
        return [said.use("TaskList")]
    listed = said.last("TaskList")
    assert listed is not None
    jobs = {job: number for number, job in _LISTED.findall(listed.text)}
    for made in said.of("TaskCreate", listed.at):
        jobs |= {job: number for number, job in _MADE.findall(made.text)}
    wanted = [f"job {number}" for number in range(1, TASKS + 1)]
    if missing := [job for job in wanted if job not in jobs]:
        return [said.use("TaskCreate", subject=job, description="as always") for job in missing]
    linked = {each.call.input["taskId"] for each in said.of("TaskUpdate") if each.ok}
    return [
        said.use("TaskUpdate", taskId=jobs[job], addBlockedBy=[jobs[f"job {other}"] for other in waits_for])
        for number, job in enumerate(wanted, 1)
        if (waits_for := blockers(number)) and jobs[job] not in linked
    ]


def _spawned(said: Said) -> list[ToolUse]:
    listed = said.last("ListAgents")
    if _uncertain(said, "Agent", "ListAgents") or (listed and any(said.heard(_ENDED, listed.at))):
        return [said.use("ListAgents")]
    assert listed is not None
    there = set(re.findall(r"^([\w-]+): teammate", listed.text, re.MULTILINE))
    there |= {each.call.input["name"] for each in said.of("Agent", listed.at) if each.ok}
    return [_spawn(said, name) for name in WORKERS if name not in there]


def _spawn(said: Said, name: str) -> ToolUse:
    more: dict[str, Any] = {}
    if name == APART:
        more["isolation"] = "worktree"
    if name == PLANNER:
        more["mode"] = "plan"
    return said.use(
        "Agent", description=f"{name} works", prompt=f"{BEGIN} {len(said.messages)}", name=name, **more
    )


def _finished(said: Said, since: int) -> Sayable:
    """Ask all members to shut down, delete the team, and create another of the same name."""
    gone = [each for each in said.of("TeamDelete", since) if each.ok or "There is no team" in each.text]
    calls = _made_anew(said, gone[0].at) if gone else _taken_down(said, since)
    return calls or f"waiting {said.spoken}"


def _made_anew(said: Said, since: int) -> list[ToolUse]:
    if calls := _founded(said, since):
        return calls
    listed = said.last("ListAgents", since)
    if _uncertain(said, "Agent", "ListAgents", since) or (listed and any(said.heard(_ENDED, listed.at))):
        return [said.use("ListAgents")]
    there = listed is not None and ("ann: teammate" in listed.text or said.did("Agent", listed.at))
    return [] if there else [_spawn(said, "ann")]


def _taken_down(said: Said, since: int) -> list[ToolUse]:
    listed = said.last("ListAgents", since)
    if listed is None or _uncertain(said, "SendMessage", "ListAgents", since):
        return [said.use("ListAgents")]
    there = re.findall(r"^([\w-]+): teammate", listed.text, re.MULTILINE)
    if not there:
        return [said.use("TeamDelete")]
    asked = {each.call.input["to"] for each in said.of("SendMessage", since) if each.ok}
    if calls := [
        said.use("SendMessage", to=name, message={"type": "shutdown_request", "reason": "all is done"})
        for name in there
        if name not in asked
    ]:
        return calls
    heard_more = not isinstance(said.messages[-1].content[-1], ToolResult)
    return [said.use("ListAgents")] if heard_more else []


def _shut_down(said: Said) -> list[ToolUse]:
    asked = list(said.heard(_ASKED))
    if not asked:
        return []
    return [said.use("SendMessage", to="team-lead", message=_answer("shutdown_response", asked[-1][1]))]


def _planned(me: str, said: Said) -> list[ToolUse]:
    if me != PLANNER:
        return []
    if not said.did("ExitPlanMode"):
        return [said.use("ExitPlanMode", plan=f"# Work off the board {len(said.messages)}")]
    if said.did("Write"):
        return []
    # Under a new name each time: it is unknown whether an interrupted call has written.
    return [said.use("Write", file_path=f"{me}-{len(said.messages)}.txt", content="as planned\n")]


def _worked(me: str, said: Said) -> list[ToolUse]:
    for at, number in said.heard(_TOLD):
        if (calls := _steps(me, said, at, number)) is not None:
            return calls
    return []


def _steps(me: str, said: Said, since: int, number: str) -> list[ToolUse] | None:
    """Return the calls that are left to do for a task, or None if it is done."""
    ended = [each for each in said.of("TaskUpdate", since) if each.call.input.get("taskId") == number]
    if any(each.ok for each in ended):
        return None
    written = [each for each in said.of("SendMessage", since) if f"task {number} by" in str(each.call.input)]
    if not any(each.ok for each in written):
        peer = WORKERS[(WORKERS.index(me) + 1) % len(WORKERS)]
        # A member that has not joined yet cannot be reached; the lead can.
        to = "team-lead" if written else "*" if int(number) % 7 == 0 else peer
        return [said.write(to, f"task {number} by {me}")]
    if int(number) % 3 == 0 and not any(_about(each, number) for each in said.of("Bash", since)):
        return [
            said.use(
                "Bash", command=f"sleep 0.01; echo task {number} {me} {len(said.messages)} >> effects.txt"
            )
        ]
    if int(number) % 4 == 0 and not any(_about(each, number) for each in said.of("Write", since)):
        name = f"{me}-{len(said.messages)}.txt"
        return [said.use("Write", file_path=name, content=f"task {number}\n")]
    return [said.use("TaskUpdate", taskId=number, status="completed")]


def _about(done: Done, number: str) -> bool:
    return done.ok and re.search(rf"task {number}\b", str(done.call.input)) is not None
