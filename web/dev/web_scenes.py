"""Fake runs for the web view: a small team at work, and a crowd."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from shoal.app.picture.picture import Picture
from shoal.app.picture.rows import Frame
from shoal.core.agents import Completion
from shoal.core.events import (
    AgentEnded,
    AgentStarted,
    Answered,
    Asked,
    BudgetWarned,
    Event,
    MailPosted,
    MailTaken,
    MemberRested,
    MemberWoken,
    RequestSettled,
    SessionEnded,
    SessionStarted,
    TaskChanged,
    ToolFinished,
    ToolStarted,
    TurnStarted,
)
from shoal.core.ids import LEAD, AgentId, RequestId, SessionId
from shoal.core.permissions import AddRules, RuleValue
from shoal.core.questions import Allowed, ApprovePlan, Choice, Choose, MayRun, Option
from shoal.core.usage import Usage
from shoal.wire.notices import message_from

BEGAN = 1_780_000_000_000
COLORS = ("blue", "green", "yellow", "purple", "orange", "pink", "cyan", "red")
MODELS = ("harbour-large", "harbour-small")
Blocks = list[dict[str, Any]]


class Scene:
    """The events of a run with their times, the run view they build, and the transcripts of its agents."""

    def __init__(self, session: str, *, began: int = BEGAN) -> None:
        self.session = session
        self.at = began
        self.live = True
        self.picture = Picture()
        self.events: list[tuple[int, Event]] = []
        self.transcripts: dict[str, list[dict[str, Any]]] = {}
        self._numbers = count(1)

    def tell(self, *events: Event, after: int = 1_000) -> None:
        for event in events:
            self.at += after
            self.events.append((self.at, event))
            self.picture.hear(event, self.at)

    def say(self, agent: str, role: str, by: str, *blocks: dict[str, Any]) -> None:
        entries = self.transcripts.setdefault(agent, [])
        entries.append({"n": len(entries), "at": self.at, "role": role, "by": by, "blocks": list(blocks)})

    def replay(self, most: int = 400) -> list[Frame]:
        picture, told = Picture(), 0
        size = -(-len(self.events) // most)
        frames = []
        for number, (at, event) in enumerate(self.events, 1):
            picture.hear(event, at)
            if number % size == 0 or number == len(self.events):
                frames.append(picture.since(told))
                told = picture.offset
        return frames

    # Shortcuts for events

    def begin(self, prompt: str, **budget: Any) -> None:
        self.tell(
            SessionStarted(
                agent=LEAD,
                session=SessionId(self.session),
                cwd="/home/ada/projects/harbour",
                model=MODELS[0],
                mode="default",
                tools=(),
                version="0.1.0",
                **budget,
            ),
            TurnStarted(agent=LEAD, turn=1, prompt=prompt),
        )

    def join(self, name: str, kind: str, color: str, team: str, *, work: str = "") -> AgentId:
        agent = AgentId(f"a-{name}")
        self.tell(
            AgentStarted(
                agent=agent,
                kind=kind,
                name=name,
                description=work,
                parent=LEAD,
                call=f"call-{name}",
                depth=1,
                model=MODELS[1],
                mode="default",
                background=True,
                cwd="/home/ada/projects/harbour",
                color=color,
                team=team,
            ),
            MemberWoken(agent=agent),
            after=120,
        )
        return agent

    def task(self, board: str, number: int, subject: str, status: str = "pending", **more: Any) -> None:
        self.tell(
            TaskChanged(agent=LEAD, board=board, task=str(number), subject=subject, status=status, **more),
            after=60,
        )

    def mail(self, team: str, sender: str, to: str, text: str, *, taken: bool = True, **more: Any) -> None:
        facts: dict[str, Any] = {"agent": LEAD, "team": team, "mail": f"m{next(self._numbers):05d}"}
        facts |= {"sender": sender, "to": to, "kind": more.pop("kind", "message"), "preview": text}
        self.tell(MailPosted(**facts, summary=text[:40], **more), after=200)
        if taken:
            self.tell(MailTaken(**facts, summary=text[:40]), after=300)

    def spend(self, agent: str, model: str, tokens: int, usd: float | None) -> None:
        usage = Usage(
            input_tokens=tokens // 5,
            output_tokens=tokens // 10,
            cache_read_input_tokens=tokens * 6 // 10,
            cache_creation_input_tokens=tokens // 10,
        )
        request = RequestId(f"r{next(self._numbers)}")
        self.tell(
            RequestSettled(
                agent=AgentId(agent), request=request, model=model, usage=usage, cost_usd=usd, duration_ms=900
            ),
            after=400,
        )

    def use(self, agent: str, tool: str, preview: str, *, done: bool = True) -> None:
        call = f"c{next(self._numbers)}"
        self.tell(ToolStarted(agent=AgentId(agent), call=call, tool=tool, preview=preview), after=150)
        if done:
            self.tell(
                ToolFinished(
                    agent=AgentId(agent),
                    call=call,
                    tool=tool,
                    is_error=False,
                    size=80,
                    duration_ms=90,
                    preview="ok",
                )
            )


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


ANSWER = """Here is how the **tide tables** are read now.

