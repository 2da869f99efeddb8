"""Texts for a person at a terminal: widths, events, listings, outcomes, errors and hints, in tables."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cli_live.terminal_helpers import JOE, make_result
from shoal.app.isolation.machine_checks import DoctorDiagnostic
from shoal.app.reports.hook_report import HookReportRow
from shoal.app.reports.permission_report import PermissionReport, PermissionRuleReportRow
from shoal.app.run_view.agent_status import AgentStatusRecord
from shoal.core.agents.subagents import (
    PROGRAM_CALL,
    RetainedWorktreeWork,
)
from shoal.core.events import (
    PREVIEW_LENGTH,
    AgentEnded,
    AgentMovedToBackground,
    AgentStarted,
    BudgetThresholdReached,
    ConversationCompacted,
    Event,
    MemberWoken,
    NoteAdded,
    PartialReplyDiscarded,
    RepetitionStopped,
    TurnUndone,
    WorkflowEnded,
    WorkflowPhaseStarted,
    WorkflowStarted,
    WorkflowStepStarted,
    WorktreeWorkRetained,
)
from shoal.core.ids import LEAD_ID, SessionId
from shoal.core.permissions.permission_changes import (
    AddDirectoriesPermissionSuggestion,
    AddPermissionRulesSuggestion,
    SetPermissionModeSuggestion,
    SuggestedPermissionRule,
)
from shoal.core.permissions.questions import (
    AllowAnswer,
    ChoiceAnswer,
    ChoiceOption,
    ChoiceQuestion,
    DenyAnswer,
    MultipleChoice,
    PermissionQuestion,
    PlanApprovalQuestion,
    PlanApprovedAnswer,
)
from shoal.core.store import SessionListEntry
from shoal.surfaces.cli.plain.agent_rows import format_agent_rows, format_detailed_agent_rows
from shoal.surfaces.terminal.event_text import (
    describe_background_agent_event,
    describe_notice_event,
    mark_truncated_preview,
)
from shoal.surfaces.terminal.listings import (
    format_diagnostic_lines,
    format_hook_lines,
    format_permission_report_lines,
    format_session_lines,
    format_time_since,
    format_undo_lines,
)
from shoal.surfaces.terminal.question_text import (
    describe_answer,
    describe_permission_suggestion,
    describe_question,
    format_tool_input_value,
    list_remember_options,
)
from shoal.surfaces.terminal.status_text import describe_agent_activity
from shoal.surfaces.terminal.text_styles import (
    BOLD,
    DIM,
    GREEN,
    RED,
    YELLOW,
    apply_style,
    count_fitting_characters,
    get_agent_style,
    measure_text_width,
    truncate_at_word,
    truncate_text,
)
from shoal.surfaces.terminal.tool_outcomes import describe_tool_outcome, format_todo_lines
from shoal.workspaces.checkpoints import FileUndoReport, UnrestoredFile


@pytest.mark.parametrize(
    ("text", "columns", "fitting", "truncated"),
    [
        ("", 0, 0, ""),
        ("abc", 0, 0, ""),
        ("abc", 1, 1, "…"),
        ("abc", 2, 2, "a…"),
        ("abc", 3, 3, "abc"),
        ("abc", 4, 3, "abc"),
        ("界a", 1, 0, "…"),
        ("界a", 2, 1, "…"),
        ("界a", 3, 2, "界a"),
        ("é", 1, 1, "é"),
        ("e\u0301x", 1, 2, "…"),
        ("a\u200bb", 2, 3, "a\u200bb"),
        ("界界", 3, 1, "界…"),
    ],
)
def test_text_is_cut_at_columns(text: str, columns: int, fitting: int, truncated: str) -> None:
    assert count_fitting_characters(text, columns) == fitting
    assert truncate_text(text, columns) == truncated
    assert measure_text_width(truncated) <= columns


@pytest.mark.parametrize(
    ("text", "columns", "cut"),
    [
        ("one two", 7, "one two"),
        ("one two", 6, "one …"),
        ("one two", 5, "one …"),
        ("one two", 4, "one…"),
        ("one two three", 9, "one two …"),
        ("one two three", 8, "one …"),
        ("unbroken", 5, "unbr…"),
    ],
)
def test_a_line_is_cut_after_a_whole_word(text: str, columns: int, cut: str) -> None:
    assert truncate_at_word(text, columns) == cut


@pytest.mark.parametrize(
    ("color", "style"),
    [
        ("red", "31"),
        ("orange", "38;5;208"),
        ("#0a0B0c", "38;2;10;11;12"),
        ("#12345", "36"),
        ("unknown", "36"),
        ("", "36"),
        (None, "36"),
    ],
)
def test_agents_have_the_style_of_their_color(color: str | None, style: str) -> None:
    assert get_agent_style(color) == style


def test_only_text_with_a_style_on_a_screen_with_colors_gets_codes() -> None:
    assert apply_style("a", "1", colours=True) == "\x1b[1ma\x1b[0m"
    assert [apply_style("a", "1", colours=False), apply_style("a", "", colours=True)] == ["a", "a"]
    assert apply_style("", "1", colours=True) == ""


def make_step(kind: str) -> WorkflowStepStarted:
    return WorkflowStepStarted(
        agent=LEAD_ID, workflow="w", step=1, path=f"phase/{kind}", digest="", preview="make\nall"
    )


@pytest.mark.parametrize(
    ("event", "notice"),
    [
        (
            PartialReplyDiscarded(agent=LEAD_ID, reason="busy\nnow", retry_in=2, attempt=3),
            ("⟳ retrying in 2.0 s (attempt 3): busy now", YELLOW),
        ),
        (
            ConversationCompacted(agent=LEAD_ID, trigger="auto", tokens_before=7),
            ("the conversation continues from a summary (it had 7 tokens)", DIM),
        ),
        (
            TurnUndone(agent=LEAD_ID, turn=2, conversation=False),
            ("files restored to their state before turn 2", DIM),
        ),
        (NoteAdded(agent=LEAD_ID, text="a\nb"), ("a b", YELLOW)),
        (RepetitionStopped(agent=LEAD_ID, reason="a\nloop"), ("stopped: a loop", YELLOW)),
        (
            BudgetThresholdReached(agent=LEAD_ID, limit="usd", percent=80, spent=4, of=5),
            ("80% of the budget is spent: $4 of $5", YELLOW),
        ),
        (
            BudgetThresholdReached(agent=LEAD_ID, limit="usd", percent=80, spent=4, of=5, whose="ann"),
            ("80% of the budget of ann is spent: $4 of $5", YELLOW),
        ),
        (
            WorkflowStarted(agent=LEAD_ID, workflow="w", name="n", arguments={}),
            ("workflow w started", DIM),
        ),
        (
            WorkflowStarted(agent=LEAD_ID, workflow="w", name="n", arguments={}, resumed=True),
            ("workflow w continues", DIM),
        ),
        (WorkflowPhaseStarted(agent=LEAD_ID, workflow="w", phase="build"), ("workflow w: phase build", DIM)),
        (make_step("shell"), ("workflow w: runs make all", DIM)),
        (make_step("sleep"), ("workflow w: waits make all", DIM)),
        (make_step("agent"), None),
        (WorkflowEnded(agent=LEAD_ID, workflow="w", status="completed"), ("workflow w completed", DIM)),
        (
            WorkflowEnded(agent=LEAD_ID, workflow="w", status="failed", detail="x" * 200),
            (f"workflow w failed: {'x' * 99}…", YELLOW),
        ),
        (
            WorkflowEnded(agent=LEAD_ID, workflow="w", status="stopped", detail="by you"),
            ("workflow w was stopped: by you", YELLOW),
        ),
        (MemberWoken(agent=LEAD_ID), None),
    ],
)
def test_events_are_notices_in_one_line(event: Event, notice: tuple[str, str] | None) -> None:
    assert describe_notice_event(event) == notice


def make_start(**facts: Any) -> AgentStarted:
    known: dict[str, Any] = {
        "agent": JOE,
        "kind": "plumber",
        "name": "joe",
        "description": "mend\nit",
        "parent": LEAD_ID,
        "call": "c1",
        "depth": 1,
        "model": "m",
        "mode": "default",
        "background": False,
        "cwd": "/",
    }
    return AgentStarted(**known | facts)


WORK = RetainedWorktreeWork(path="/w/tree-1", branch="b")


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (make_start(), None),
        (make_start(background=True), "agent joe started in the background: mend it"),
        (
            make_start(background=True, resumed=True),
            "agent joe continues in the background: mend it",
        ),
        (AgentMovedToBackground(agent=JOE), "agent joe continues in the background: mend it"),
        (AgentEnded(agent=JOE, completion=make_result()), None),
        (
            AgentEnded(agent=JOE, completion=make_result(background=True)),
            "agent joe completed (2 tool calls, 1.5k tokens, 12 s): mend it",
        ),
        (
            AgentEnded(agent=JOE, completion=make_result(call=PROGRAM_CALL, status="killed", detail="a\nb")),
            "agent joe was stopped (2 tool calls, 1.5k tokens, 12 s, a b): mend it",
        ),
        (
            WorktreeWorkRetained(agent=JOE, work=WORK),
            "agent joe left work in a worktree; merge it: shoal worktree merge tree-1",
        ),
        (MemberWoken(agent=JOE), None),
    ],
)
def test_agents_in_the_background_are_described(event: Event, text: str | None) -> None:
    assert describe_background_agent_event(event, AgentStatusRecord(JOE, 0.0, make_start())) == text


def test_an_agent_without_a_task_is_described_by_its_name() -> None:
    status = AgentStatusRecord(JOE, 0.0, make_start(description=""))
    text = describe_background_agent_event(AgentMovedToBackground(agent=JOE), status)
    assert text == "agent joe continues in the background"


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("short", "short"),
        ("x" * (PREVIEW_LENGTH - 1), "x" * (PREVIEW_LENGTH - 1)),
        ("x" * PREVIEW_LENGTH, "x" * PREVIEW_LENGTH + "…"),
        ("word " * 40, ("word " * 40)[:-1] + " …"),
    ],
)
def test_a_preview_of_full_length_is_marked(text: str, marked: str) -> None:
    assert mark_truncated_preview(text) == marked


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0 s"),
        (0, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (3_599, "59 min"),
        (3_600, "1 h"),
        (86_399, "23 h"),
        (86_400, "1 d"),
        (200_000, "2 d"),
    ],
)
def test_an_age_has_one_unit(monkeypatch: pytest.MonkeyPatch, seconds: int, text: str) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_000_000_000.5)
    assert format_time_since((1_000_000_000 - seconds) * 1_000) == text


@pytest.mark.parametrize(("columns", "width"), [(0, 70), (300, 70), (122, 70), (112, 60), (72, 20), (20, 20)])
def test_the_prompts_of_sessions_fit_the_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: int, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    entry = SessionListEntry(session=SessionId("abc"), path=None, prompt="x\n" * 200, at=0, size=1)
    [line] = format_session_lines([entry])
    assert line.startswith("abc  ")
    assert measure_text_width(line.partition(" d  ")[2]) == width


def test_an_undo_is_described_file_by_file() -> None:
    root = Path("/project")
    report = FileUndoReport(
        turn=1,
        restored=(root / "a",),
        removed=(Path("/other/b"),),
        left_alone=(UnrestoredFile(path=root / "c", why="it changed"),),
    )
    assert list(format_undo_lines(report, root)) == [
        ("restored    a", GREEN),
        ("deleted     /other/b  (created by the agent)", GREEN),
        ("kept        c: it changed", YELLOW),
    ]
    for part in ("restored", "removed", "left_alone"):
        alone = replace(FileUndoReport(turn=1), **{part: getattr(report, part)})
        assert len(list(format_undo_lines(alone, root))) == 1
    assert list(format_undo_lines(FileUndoReport(turn=1), root)) == [("There was nothing to restore.", DIM)]


def make_hook(**facts: Any) -> HookReportRow:
    known: dict[str, Any] = {
        "event": "Stop",
        "matcher": "",
        "type": "command",
        "does": "make\nit",
        "timeout": 1,
        "background": False,
        "rewakes": False,
        "origin": "settings",
    }
    return HookReportRow(**known | facts)


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        ({}, "  *  make it  settings"),
        ({"matcher": "Bash"}, "  Bash  make it  settings"),
        ({"background": True}, "  *  make it  async  settings"),
        ({"background": True, "rewakes": True}, "  *  make it  async, rewakes  settings"),
        ({"agent": "ann"}, "  *  make it  agent ann  settings"),
        ({"does": "x" * 200}, f"  *  {'x' * 99}…  settings"),
    ],
)
def test_hooks_are_listed_by_event(facts: dict[str, Any], line: str) -> None:
    assert list(format_hook_lines([make_hook(**facts)], colours=False)) == ["Stop", line]


def test_hooks_that_are_not_trusted_are_marked_and_explained() -> None:
    rows = [make_hook(), make_hook(event="PreToolUse", trusted=False), make_hook(does="b")]
    lines = list(format_hook_lines(rows, colours=False))
    assert lines[:-1] == [
        "Stop",
        "  *  make it  settings",
        "  *  b  settings",
        "PreToolUse",
        "  *  make it  not trusted  settings",
    ]
    assert "shoal trust --show" in lines[-1]
    [nothing] = format_hook_lines([], colours=False)
    assert nothing.startswith("There are no hooks here.")


def test_permissions_are_listed_with_their_sources() -> None:
    def make_rule(behavior: Any, rule: str) -> PermissionRuleReportRow:
        return PermissionRuleReportRow(behavior=behavior, rule=rule, source="local")

    report = PermissionReport(
        agent="lead",
        mode="default",
        mode_source="built in",
        rules=(make_rule("deny", "Bash(rm:*)"), make_rule("allow", "Read")),
        directories=("/a", "/b"),
        may_skip=False,
        left_out=(make_rule("allow", "Edit"),),
    )
    assert list(format_permission_report_lines(report, colours=False)) == [
        "mode  default  (built in)",
        "directories",
        "  /a",
        "  /b",
        "rules",
        "  deny   Bash(rm:*)  local",
        "  allow  Read        local",
        "Ignored because this project's settings are not trusted (trust them: shoal trust):",
        "  allow  Edit  local",
    ]
    without_rules = list(
        format_permission_report_lines(replace(report, rules=(), left_out=()), colours=False)
    )
    assert without_rules[4] == "rules"
    assert without_rules[5].startswith("  none; only the mode decides.")
    assert len(without_rules) == 6
    long_rule = replace(report, rules=(make_rule("ask", "x" * 90), make_rule("ask", "y")), left_out=())
    assert list(format_permission_report_lines(long_rule, colours=False))[-1] == (
        f"  ask    {'y':<60}  local"
    )


def make_diagnostic(state: Any, name: str = "n", advice: str = "", area: str = "a") -> DoctorDiagnostic:
    return DoctorDiagnostic(area=area, name=name, state=state, value="v", advice=advice)


def test_diagnostics_are_grouped_and_summarized() -> None:
    found = [
        make_diagnostic("ok"),
        make_diagnostic("warn", "long", "one\ntwo"),
        make_diagnostic("none", area="b"),
    ]
    assert list(format_diagnostic_lines(found, colours=False)) == [
        "a",
        "  ok    n     v",
        "  warn  long  v",
        "              → one",
        "              → two",
        "",
        "b",
        "  –     n     v",
        "",
        "Shoal can run. 1 warning; the arrows show what to do.",
    ]
    assert list(format_diagnostic_lines(found, colours=False, summary="own"))[-1] == "own"
    assert list(format_diagnostic_lines([make_diagnostic("ok")], colours=False))[-1] == "No problems found."
    assert list(format_diagnostic_lines([*found, make_diagnostic("bad", "x")], colours=False))[-1] == (
        "Shoal cannot run yet because of a: x. The arrows show what to do."
    )


def make_permission(**facts: Any) -> PermissionQuestion:
    known: dict[str, Any] = {
        "id": "q",
        "agent": LEAD_ID,
        "tool_use_id": "t",
        "tool": "Bash",
        "input": {},
        "reason": "r",
    }
    return PermissionQuestion(**known | facts)


RULE = SuggestedPermissionRule(tool_name="Bash", rule_content="make:*")
SAVE = AddPermissionRulesSuggestion(rules=(RULE,), destination="localSettings")
CHOICE = ChoiceQuestion(
    id="q",
    agent=LEAD_ID,
    choices=(
        MultipleChoice(question="Which\nway?", header="way", options=(ChoiceOption(label="left"),)),
        MultipleChoice(question="How?", header="how", options=()),
    ),
)


def test_questions_and_answers_have_one_line() -> None:
    plan = PlanApprovalQuestion(id="q", agent=LEAD_ID, plan="p", path="/p", digest="d")
    assert [describe_question(each) for each in (make_permission(), CHOICE, plan)] == [
        "may Bash run?",
        "Which way? How?",
        "do you approve the plan?",
    ]
    answers = [
        AllowAnswer(),
        AllowAnswer(remember="session"),
        AllowAnswer(remember="settings"),
        PlanApprovedAnswer(digest="d"),
        ChoiceAnswer(answers={"a": "x", "b": "y\nz"}),
        DenyAnswer(reason="no"),
    ]
    assert [describe_answer(each) for each in answers] == [
        "allowed once",
        "allowed for this session",
        "allowed, and saved in settings",
        "the plan is approved",
        "answered: x, y z",
        None,
    ]


@pytest.mark.parametrize(
    ("question", "options"),
    [
        (make_permission(), ("once",)),
        (make_permission(rule="Bash"), ("once", "session")),
        (make_permission(rule="Bash", suggestions=(SAVE,)), ("once", "session", "settings")),
        (make_permission(suggestions=(SAVE,)), ("once", "settings")),
        (make_permission(suggestions=(replace(SAVE, destination="session"),)), ("once",)),
    ],
)
def test_a_yes_lasts_only_as_long_as_it_can_be_remembered(
    question: PermissionQuestion, options: tuple[str, ...]
) -> None:
    assert list_remember_options(question) == options


def test_suggested_changes_and_values_are_shown() -> None:
    assert describe_permission_suggestion(SAVE) == "allow Bash(make:*)"
    directories = AddDirectoriesPermissionSuggestion(directories=("/a", "/b"))
    assert describe_permission_suggestion(directories) == "work in /a, /b"
    assert describe_permission_suggestion(SetPermissionModeSuggestion(mode="plan")) == "mode plan"
    assert [format_tool_input_value(value) for value in ("a", 1, ["é", None], {"p": Path("/x")})] == [
        "a",
        "1",
        '["é", null]',
        '{"p": "/x"}',
    ]


@pytest.mark.parametrize(
    ("tool", "text", "data", "is_error", "outcome"),
    [
        ("Edit", "", None, False, ("changed", GREEN)),
        ("Write", "", {"added": "3"}, False, ("changed", GREEN)),
        ("Edit", "", {"added": 3}, False, ("+3 −0", GREEN)),
        ("Edit", "bad", {"added": 3}, True, ("✗ bad", RED)),
        ("Read", "", None, False, ("0 lines", DIM)),
        ("Read", "a", None, False, ("1 line", DIM)),
        ("Read", "a\nb", None, False, ("2 lines", DIM)),
        ("Read", "a\nb\n", None, False, ("2 lines", DIM)),
        ("Grep", "three\nlines", None, False, ("three", DIM)),
        (
            "TodoWrite",
            "t",
            {"todos": [{"status": "completed"}, {"status": "pending"}]},
            False,
            ("1 of 2 done", DIM),
        ),
        ("TodoWrite", "t", {"todos": "x"}, False, ("t", DIM)),
        ("AskUserQuestion", "t", {"answers": {"a": "x", "b": 2}}, False, ("→ x; 2", GREEN)),
        ("AskUserQuestion", "t", {"answers": "x"}, False, ("t", DIM)),
        ("Agent", "t", {"status": "async_launched"}, False, ("→ working in the background", DIM)),
        ("Agent", "t", {"status": "teammate_spawned"}, False, ("→ it has joined the team", GREEN)),
        (
            "Agent",
            "t",
            {"status": "completed", "totalToolUseCount": 1, "totalTokens": 2_000},
            False,
            ("→ done · 1 call · 2.0k tokens", GREEN),
        ),
        ("Agent", "t", {"status": "failed"}, False, ("✗ failed · 0 calls · 0 tokens", RED)),
        ("Agent", "t", {"status": 3}, False, ("t", DIM)),
        ("Bash", "a\nlast\n[note]", {"exit_code": 0}, False, ("→ exit 0 · last", GREEN)),
        ("Bash", "a\nlast\n[note]", {"exit_code": 2}, True, ("→ exit 2 · last", RED)),
        ("Bash", "[note]", {"exit_code": 0}, False, ("→ exit 0", GREEN)),
        ("Bash", "(no output)", {"exit_code": 1}, True, ("→ exit 1", RED)),
        ("Bash", "first\nlast", None, False, ("→ exit 0", GREEN)),
        ("Bash", "first\nlast", None, True, ("✗ first", RED)),
        ("Bash", "x", {"timed_out": True, "exit_code": 1}, True, ("→ stopped because it took too long", RED)),
        ("Other", "\n first\nlast", ["no mapping"], False, ("first", DIM)),
    ],
)
def test_outcomes_of_tools_have_a_style(
    tool: str, text: str, data: Any, is_error: bool, outcome: tuple[str, str]
) -> None:
    assert describe_tool_outcome(tool, text, data, is_error=is_error) == outcome


def test_steps_are_listed_with_their_state() -> None:
    todos = [
        {"status": "pending", "content": "a\nb"},
        {"status": "in_progress", "content": "c"},
        {"status": "completed", "content": "d"},
        {"status": "other", "content": "e"},
    ]
    assert format_todo_lines({"todos": todos}) == [("☐ a b", DIM), ("▸ c", BOLD), ("☑ d", DIM)]
    assert [format_todo_lines(data) for data in (None, {}, "text")] == [[], [], []]


def make_status(**facts: Any) -> AgentStatusRecord:
    status = AgentStatusRecord(JOE, 100.0, make_start(**facts))
    status.activity = "Bash make all"
    status.tool_calls, status.tokens, status.usd = 3, 1_500, 0.5
    return status


@pytest.mark.parametrize(
    ("columns", "facts", "row"),
    [
        (80, {}, "  ● joe: mend it · Bash make all · 3 calls · 1.5k tokens · 20 s"),
        (80, {"name": ""}, "  ● plumber: mend it · Bash make all · 3 calls · 1.5k tokens · 20 s"),
        (80, {"description": ""}, "  ● joe · Bash make all · 3 calls · 1.5k tokens · 20 s"),
        (80, {"depth": 0}, "  ● joe: mend it · Bash make all · 3 calls · 1.5k tokens · 20 s"),
        (80, {"depth": 2}, "    ● joe: mend it · Bash make all · 3 calls · 1.5k tokens · 20 s"),
        (80, {"depth": 9}, "        ● joe: mend it · Bash make all · 3 calls · 1.5k tokens · 20 s"),
        (24, {}, "  ● joe: mend it"),
        (12, {}, "  ● joe: me…"),
        (12, {"depth": 3}, "  ● joe: me…"),
        (4, {}, "  ● …"),
    ],
)
def test_the_row_of_an_agent_keeps_its_numbers(columns: int, facts: dict[str, Any], row: str) -> None:
    [shown] = format_agent_rows([make_status(**facts)], 120.0, columns, colours=False)
    assert shown == row


@pytest.mark.parametrize(
    ("now", "changes", "details"),
    [
        (100.0, {}, "    a1 · working · m · $0.5000 · active just now"),
        (104.9, {}, "    a1 · working · m · $0.5000 · active just now"),
        (105.0, {}, "    a1 · working · m · $0.5000 · last event 5.0 s ago"),
        (100.0, {"priced": False}, "    a1 · working · m · price unknown · active just now"),
        (100.0, {"background": True}, "    a1 · working · m · $0.5000 · active just now · in the background"),
        (100.0, {"model": ""}, "    a1 · working · $0.5000 · active just now"),
        (100.0, {"question": make_permission()}, "    a1 · waiting · m · $0.5000 · active just now"),
    ],
)
def test_the_details_of_an_agent_are_in_a_second_row(now: float, changes: Any, details: str) -> None:
    status = make_status()
    for name, value in changes.items():
        setattr(status, name, value)
    assert format_detailed_agent_rows([status], now, 80, colours=False)[1] == details


def test_more_agents_than_rows_are_counted_and_a_question_stands_out() -> None:
    agents = [make_status() for _ in range(8)]
    for format_rows, count in ((format_agent_rows, 8), (format_detailed_agent_rows, 16)):
        assert len(format_rows(agents, 120.0, 80, colours=False)) == count
        rows = format_rows([*agents, make_status()], 120.0, 80, colours=False)
        assert len(rows) == count + 1
        assert rows[-1] == "  … and 1 more"
        assert format_rows([*agents, make_status()], 120.0, 6, colours=False)[-1] == "  … a…"
    asking = make_status()
    asking.question = make_permission()
    assert describe_agent_activity(asking) == "asks: may Bash run?"
    [row] = format_agent_rows([asking], 120.0, 80, colours=True)
    assert "\x1b[33m · asks: may Bash run?\x1b[0m" in row
    [row] = format_agent_rows([make_status()], 120.0, 80, colours=True)
    assert "\x1b[2m · Bash make all\x1b[0m" in row
    idle = AgentStatusRecord(JOE, 0.0, make_start())
    assert describe_agent_activity(idle) == "working"
