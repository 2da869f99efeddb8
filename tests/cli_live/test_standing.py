"""How agents stand, from their events alone, and the rows a person sees of it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shoal.app.picture.standing import Standings
from shoal.core.agents import Completion
from shoal.core.events import (
    AgentEnded,
    AgentMoved,
    AgentStarted,
    Answered,
    Asked,
    Event,
    MemberRested,
    MemberWoken,
    Noted,
    RequestFailed,
    RequestSettled,
    SessionStarted,
    ToolFinished,
    ToolStarted,
    TurnStarted,
)
from shoal.core.ids import LEAD, AgentId, RequestId, SessionId
from shoal.core.questions import Allowed, MayRun
from shoal.core.usage import Usage
from shoal.core.wording import clean
from shoal.surfaces.cli.plain.agent_rows import agent_rows, detailed_rows
from shoal.surfaces.terminal.paint import width

JOE, ANN = AgentId("a1"), AgentId("a2")


def started(agent: AgentId, parent: AgentId = LEAD, depth: int = 1) -> AgentStarted:
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


def ended(agent: AgentId) -> AgentEnded:
    done = Completion(
        id="c", agent=agent, status="failed", kind="plumber", description="d", report_to=LEAD, call="call"
    )
    return AgentEnded(agent=agent, completion=done)


def asked(agent: AgentId) -> Asked:
    question = MayRun(id="q", agent=agent, tool_use_id="t", tool="Bash", input={}, reason="r")
    return Asked(agent=agent, question=question)


def settled(agent: AgentId, cost: float | None) -> RequestSettled:
    return RequestSettled(
        agent=agent,
        request=RequestId("r"),
        model="m2",
        usage=Usage(input_tokens=1000),
        cost_usd=cost,
        duration_ms=1,
    )


def after(*events: Event) -> Standings:
    standings = Standings()
    for at, event in enumerate(events):
        standings.hear(event, float(at))
    return standings


def test_an_agent_stands_as_its_events_tell() -> None:
    standings = after(
        TurnStarted(agent=LEAD, turn=1, prompt="go"),
        started(JOE),
        ToolStarted(agent=JOE, call="c", tool="Bash", preview="ls"),
        settled(JOE, 0.5),
        asked(JOE),
    )
    joe = standings.all[JOE]
    assert (joe.state, joe.doing) == ("waiting", "waiting for your answer")
    assert (joe.tokens, joe.usd, joe.model) == (1000, 0.5, "m2")
    standings.hear(Answered(agent=JOE, question="q", answer=Allowed()), 6.0)
    assert (joe.state, joe.doing) == ("working", "Bash ls")
    finished = ToolFinished(
        agent=JOE, call="c", tool="Bash", is_error=False, size=0, duration_ms=1, preview=""
    )
    standings.hear(finished, 7.0)
    standings.hear(AgentMoved(agent=JOE), 8.0)
    assert (joe.tool_calls, joe.doing, joe.background, joe.heard) == (1, "thinking", True, 8.0)
    standings.hear(ended(JOE), 9.0)
    assert (joe.state, joe.doing, standings.at_work()) == ("failed", "", [])
    assert standings.all[LEAD].state == "working"


def test_one_that_waits_to_ask_again_says_so_to_who_reads_the_journal() -> None:
    failed = RequestFailed(
        agent=JOE, request=RequestId("r"), reason="x cannot be reached.", billed=False, retry_in=67.0
    )
    assert after(started(JOE), failed).all[JOE].doing == "asking again in 1 min 07 s: x cannot be reached."


def test_one_that_goes_on_keeps_what_it_took_and_the_call_that_first_started_it() -> None:
    standings = after(started(JOE), settled(JOE, 0.5), ended(JOE))
    standings.hear(replace(started(JOE), call="", resumed=True), 9.0)
    joe = standings.all[JOE]
    assert (joe.state, joe.call, joe.tokens, joe.since) == ("working", "call-a1", 1000, 9.0)


def test_agents_of_a_process_that_died_are_gone_when_the_session_comes_up_again() -> None:
    up = SessionStarted(agent=LEAD, session=SessionId("s"), cwd="/", model="m", mode="default", tools=())
    standings = after(up, started(JOE), asked(JOE), up)
    assert (standings.all[JOE].state, standings.all[JOE].question) == ("gone", None)


def test_a_teammate_works_when_it_says_so_and_is_idle_else() -> None:
    standings = Standings()
    mate = replace(started(JOE), team="roof")
    assert standings.hear(mate, 1).state == "idle"
    assert standings.hear(MemberWoken(agent=JOE), 2).state == "working"
    assert standings.hear(MemberRested(agent=JOE, reason="available"), 3).state == "idle"
    assert standings.at_work() == []
    # Taken up again by another process, it has nothing to do before something comes.
    assert standings.hear(replace(mate, resumed=True), 4).state == "idle"


def test_each_comes_after_the_one_that_started_it() -> None:
    third = AgentId("a3")
    standings = after(
        TurnStarted(agent=LEAD, turn=1, prompt="go"), started(JOE), started(ANN), started(third, JOE, 2)
    )
    assert [each.agent for each in standings.tree()] == [LEAD, JOE, third, ANN]


@pytest.mark.parametrize("columns", [10, 20, 39, 60, 79, 200])
def test_a_row_is_never_wider_than_the_screen(columns: int) -> None:
    standings = after(
        started(JOE),
        ToolStarted(agent=JOE, call="c", tool="Bash", preview="echo " + "word " * 40),
        started(ANN, JOE, 9),
        asked(ANN),
    )
    agents = standings.at_work()
    for rows in (
        agent_rows(agents, 100.0, columns, colours=True),
        detailed_rows(agents, 100.0, columns, colours=True),
    ):
        assert all(0 < width(clean(row)) <= columns for row in rows)


@pytest.mark.parametrize(("color", "code"), [("pink", "38;5;213"), ("#ff8800", "38;2;255;136;0")])
def test_a_row_has_the_colour_of_its_agent(color: str, code: str) -> None:
    standings = Standings()
    standings.hear(replace(started(JOE), color=color), 0.0)
    [row] = agent_rows(standings.at_work(), 0.0, 80, colours=True)
    assert f"\x1b[{code}m●" in row


def test_of_many_agents_the_rest_is_counted() -> None:
    standings = after(*(started(AgentId(f"a{number}")) for number in range(11)))
    rows = agent_rows(standings.at_work(), 20.0, 80, colours=False)
    assert len(rows) == 9
    assert rows[-1] == "  … and 3 more"


def test_what_every_agent_notes_is_told_once() -> None:
    notes = [Noted(agent=agent, text="the server is gone") for agent in (LEAD, AgentId("a1"), AgentId("a2"))]
    standings = after(*notes, Noted(agent=AgentId("a1"), text="my own"))
    assert [standings.is_told(note) for note in notes] == [False, True, True]
    assert not standings.is_told(Noted(agent=AgentId("a1"), text="my own"))


def test_a_teammate_whose_start_an_earlier_run_told_goes_by_its_name() -> None:
    standings = Standings()
    standings.hear(MemberWoken(agent=AgentId("checker@repair")), 0.0)
    assert standings.name(AgentId("checker@repair")) == "checker"