## What changed

- `tides.py` reads a station once and keeps it
- the *parser* takes lines without a height:
  1. it skips them
  2. it says so in the log
- nothing else calls [the old reader](https://example.org/reader)

| station | lines | skipped |
| --- | ---: | ---: |
| Dover | 1,440 | 0 |
| Cuxhaven | 1,438 | 2 |

```python
def read(path: Path) -> Table:
    return Table(line for line in path.open() if line.strip())
```

> Two lines of Cuxhaven have no height.

Next: run `pytest -q tests/test_tides.py` and <b>look</b> at the log."""

DIFF = """--- tides.py
+++ tides.py
@@ -12,7 +12,9 @@
 from pathlib import Path

-def read(path):
-    table = open(path).read()
+def read(path: Path) -> Table:
+    lines = path.read_text().splitlines()
+    table = Table(line for line in lines if line.strip())
     return table
"""

PLAN_BEFORE = """# Plan

1. Read the tables once.
2. Write the cache to disk.
3. Remove the old reader.
"""
PLAN = """# Plan

1. Read the tables **once**, when a station is first asked for.
2. Keep them in memory; nothing is written to disk.
3. Remove the old reader.

## Not touched

- `ports.py`
"""


def harbour(*, ended: bool = False, began: int = BEGAN) -> Scene:
    """Build a run with a lead and six members at work on a board, with three open questions."""
    scene = Scene("9d21e7b0-finished" if ended else "3f6c0a52-harbour", began=began)
    scene.begin(
        "Make the tide tables load once, and have the port list survive a restart.",
        budget_usd=4.0,
    )
    names = ("parser", "cache", "ports", "tests", "docs", "review")
    kinds = ("builder", "builder", "builder", "tester", "writer", "reviewer")
    subjects = (
        "Read the tide tables once",
        "Keep them by station",
        "Store the list of ports",
        "Test reading and storing",
        "Describe both in the guide",
        "Review the whole",
    )
    for name, kind, color, subject in zip(names, kinds, COLORS, subjects, strict=False):
        scene.join(name, kind, color, "harbour", work=subject)
    blocked: dict[int, tuple[str, ...]] = {2: ("1",), 4: ("1", "3"), 5: ("2",), 6: ("4", "5")}
    for number, (name, subject) in enumerate(zip(names, subjects, strict=True), 1):
        scene.task("harbour", number, subject, owner=name, blocked_by=blocked.get(number, ()))
    scene.task("harbour", 7, "Say it in the changelog")
    scene.task("harbour", 1, subjects[0], "in_progress", owner="parser")
    scene.task("harbour", 3, subjects[2], "in_progress", owner="ports")
    for turn in range(8):
        for name in ("lead", *names):
            agent = LEAD if name == "lead" else f"a-{name}"
            if turn % 2 == 0 or name in ("parser", "ports", "lead"):
                scene.use(agent, ("Read", "Grep", "Edit", "Bash")[turn % 4], f"tides/{name}.py")
                tokens = 9_000 + 700 * turn + 400 * len(name)
                scene.spend(agent, MODELS[name in names], tokens, tokens * 0.000006)
        sender, to = names[turn % 6], names[(turn + 2) % 6]
        scene.mail("harbour", sender, to, f"The reader gives a Table now, see step {turn + 1}.")
        scene.mail("harbour", "team-lead", sender, "Good. Go on with your task.", taken=turn != 7)
    _speak(scene)
    if ended:
        _end(scene, names)
        return scene
    _ask(scene)
    scene.use("a-parser", "Bash", "pytest -q tests/test_tides.py", done=False)
    scene.use("a-ports", "Edit", "src/harbour/ports.py", done=False)
    for name in ("cache", "docs"):
        scene.tell(MemberRested(agent=AgentId(f"a-{name}"), reason="available"))
    scene.tell(BudgetWarned(agent=LEAD, limit="usd", percent=75, spent=3.0, of=4.0))
    return scene


def _ask(scene: Scene) -> None:
    command = (
        "rsync --archive --delete --exclude=.git --exclude=node_modules build/site/ "
        "deploy@harbour.example:/srv/www/harbour && ssh deploy@harbour.example 'systemctl reload caddy'"
    )
    scene.tell(
        Asked(
            agent=AgentId("a-tests"),
            question=MayRun(
                id="q-1",
                agent=AgentId("a-tests"),
                tool_use_id="t1",
                tool="Bash",
                input={"command": command, "description": "Bring the site to the server", "timeout": 60_000},
                reason="No rule allows this command.",
                rule="Bash(rsync:*)",
                suggestions=(
                    AddRules(
                        rules=(RuleValue(tool_name="Bash", rule_content="rsync:*"),),
                        destination="localSettings",
                    ),
                ),
            ),
        ),
        Asked(
            agent=AgentId("a-review"),
            question=Choose(
                id="q-2",
                agent=AgentId("a-review"),
                choices=(
                    Choice(
                        question="Which store should the ports go to?",
                        header="Store",
                        options=(
                            Option(label="SQLite", description="One file, safe with several writers."),
                            Option(label="JSON", description="Readable, rewritten whole at each change."),
                        ),
                    ),
                    Choice(
                        question="Which checks should run before a merge?",
                        header="Checks",
                        options=(Option(label="Tests"), Option(label="Types"), Option(label="Format")),
                        multi_select=True,
                    ),
                ),
            ),
        ),
        Asked(
            agent=AgentId("a-cache"),
            question=ApprovePlan(
                id="q-3",
                agent=AgentId("a-cache"),
                plan=PLAN,
                path="plans/cache.md",
                digest="0" * 64,
                wishes=("Bash(pytest:*)",),
            ),
        ),
    )


def _speak(scene: Scene) -> None:
    agent = "a-parser"
    letter = message_from("team-lead", "Read the tide tables once. Tell `ports`.", summary="Your task")
    scene.say(agent, "user", "agent", text(letter))
    for step in range(12):
        call = f"call-{step}"
        scene.at += 2_000
        use: dict[str, Any] = {"type": "tool_use", "id": call}
        if step % 3 == 2:
            edit = {"file_path": "src/harbour/tides.py", "old_string": "…", "new_string": "…"}
            use |= {"name": "Edit", "input": edit, "diff": DIFF}
        elif step % 3 == 1:
            use |= {"name": "Bash", "input": {"command": "pytest -q tests/test_tides.py"}}
        else:
            use |= {"name": "Read", "input": {"file_path": f"src/harbour/station_{step}.py"}}
        thought = {"type": "thinking", "text": f"Step {step}: the table is read twice, once for each caller."}
        scene.say(agent, "assistant", "model", thought, text(f"I look at station {step}."), use)
        scene.at += 1_000
        result = "\n".join(f"{line:>5}  station {step} line {line}" for line in range(1, 8 + step * 3))
        scene.say(
            agent,
            "user",
            "tool",
            {"type": "tool_result", "tool_use_id": call, "is_error": step == 4, "text": result}
            | ({"cut": 48_000} if step == 9 else {}),
        )
    scene.say(agent, "assistant", "model", text(ANSWER))
    scene.say("lead", "user", "person", text("Make the tide tables load once."))
    scene.say("lead", "assistant", "model", text("I start a team of six.\n\n" + ANSWER))


def _end(scene: Scene, names: tuple[str, ...]) -> None:
    asked = MayRun(
        id="q-9",
        agent=AgentId("a-tests"),
        tool_use_id="t9",
        tool="Bash",
        input={"command": "make test"},
        reason="No rule allows this command.",
    )
    scene.tell(
        Asked(agent=AgentId("a-tests"), question=asked),
        Answered(agent=AgentId("a-tests"), question="q-9", answer=Allowed(remember="session")),
    )
    for number, name in enumerate(names, 1):
        row = scene.picture.tasks.get("harbour", str(number))
        assert row is not None
        scene.task("harbour", number, row.subject, "completed", owner=name, blocked_by=row.blocked_by)
        done = Completion(
            id=f"d-{name}",
            agent=AgentId(f"a-{name}"),
            status="failed" if name == "docs" else "completed",
            kind="builder",
            description="",
            report_to=LEAD,
            call="",
            detail="The guide has no such chapter." if name == "docs" else "",
        )
        scene.tell(AgentEnded(agent=AgentId(f"a-{name}"), completion=done))
    scene.tell(SessionEnded(agent=LEAD))
    scene.live = False


def crowd(
    *,
    members: int = 100,
    letters: int = 10_000,
    tasks: int = 2_000,
    entries: int = 10_000,
    began: int = BEGAN,
) -> Scene:
    """Build a run as large as the view must support."""
    scene = Scene("c0ffee00-crowd", began=began)
    scene.begin("Move every page of the old site to the new one.", budget_usd=60.0)
    names = [f"worker-{number}" for number in range(1, members + 1)]
    for number, name in enumerate(names):
        color = COLORS[number % 8] if number % 10 else "#3fa7d6"
        scene.join(name, "worker", color, "movers", work=f"Pages of letter {name}")
    for number in range(1, tasks + 1):
        status = ("pending", "in_progress", "completed")[number % 3]
        owner = names[number % members] if status != "pending" or number % 2 else ""
        blocked = (str(number - 1),) if number % 5 == 0 else ()
        scene.task("movers", number, f"Move page {number}", status, owner=owner, blocked_by=blocked)
    for number in range(letters):
        sender, to = names[number % members], names[(number * 7 + 3) % members]
        scene.mail("movers", sender, to, f"Page {number} is moved.", taken=number % 50 != 0)
        if number % 40 == 0:
            worker = number // 40 % members
            scene.spend(f"a-{names[worker]}", MODELS[worker % 2], 20_000 + worker * 500, 0.1 + worker * 0.004)
    for number, name in enumerate(names):
        scene.use(f"a-{name}", "Edit", f"pages/{name}.html", done=number % 3 == 0)
    for number in range(entries):
        words = f"Entry {number}. " + "The page is moved and its links are checked. " * (number % 7)
        scene.say("a-worker-1", "assistant", "model", text(words))
    return scene


def past(number: int) -> Iterator[Scene]:
    """Build runs of earlier days, for a long list."""
    words = ("Find why the nightly build is slow", "Write the guide for harbour masters", "Rename a module")
    for index in range(number):
        scene = Scene(f"{index:08x}-past", began=BEGAN - (index + 1) * 7_200_000)
        scene.begin(f"{words[index % 3]} ({index + 1})")
        scene.spend(LEAD, MODELS[0], 4_000 * (1 + index % 9), 0.02 * (1 + index % 9))
        if index % 4:
            scene.tell(SessionEnded(agent=LEAD))
        scene.live = False
        yield scene
