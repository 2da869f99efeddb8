"""The status of agents computed from their events, and the rows that show it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shoal.app.run_view.agent_status import RunViewAgentsState
from shoal.core.agents.subagents import AgentResult
from shoal.core.budgets.usage import Usage
from shoal.core.events import (
    AgentEnded,
    AgentMovedToBackground,
    AgentStarted,
    Event,
    MemberWentIdle,
    MemberWoken,
    ModelRequestFailed,
    ModelRequestSettled,
    NoteAdded,
    QuestionAnswered,
    QuestionAsked,
    SessionStarted,
    ToolFinished,
    ToolStarted,
    TurnStarted,
)
from shoal.core.ids import LEAD_ID, AgentId, RequestId, SessionId
from shoal.core.permissions.questions import AllowAnswer, PermissionQuestion
from shoal.core.text.text_format import strip_terminal_codes
from shoal.surfaces.cli.plain.agent_rows import format_agent_rows, format_detailed_agent_rows
from shoal.surfaces.terminal.text_styles import measure_text_width

JOE, ANN = AgentId("a1"), AgentId("a2")


def make_agent_start(agent: AgentId, parent: AgentId = LEAD_ID, depth: int = 1) -> AgentStarted:
    return AgentStarted(
        agent=agent,
        kind="plumber",
        name="joe" if agent == JOE else "",
        description="mend the long pipe under the sink 水管",
        parent=parent,
        call=f"call-{agent}",
        depth=depth,
        model="m",
        mode="default",
        background=False,
        cwd="/",
    )


def make_agent_end(agent: AgentId) -> AgentEnded:
    done = AgentResult(
        id="c", agent=agent, status="failed", kind="plumber", description="d", report_to=LEAD_ID, call="call"
    )
    return AgentEnded(agent=agent, completion=done)


def make_question(agent: AgentId) -> QuestionAsked:
    question = PermissionQuestion(id="q", agent=agent, tool_use_id="t", tool="Bash", input={}, reason="r")
    return QuestionAsked(agent=agent, question=question)


def make_settled_request(agent: AgentId, cost: float | None) -> ModelRequestSettled:
    return ModelRequestSettled(
        agent=agent,
        request=RequestId("r"),
        model="m2",
        usage=Usage(input_tokens=1000),
        cost_usd=cost,
        duration_ms=1,
    )


def apply_events(*events: Event) -> RunViewAgentsState:
    statuses = RunViewAgentsState()
    for at, event in enumerate(events):
        statuses.apply_event(event, float(at))
    return statuses


def test_the_status_of_an_agent_follows_its_events() -> None:
    statuses = apply_events(
        TurnStarted(agent=LEAD_ID, turn=1, prompt="go"),
        make_agent_start(JOE),
        ToolStarted(agent=JOE, call="c", tool="Bash", preview="ls"),
        make_settled_request(JOE, 0.5),
        make_question(JOE),
    )
    joe = statuses.all[JOE]
    assert (joe.state, joe.activity) == ("waiting", "waiting for your answer")
    assert (joe.tokens, joe.usd, joe.model) == (1000, 0.5, "m2")
    statuses.apply_event(QuestionAnswered(agent=JOE, question="q", answer=AllowAnswer()), 6.0)
    assert (joe.state, joe.activity) == ("working", "Bash ls")
    finished = ToolFinished(
        agent=JOE, call="c", tool="Bash", is_error=False, size=0, duration_ms=1, preview=""
    )
    statuses.apply_event(finished, 7.0)
    statuses.apply_event(AgentMovedToBackground(agent=JOE), 8.0)
    assert (joe.tool_calls, joe.activity, joe.background, joe.last_event_at) == (1, "thinking", True, 8.0)
    statuses.apply_event(make_agent_end(JOE), 9.0)
    assert (joe.state, joe.activity, statuses.list_working_agents()) == ("failed", "", [])
    assert statuses.all[LEAD_ID].state == "working"


def test_a_retrying_agent_shows_its_delay_and_reason() -> None:
    failed = ModelRequestFailed(
        agent=JOE, request=RequestId("r"), reason="x cannot be reached.", billed=False, retry_in=67.0
    )
    assert (
        apply_events(make_agent_start(JOE), failed).all[JOE].activity
        == "retrying in 1 min 07 s: x cannot be reached."
    )


def test_a_resumed_agent_keeps_its_usage_and_its_first_call() -> None:
    statuses = apply_events(make_agent_start(JOE), make_settled_request(JOE, 0.5), make_agent_end(JOE))
    statuses.apply_event(replace(make_agent_start(JOE), call="", resumed=True), 9.0)
    joe = statuses.all[JOE]
    assert (joe.state, joe.starting_call, joe.tokens, joe.since) == ("working", "call-a1", 1000, 9.0)


def test_agents_of_a_dead_process_are_gone_when_the_session_restarts() -> None:
    session_start = SessionStarted(
        agent=LEAD_ID, session=SessionId("s"), cwd="/", model="m", mode="default", tools=()
    )
    statuses = apply_events(session_start, make_agent_start(JOE), make_question(JOE), session_start)
    assert (statuses.all[JOE].state, statuses.all[JOE].question) == ("gone", None)


def test_a_member_is_working_after_waking_and_idle_otherwise() -> None:
    statuses = RunViewAgentsState()
    member = replace(make_agent_start(JOE), team="roof")
    assert statuses.apply_event(member, 1).state == "idle"
    assert statuses.apply_event(MemberWoken(agent=JOE), 2).state == "working"
    assert statuses.apply_event(MemberWentIdle(agent=JOE, reason="available"), 3).state == "idle"
    assert statuses.list_working_agents() == []
    # Resumed by another process, it is idle until something arrives.
    assert statuses.apply_event(replace(member, resumed=True), 4).state == "idle"


def test_agents_are_listed_after_their_parents() -> None:
    third = AgentId("a3")
    statuses = apply_events(
        TurnStarted(agent=LEAD_ID, turn=1, prompt="go"),
        make_agent_start(JOE),
        make_agent_start(ANN),
        make_agent_start(third, JOE, 2),
    )
    assert [each.agent for each in statuses.iter_agents_in_tree_order()] == [LEAD_ID, JOE, third, ANN]


@pytest.mark.parametrize("columns", [10, 20, 39, 60, 79, 200])
def test_a_row_is_never_wider_than_the_screen(columns: int) -> None:
    statuses = apply_events(
        make_agent_start(JOE),
        ToolStarted(agent=JOE, call="c", tool="Bash", preview="echo " + "word " * 40),
        make_agent_start(ANN, JOE, 9),
        make_question(ANN),
    )
    agents = statuses.list_working_agents()
    for rows in (
        format_agent_rows(agents, 100.0, columns, colours=True),
        format_detailed_agent_rows(agents, 100.0, columns, colours=True),
    ):
        assert all(0 < measure_text_width(strip_terminal_codes(row)) <= columns for row in rows)


@pytest.mark.parametrize(("color", "code"), [("pink", "38;5;213"), ("#ff8800", "38;2;255;136;0")])
def test_a_row_has_the_colour_of_its_agent(color: str, code: str) -> None:
    statuses = RunViewAgentsState()
    statuses.apply_event(replace(make_agent_start(JOE), color=color), 0.0)
    [row] = format_agent_rows(statuses.list_working_agents(), 0.0, 80, colours=True)
    assert f"\x1b[{code}m●" in row


def test_agents_beyond_the_row_limit_are_counted() -> None:
    statuses = apply_events(*(make_agent_start(AgentId(f"a{number}")) for number in range(11)))
    rows = format_agent_rows(statuses.list_working_agents(), 20.0, 80, colours=False)
    assert len(rows) == 9
    assert rows[-1] == "  … and 3 more"


def test_a_note_repeated_by_every_agent_is_shown_once() -> None:
    notes = [
        NoteAdded(agent=agent, text="the server is gone") for agent in (LEAD_ID, AgentId("a1"), AgentId("a2"))
    ]
    statuses = apply_events(*notes, NoteAdded(agent=AgentId("a1"), text="my own"))
    assert [statuses.is_repeated_note(note) for note in notes] == [False, True, True]
    assert not statuses.is_repeated_note(NoteAdded(agent=AgentId("a1"), text="my own"))


def test_a_member_started_in_an_earlier_run_is_shown_by_name() -> None:
    statuses = RunViewAgentsState()
    statuses.apply_event(MemberWoken(agent=AgentId("checker@repair")), 0.0)
    assert statuses.get_agent_name(AgentId("checker@repair")) == "checker"
