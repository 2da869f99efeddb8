"""Scripts of the agents of a crashing lead; the resumed session plays the same."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from cast import use
from shoal.core.messages import result_text
from shoal.core.requests import Request
from shoal.models.scripted import Sayable
from troupe import Line, approve_shutdown, last_result, last_words, member, results, speaker, tell

SETTINGS = '{"shoal": {"plan_approver": "auto", "worktree_guard": "weak"}}'
CREATE = use("TeamCreate", team_name="crew")


def completes(request: Request) -> Sayable:
    """Complete the interrupted task; end if there is none."""
    if "process ended" in last_words(request):
        return use("TaskUpdate", taskId="1", status="completed")
    return "done" if results(request.messages[-1:]) else "ready"


def works(request: Request) -> Sayable:
    """Report each assigned task and complete it; repeat interrupted work."""
    told = re.findall(r"Task #(\d+) is yours", "\n".join(message.text for message in request.messages))
    last = request.messages[-1]
    if results([last]) and "process ended" not in last.text:
        return "done" if "#" in result_text(results([last])[-1]) else "go on"
    if not told:
        return "ready"
    report = f"task {told[-1]} by {speaker(request)}"
    return [tell("team-lead", report, "a report"), use("TaskUpdate", taskId=told[-1], status="completed")]


def heard(request: Request) -> str:
    return f"heard {len(request.messages)}: {request.messages[0].text}"


WORKERS = [f"w{n}" for n in range(5)]
TASKS = 10
PARTS: Mapping[str, Mapping[str, Sequence[Line]]] = {
    "in a tool": {
        "lead": [
            CREATE,
            use("TaskCreate", subject="one", description="the only one"),
            member("bob"),
            member("ann"),
            "wait",
            last_words,
        ],
        "ann": [use("TaskUpdate", taskId="1", status="in_progress"), use("Die"), completes, "all done"],
        "bob": ["ready"],
    },
    "mail on its way": {
        "lead": [
            CREATE,
            member("ann"),
            "wait",
            [tell("ann", "the second word"), use("Die")],
            last_words,
        ],
        "ann": ["ready", lambda r: f"heard {last_words(r)}"],
    },
    "workers": {
        "lead": [
            CREATE,
            [use("TaskCreate", f"t{n}", subject=f"task {n}", description="d") for n in range(TASKS)],
            [member(name) for name in WORKERS],
            "wait",
            "heard",
        ],
        **{name: [works] for name in WORKERS},
    },
    "asked to end": {
        "lead": [
            CREATE,
            member("ann"),
            "wait",
            tell("ann", {"type": "shutdown_request"}),
            "asked",
            last_words,
        ],
        "ann": ["ready", use("Die"), "I do not answer"],
    },
    "asked after the clock was set back": {
        "lead": [
            CREATE,
            member("ann"),
            "wait",
            use("SetClockBack"),
            tell("ann", {"type": "shutdown_request"}),
            "asked",
            last_words,
        ],
        "ann": ["ready", use("Die"), "I do not answer"],
    },
    "planned": {
        "lead": [CREATE, member("eve", mode="plan"), "wait", last_words],
        "eve": [
            use("ExitPlanMode", plan="# Write it"),
            use("Die"),
            use("Write", file_path="planned.txt", content="as planned"),
            last_result,
        ],
    },
    "apart": {
        "lead": [CREATE, member("ann", isolation="worktree"), "wait", last_words],
        "ann": [use("Die"), "went on"],
    },
    "in a shell": {
        "lead": [CREATE, member("ann"), "wait", last_words],
        "ann": [use("Bash", command="trap '' TERM; touch begun; sleep 1000 & sleep 1000"), "never"],
    },
    "of an old name": {
        "lead": [
            CREATE,
            member("ann"),
            "wait",
            tell("ann", {"type": "shutdown_request"}),
            "asked",
            [use("Agent", "again", description="ann works", prompt="Anew.", name="ann"), use("Die")],
            last_words,
        ],
        "ann": [lambda r: approve_shutdown(r) if "shut down" in last_words(r) else heard(r)],
    },
    "idle": {
        "lead": [
            CREATE,
            [member("ann"), member("bob")],
            "wait",
            use("Die"),
            tell("ann", "again"),
            "sent",
            last_words,
        ],
        "ann": ["I know 42", lambda r: f"I said: {r.messages[1].text}"],
        "bob": ["ready"],
    },
}
