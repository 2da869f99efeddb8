"""What the agents of a dying lead say; whoever resumes it says the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cast import use
from shoal.core.requests import Request
from shoal.models.scripted import Sayable
from troupe import Line, last_words, member, results, tell

CREATE = use("TeamCreate", team_name="crew")


def completes(request: Request) -> Sayable:
    """Do whatever task it is told of; end where there is none."""
    if "process ended" in last_words(request):
        return use("TaskUpdate", taskId="1", status="completed")
    return "done" if results(request.messages[-1:]) else "ready"


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
