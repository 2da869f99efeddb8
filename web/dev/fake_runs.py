"""Fake runs for the web view: a small team at work, and a crowd."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from shoal.app.run_view.run_view import RunView
from shoal.app.run_view.view_rows import ViewDelta
from shoal.core.agents.subagents import AgentResult
from shoal.core.budgets.usage import Usage
from shoal.core.events import (
    AgentEnded,
    AgentStarted,
    BudgetThresholdReached,
    Event,
    MailPosted,
    MailTaken,
    MemberWentIdle,
    MemberWoken,
    ModelRequestSettled,
    QuestionAnswered,
    QuestionAsked,
    SessionEnded,
    SessionStarted,
    TaskChanged,
    ToolFinished,
    ToolStarted,
    TurnStarted,
)
from shoal.core.ids import LEAD_ID, AgentId, RequestId, SessionId
from shoal.core.permissions.permission_changes import AddPermissionRulesSuggestion, SuggestedPermissionRule
from shoal.core.permissions.questions import (
    AllowAnswer,
    ChoiceOption,
    ChoiceQuestion,
    MultipleChoice,
    PermissionQuestion,
    PlanApprovalQuestion,
)
from shoal.wire.notification_text import format_mail_message

START_TIME = 1_780_000_000_000
COLORS = ("blue", "green", "yellow", "purple", "orange", "pink", "cyan", "red")
MODELS = ("harbour-large", "harbour-small")
ContentBlocks = list[dict[str, Any]]


class FakeRun:
    """The events of a run with their times, the run view they build, and the transcripts of its agents."""

    def __init__(self, session: str, *, began: int = START_TIME) -> None:
        self.session = session
        self.at = began
        self.is_live = True
        self.run_view = RunView()
        self.events: list[tuple[int, Event]] = []
        self.transcripts: dict[str, list[dict[str, Any]]] = {}
        self._numbers = count(1)

    def add_events(self, *events: Event, after: int = 1_000) -> None:
        for event in events:
            self.at += after
            self.events.append((self.at, event))
            self.run_view.apply_event(event, self.at)

    def add_entry(self, agent: str, role: str, by: str, *blocks: dict[str, Any]) -> None:
        entries = self.transcripts.setdefault(agent, [])
        entries.append({"n": len(entries), "at": self.at, "role": role, "by": by, "blocks": list(blocks)})

    def build_replay(self, max_deltas: int = 400) -> list[ViewDelta]:
        view, sent = RunView(), 0
        size = -(-len(self.events) // max_deltas)
        deltas = []
        for number, (at, event) in enumerate(self.events, 1):
            view.apply_event(event, at)
            if number % size == 0 or number == len(self.events):
                deltas.append(view.get_delta_since(sent))
                sent = view.offset
        return deltas

    # Shortcuts for events

    def start_session(self, prompt: str, **budget: Any) -> None:
        self.add_events(
            SessionStarted(
                agent=LEAD_ID,
                session=SessionId(self.session),
                cwd="/home/ada/projects/harbour",
                model=MODELS[0],
                mode="default",
                tools=(),
                version="0.1.0",
                **budget,
            ),
            TurnStarted(agent=LEAD_ID, turn=1, prompt=prompt),
        )

    def add_member(self, name: str, kind: str, color: str, team: str, *, work: str = "") -> AgentId:
        agent = AgentId(f"a-{name}")
        self.add_events(
            AgentStarted(
                agent=agent,
                kind=kind,
                name=name,
                description=work,
                parent=LEAD_ID,
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

    def change_task(
        self, board: str, number: int, subject: str, status: str = "pending", **more: Any
    ) -> None:
        self.add_events(
            TaskChanged(agent=LEAD_ID, board=board, task=str(number), subject=subject, status=status, **more),
            after=60,
        )

    def post_mail(
        self, team: str, sender: str, to: str, text: str, *, taken: bool = True, **more: Any
    ) -> None:
        common_fields: dict[str, Any] = {
            "agent": LEAD_ID,
            "team": team,
            "mail": f"m{next(self._numbers):05d}",
        }
        common_fields |= {"sender": sender, "to": to, "kind": more.pop("kind", "message"), "preview": text}
        self.add_events(MailPosted(**common_fields, summary=text[:40], **more), after=200)
        if taken:
            self.add_events(MailTaken(**common_fields, summary=text[:40]), after=300)

    def settle_request(self, agent: str, model: str, tokens: int, usd: float | None) -> None:
        usage = Usage(
            input_tokens=tokens // 5,
            output_tokens=tokens // 10,
            cache_read_input_tokens=tokens * 6 // 10,
            cache_creation_input_tokens=tokens // 10,
        )
        request = RequestId(f"r{next(self._numbers)}")
        self.add_events(
            ModelRequestSettled(
                agent=AgentId(agent), request=request, model=model, usage=usage, cost_usd=usd, duration_ms=900
            ),
            after=400,
        )

    def use_tool(self, agent: str, tool: str, preview: str, *, done: bool = True) -> None:
        call = f"c{next(self._numbers)}"
        self.add_events(ToolStarted(agent=AgentId(agent), call=call, tool=tool, preview=preview), after=150)
        if done:
            self.add_events(
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


def make_text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


ANSWER_TEXT = """Here is how the **tide tables** are read now.

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

