"""The purse of a session: where its limits come from, what is told of them, what a resumed one knows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import shoal
from shoal.core.caps import Caps, Limits, Refusal
from shoal.core.clock import SystemClock
from shoal.core.errors import BudgetSpent
from shoal.core.events import AgentStarted, BudgetWarned, Finished, RequestSettled
from shoal.core.ids import LEAD, AgentId, RequestId
from shoal.core.messages import Text, ToolUse
from shoal.core.usage import ModelCard, Price, Usage
from shoal.models.scripted import Line, ScriptedModel
from shoal.stores.files.journal import FileJournal, read_journal

CARD = ModelCard(id="m", provider="x", price=Price(input=10.0, output=50.0))
ASKED = Usage(input_tokens=1_000, output_tokens=100)
COST = 0.015


def model(answers: int = 9) -> ScriptedModel:
    return ScriptedModel([Line(content=(Text(text="ok"),), usage=ASKED)] * answers, card=CARD)


async def last(session: shoal.Session) -> Finished:
    events = [event async for event in session.run("go")]
    assert isinstance(events[-1], Finished)
    return events[-1]


async def test_limits_come_from_settings_and_flags_are_stronger(tmp_path: Path) -> None:
    settings = {
        "max_budget_usd": 5,
        "max_total_tokens": 1_000,
        "max_requests": 3,
        "max_seconds": 60,
        "max_agents": 4,
        "max_concurrent": 2,
        "max_depth": 1,
        "agent_limits": {"usd": 1},
        "agent_type_limits": {"Explore": {"requests": 2}},
    }
    async with shoal.open(
        cwd=tmp_path,
        model=model(),
        settings=json.dumps({"shoal": settings}),
        max_budget_usd=7.0,
        max_total_tokens=2_000,
        max_agents=6,
    ) as session:
        purse = session.agent.purse.tree
    assert purse.limits == Limits(max_usd=7.0, max_tokens=2_000, max_requests=3, max_seconds=60)
    assert purse.caps == Caps(max_depth=1, max_concurrent=2, max_total=6)
    assert purse.per_agent == Limits(max_usd=1)
    assert purse.per_type == {"Explore": Limits(max_requests=2)}


@pytest.mark.spec("USR-01")
async def test_warnings_are_told_and_on_the_record(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=model(), max_budget_usd=3.5 * COST) as session:
        told = [event async for event in session.run("one") if isinstance(event, BudgetWarned)]
        told += [event async for event in session.run("two") if isinstance(event, BudgetWarned)]
        journal = session.parts.journal
        assert isinstance(journal, FileJournal)
    assert [(event.limit, event.percent) for event in told] == [("usd", 50)]
    assert [r.event for r in read_journal(journal.path) if isinstance(r.event, BudgetWarned)] == told


@pytest.mark.spec("USR-19")
async def test_a_resumed_session_knows_what_its_agents_spent(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=model()) as session:
        await last(session)
        journal = session.parts.journal
        assert isinstance(journal, FileJournal)
        path = journal.path
    worker = AgentId("a1")
    record = FileJournal(path, SystemClock())
    record.append(
        AgentStarted(
            agent=worker,
            kind="Explore",
            name="finder",
            description="find it",
            parent=LEAD,
            call="c",
            depth=1,
            model="m",
            mode="default",
            background=True,
            cwd="/",
        )
    )
    settled = RequestSettled(
        agent=worker, request=RequestId("r"), model="m", usage=ASKED, cost_usd=COST, duration_ms=1
    )
    record.append(settled)
    record.close()
    limits = {"agent_type_limits": {"Explore": {"requests": 1}}, "max_agents": 1, "max_requests": 3}
    async with shoal.open(
        cwd=tmp_path, model=model(), resume=session.id, settings=json.dumps({"shoal": limits})
    ) as again:
        purse = again.agent.purse.tree
        assert purse.by_kind == {"lead": (ASKED, COST), "Explore": (ASKED, COST)}
        assert purse.usd == pytest.approx(2 * COST)
        assert purse.started == 1
        refused = purse.start("Plan", 1)
        assert isinstance(refused, Refusal)
        assert refused.limit == "total"
        typed = purse.account(worker, "Explore").reserve(CARD, 10)
        assert isinstance(typed, Refusal)
        assert typed.scope == "kind"
        assert (await last(again)).reason == "done"
        spent = await last(again)
        assert (spent.reason, spent.limit, spent.requests) == ("budget", "requests", 0)
        assert spent.cost_usd == pytest.approx(3 * COST)


@pytest.mark.spec("USR-19")
async def test_what_a_summary_costs_counts_too(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=model()) as session:
        await last(session)
        await last(session)
        await session.compact()
        purse, journal = session.agent.purse.tree, session.parts.journal
        assert isinstance(journal, FileJournal)
    settled = [r.event for r in read_journal(journal.path) if isinstance(r.event, RequestSettled)]
    assert len(settled) == 3
    assert purse.usage == sum((event.usage for event in settled), Usage())
    assert purse.usd == pytest.approx(3 * COST)


async def test_a_summary_that_is_asked_for_is_refused_on_a_spent_budget_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    async with shoal.open(cwd=tmp_path, model=model(), max_total_tokens=1_100) as session:
        await last(session)
        before = list(session.agent.conversation.messages)
        with pytest.raises(BudgetSpent, match="the budget of 1,100 tokens is spent"):
            await session.compact()
        assert session.agent.conversation.messages == before


@pytest.mark.spec("USR-01")
async def test_time_that_is_up_ends_the_turn_with_a_reason(tmp_path: Path) -> None:
    mind = [ToolUse(id="c", name="Bash", input={"command": "sleep 60"})]
    async with shoal.open(
        cwd=tmp_path,
        model=ScriptedModel(mind, card=CARD),
        settings='{"shoal": {"max_seconds": 0.3}}',
        skip_permissions=True,
    ) as session:
        finished = await last(session)
        assert (finished.reason, finished.limit) == ("deadline", "seconds")
        assert "0.3 s for the whole run have passed" in finished.detail
        assert session.agent.conversation.messages[-1].role == "user"
