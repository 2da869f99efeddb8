"""Scripts of the agents of a crashing lead; the resumed session plays the same."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from agent_scripts import call_tool
from shoal.core.conversation.messages import extract_tool_result_text
from shoal.core.conversation.model_requests import ModelRequest
from shoal.models.scripted_model import ReplyLike
from team_scripts import (
    TeamScriptLine,
    approve_shutdown,
    find_speaker,
    find_tool_results,
    get_last_result,
    get_last_text,
    send_message,
    spawn_member,
)

SETTINGS = '{"shoal": {"plan_approver": "auto", "worktree_guard": "weak"}}'
CREATE_TEAM = call_tool("TeamCreate", team_name="crew")


def complete_interrupted_task(request: ModelRequest) -> ReplyLike:
    """Complete the interrupted task; end if there is none."""
    if "process ended" in get_last_text(request):
        return call_tool("TaskUpdate", taskId="1", status="completed")
    return "done" if find_tool_results(request.messages[-1:]) else "ready"


def report_and_complete(request: ModelRequest) -> ReplyLike:
    """Report each assigned task and complete it; repeat interrupted work."""
    told = re.findall(r"Task #(\d+) is yours", "\n".join(message.text for message in request.messages))
    last = request.messages[-1]
    if find_tool_results([last]) and "process ended" not in last.text:
        return "done" if "#" in extract_tool_result_text(find_tool_results([last])[-1]) else "go on"
    if not told:
        return "ready"
    report = f"task {told[-1]} by {find_speaker(request)}"
    return [
        send_message("team-lead", report, "a report"),
        call_tool("TaskUpdate", taskId=told[-1], status="completed"),
    ]


def describe_start(request: ModelRequest) -> str:
    return f"heard {len(request.messages)}: {request.messages[0].text}"


WORKERS = [f"w{n}" for n in range(5)]
TASKS = 10
SCRIPTS: Mapping[str, Mapping[str, Sequence[TeamScriptLine]]] = {
    "in a tool": {
        "lead": [
            CREATE_TEAM,
            call_tool("TaskCreate", subject="one", description="the only one"),
            spawn_member("bob"),
            spawn_member("ann"),
            "wait",
            get_last_text,
        ],
        "ann": [
            call_tool("TaskUpdate", taskId="1", status="in_progress"),
            call_tool("Die"),
            complete_interrupted_task,
            "all done",
        ],
        "bob": ["ready"],
    },
    "mail on its way": {
        "lead": [
            CREATE_TEAM,
            spawn_member("ann"),
            "wait",
            [send_message("ann", "the second word"), call_tool("Die")],
            get_last_text,
        ],
        "ann": ["ready", lambda r: f"heard {get_last_text(r)}"],
    },
    "workers": {
        "lead": [
            CREATE_TEAM,
            [call_tool("TaskCreate", f"t{n}", subject=f"task {n}", description="d") for n in range(TASKS)],
            [spawn_member(name) for name in WORKERS],
            "wait",
            "heard",
        ],
        **{name: [report_and_complete] for name in WORKERS},
    },
    "asked to end": {
        "lead": [
            CREATE_TEAM,
            spawn_member("ann"),
            "wait",
            send_message("ann", {"type": "shutdown_request"}),
            "asked",
            get_last_text,
        ],
        "ann": ["ready", call_tool("Die"), "I do not answer"],
    },
    "asked after the clock was set back": {
        "lead": [
            CREATE_TEAM,
            spawn_member("ann"),
            "wait",
            call_tool("SetClockBack"),
            send_message("ann", {"type": "shutdown_request"}),
            "asked",
            get_last_text,
        ],
        "ann": ["ready", call_tool("Die"), "I do not answer"],
    },
    "planned": {
        "lead": [CREATE_TEAM, spawn_member("eve", mode="plan"), "wait", get_last_text],
        "eve": [
            call_tool("ExitPlanMode", plan="# Write it"),
            call_tool("Die"),
            call_tool("Write", file_path="planned.txt", content="as planned"),
            get_last_result,
        ],
    },
    "apart": {
        "lead": [CREATE_TEAM, spawn_member("ann", isolation="worktree"), "wait", get_last_text],
        "ann": [call_tool("Die"), "went on"],
    },
    "in a shell": {
        "lead": [CREATE_TEAM, spawn_member("ann"), "wait", get_last_text],
        "ann": [call_tool("Bash", command="trap '' TERM; touch begun; sleep 1000 & sleep 1000"), "never"],
    },
    "of an old name": {
        "lead": [
            CREATE_TEAM,
            spawn_member("ann"),
            "wait",
            send_message("ann", {"type": "shutdown_request"}),
            "asked",
            [
                call_tool("Agent", "again", description="ann works", prompt="Anew.", name="ann"),
                call_tool("Die"),
            ],
            get_last_text,
        ],
        "ann": [lambda r: approve_shutdown(r) if "shut down" in get_last_text(r) else describe_start(r)],
    },
    "idle": {
        "lead": [
            CREATE_TEAM,
            [spawn_member("ann"), spawn_member("bob")],
            "wait",
            call_tool("Die"),
            send_message("ann", "again"),
            "sent",
            get_last_text,
        ],
        "ann": ["I know 42", lambda r: f"I said: {r.messages[1].text}"],
        "bob": ["ready"],
    },
}