DIFF_TEXT = """--- tides.py
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

PREVIOUS_PLAN_TEXT = """# Plan

1. Read the tables once.
2. Write the cache to disk.
3. Remove the old reader.
"""
PLAN_TEXT = """# Plan

1. Read the tables **once**, when a station is first asked for.
2. Keep them in memory; nothing is written to disk.
3. Remove the old reader.

## Not touched

- `ports.py`
"""


def build_harbour_run(*, ended: bool = False, began: int = START_TIME) -> FakeRun:
    """Build a run with a lead and six members at work on a board, with three open questions."""
    fake_run = FakeRun("9d21e7b0-finished" if ended else "3f6c0a52-harbour", began=began)
    fake_run.start_session(
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
        fake_run.add_member(name, kind, color, "harbour", work=subject)
    blocked: dict[int, tuple[str, ...]] = {2: ("1",), 4: ("1", "3"), 5: ("2",), 6: ("4", "5")}
    for number, (name, subject) in enumerate(zip(names, subjects, strict=True), 1):
        fake_run.change_task("harbour", number, subject, owner=name, blocked_by=blocked.get(number, ()))
    fake_run.change_task("harbour", 7, "Say it in the changelog")
    fake_run.change_task("harbour", 1, subjects[0], "in_progress", owner="parser")
    fake_run.change_task("harbour", 3, subjects[2], "in_progress", owner="ports")
    for turn in range(8):
        for name in ("lead", *names):
            agent = LEAD_ID if name == "lead" else f"a-{name}"
            if turn % 2 == 0 or name in ("parser", "ports", "lead"):
                fake_run.use_tool(agent, ("Read", "Grep", "Edit", "Bash")[turn % 4], f"tides/{name}.py")
                tokens = 9_000 + 700 * turn + 400 * len(name)
                fake_run.settle_request(agent, MODELS[name in names], tokens, tokens * 0.000006)
        sender, to = names[turn % 6], names[(turn + 2) % 6]
        fake_run.post_mail("harbour", sender, to, f"The reader gives a Table now, see step {turn + 1}.")
        fake_run.post_mail("harbour", "team-lead", sender, "Good. Go on with your task.", taken=turn != 7)
    _add_transcripts(fake_run)
    if ended:
        _end_run(fake_run, names)
        return fake_run
    _add_questions(fake_run)
    fake_run.use_tool("a-parser", "Bash", "pytest -q tests/test_tides.py", done=False)
    fake_run.use_tool("a-ports", "Edit", "src/harbour/ports.py", done=False)
    for name in ("cache", "docs"):
        fake_run.add_events(MemberWentIdle(agent=AgentId(f"a-{name}"), reason="available"))
    fake_run.add_events(BudgetThresholdReached(agent=LEAD_ID, limit="usd", percent=75, spent=3.0, of=4.0))
    return fake_run


def _add_questions(run: FakeRun) -> None:
    command = (
        "rsync --archive --delete --exclude=.git --exclude=node_modules build/site/ "
        "deploy@harbour.example:/srv/www/harbour && ssh deploy@harbour.example 'systemctl reload caddy'"
    )
    run.add_events(
        QuestionAsked(
            agent=AgentId("a-tests"),
            question=PermissionQuestion(
                id="q-1",
                agent=AgentId("a-tests"),
                tool_use_id="t1",
                tool="Bash",
                input={"command": command, "description": "Bring the site to the server", "timeout": 60_000},
                reason="No rule allows this command.",
                rule="Bash(rsync:*)",
                suggestions=(
                    AddPermissionRulesSuggestion(
                        rules=(SuggestedPermissionRule(tool_name="Bash", rule_content="rsync:*"),),
                        destination="localSettings",
                    ),
                ),
            ),
        ),
        QuestionAsked(
            agent=AgentId("a-review"),
            question=ChoiceQuestion(
                id="q-2",
                agent=AgentId("a-review"),
                choices=(
                    MultipleChoice(
                        question="Which store should the ports go to?",
                        header="Store",
                        options=(
                            ChoiceOption(label="SQLite", description="One file, safe with several writers."),
                            ChoiceOption(
                                label="JSON", description="Readable, rewritten whole at each change."
                            ),
                        ),
                    ),
                    MultipleChoice(
                        question="Which checks should run before a merge?",
                        header="Checks",
                        options=(
                            ChoiceOption(label="Tests"),
                            ChoiceOption(label="Types"),
                            ChoiceOption(label="Format"),
                        ),
                        multi_select=True,
                    ),
                ),
            ),
        ),
        QuestionAsked(
            agent=AgentId("a-cache"),
            question=PlanApprovalQuestion(
                id="q-3",
                agent=AgentId("a-cache"),
                plan=PLAN_TEXT,
                path="plans/cache.md",
                digest="0" * 64,
                wishes=("Bash(pytest:*)",),
            ),
        ),
    )


def _add_transcripts(run: FakeRun) -> None:
    agent = "a-parser"
    mail_text = format_mail_message(
        "team-lead", "Read the tide tables once. Tell `ports`.", summary="Your task"
    )
    run.add_entry(agent, "user", "agent", make_text_block(mail_text))
    for step in range(12):
        call = f"call-{step}"
        run.at += 2_000
        use: dict[str, Any] = {"type": "tool_use", "id": call}
        if step % 3 == 2:
            edit = {"file_path": "src/harbour/tides.py", "old_string": "…", "new_string": "…"}
            use |= {"name": "Edit", "input": edit, "diff": DIFF_TEXT}
        elif step % 3 == 1:
            use |= {"name": "Bash", "input": {"command": "pytest -q tests/test_tides.py"}}
        else:
            use |= {"name": "Read", "input": {"file_path": f"src/harbour/station_{step}.py"}}
        thinking = {
            "type": "thinking",
            "text": f"Step {step}: the table is read twice, once for each caller.",
        }
        run.add_entry(
            agent, "assistant", "model", thinking, make_text_block(f"I look at station {step}."), use
        )
        run.at += 1_000
        result = "\n".join(f"{line:>5}  station {step} line {line}" for line in range(1, 8 + step * 3))
        run.add_entry(
            agent,
            "user",
            "tool",
            {"type": "tool_result", "tool_use_id": call, "is_error": step == 4, "text": result}
            | ({"cut": 48_000} if step == 9 else {}),
        )
    run.add_entry(agent, "assistant", "model", make_text_block(ANSWER_TEXT))
    run.add_entry("lead", "user", "person", make_text_block("Make the tide tables load once."))
    run.add_entry("lead", "assistant", "model", make_text_block("I start a team of six.\n\n" + ANSWER_TEXT))


def _end_run(run: FakeRun, names: tuple[str, ...]) -> None:
    question = PermissionQuestion(
        id="q-9",
        agent=AgentId("a-tests"),
        tool_use_id="t9",
        tool="Bash",
        input={"command": "make test"},
        reason="No rule allows this command.",
    )
    run.add_events(
        QuestionAsked(agent=AgentId("a-tests"), question=question),
        QuestionAnswered(agent=AgentId("a-tests"), question="q-9", answer=AllowAnswer(remember="session")),
    )
    for number, name in enumerate(names, 1):
        row = run.run_view.tasks.get("harbour", str(number))
        assert row is not None
        run.change_task("harbour", number, row.subject, "completed", owner=name, blocked_by=row.blocked_by)
        result = AgentResult(
            id=f"d-{name}",
            agent=AgentId(f"a-{name}"),
            status="failed" if name == "docs" else "completed",
            kind="builder",
            description="",
            report_to=LEAD_ID,
            call="",
            detail="The guide has no such chapter." if name == "docs" else "",
        )
        run.add_events(AgentEnded(agent=AgentId(f"a-{name}"), completion=result))
    run.add_events(SessionEnded(agent=LEAD_ID))
    run.is_live = False


def build_crowd_run(
    *,
    members: int = 100,
    messages: int = 10_000,
    tasks: int = 2_000,
    entries: int = 10_000,
    began: int = START_TIME,
) -> FakeRun:
    """Build a run as large as the view must support."""
    fake_run = FakeRun("c0ffee00-crowd", began=began)
    fake_run.start_session("Move every page of the old site to the new one.", budget_usd=60.0)
    names = [f"worker-{number}" for number in range(1, members + 1)]
    for number, name in enumerate(names):
        color = COLORS[number % 8] if number % 10 else "#3fa7d6"
        fake_run.add_member(name, "worker", color, "movers", work=f"Pages of letter {name}")
    for number in range(1, tasks + 1):
        status = ("pending", "in_progress", "completed")[number % 3]
        owner = names[number % members] if status != "pending" or number % 2 else ""
        blocked = (str(number - 1),) if number % 5 == 0 else ()
        fake_run.change_task("movers", number, f"Move page {number}", status, owner=owner, blocked_by=blocked)
    for number in range(messages):
        sender, to = names[number % members], names[(number * 7 + 3) % members]
        fake_run.post_mail("movers", sender, to, f"Page {number} is moved.", taken=number % 50 != 0)
        if number % 40 == 0:
            worker = number // 40 % members
            fake_run.settle_request(
                f"a-{names[worker]}", MODELS[worker % 2], 20_000 + worker * 500, 0.1 + worker * 0.004
            )
    for number, name in enumerate(names):
        fake_run.use_tool(f"a-{name}", "Edit", f"pages/{name}.html", done=number % 3 == 0)
    for number in range(entries):
        text = f"Entry {number}. " + "The page is moved and its links are checked. " * (number % 7)
        fake_run.add_entry("a-worker-1", "assistant", "model", make_text_block(text))
    return fake_run


def build_past_runs(number: int) -> Iterator[FakeRun]:
    """Build runs of earlier days, for a long list."""
    prompts = ("Find why the nightly build is slow", "Write the guide for harbour masters", "Rename a module")
    for index in range(number):
        fake_run = FakeRun(f"{index:08x}-past", began=START_TIME - (index + 1) * 7_200_000)
        fake_run.start_session(f"{prompts[index % 3]} ({index + 1})")
        fake_run.settle_request(LEAD_ID, MODELS[0], 4_000 * (1 + index % 9), 0.02 * (1 + index % 9))
        if index % 4:
            fake_run.add_events(SessionEnded(agent=LEAD_ID))
        fake_run.is_live = False
        yield fake_run
