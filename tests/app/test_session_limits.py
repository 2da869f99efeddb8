"""The budget of a session: sources of its limits, warnings, and costs after a resume."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from app_session_helpers import run_prompt

import shoal
from shoal.core.budgets.limits import AgentCountLimits, BudgetLimits, BudgetRefusal
from shoal.core.budgets.usage import ModelCard, TokenPrice, Usage
from shoal.core.clock import SystemClock
from shoal.core.conversation.messages import TextBlock, ToolUseBlock
from shoal.core.errors import BudgetExhausted
from shoal.core.events import AgentStarted, BudgetThresholdReached, ModelRequestSettled
from shoal.core.ids import LEAD_ID, AgentId, RequestId
from shoal.models.scripted_model import ScriptedModel, ScriptedReply
from shoal.stores.files.sessions.file_journal import FileJournal, read_journal

CARD = ModelCard(id="m", provider="x", price=TokenPrice(input=10.0, output=50.0))
ASKED = Usage(input_tokens=1_000, output_tokens=100)
COST = 0.015


def create_priced_model(answers: int = 9) -> ScriptedModel:
    return ScriptedModel([ScriptedReply(content=(TextBlock(text="ok"),), usage=ASKED)] * answers, card=CARD)


async def test_limits_come_from_settings_and_flags_override_them(tmp_path: Path) -> None:
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
        model=create_priced_model(),
        settings=json.dumps({"shoal": settings}),
        max_budget_usd=7.0,
        max_total_tokens=2_000,
        max_agents=6,
    ) as session:
        budget = session.agent.budget.budget
    assert budget.limits == BudgetLimits(max_usd=7.0, max_tokens=2_000, max_requests=3, max_seconds=60)
    assert budget.agent_caps == AgentCountLimits(max_depth=1, max_concurrent=2, max_total=6)
    assert budget.per_agent == BudgetLimits(max_usd=1)
    assert budget.per_type == {"Explore": BudgetLimits(max_requests=2)}


@pytest.mark.spec("USR-01")
async def test_budget_warnings_are_reported_and_in_the_journal(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=create_priced_model(), max_budget_usd=3.5 * COST) as session:
        warnings = [event async for event in session.run("one") if isinstance(event, BudgetThresholdReached)]
        warnings += [event async for event in session.run("two") if isinstance(event, BudgetThresholdReached)]
        journal = session.runtime.store.journal
        assert isinstance(journal, FileJournal)
    assert [(event.limit, event.percent) for event in warnings] == [("usd", 50)]
    assert [
        r.event for r in read_journal(journal.path) if isinstance(r.event, BudgetThresholdReached)
    ] == warnings


@pytest.mark.spec("USR-19")
async def test_a_resumed_session_counts_the_earlier_costs_of_its_agents(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=create_priced_model()) as session:
        await run_prompt(session)
        journal = session.runtime.store.journal
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
            parent=LEAD_ID,
            call="c",
            depth=1,
            model="m",
            mode="default",
            background=True,
            cwd="/",
        )
    )
    settled = ModelRequestSettled(
        agent=worker, request=RequestId("r"), model="m", usage=ASKED, cost_usd=COST, duration_ms=1
    )
    record.append(settled)
    record.close()
    limits = {"agent_type_limits": {"Explore": {"requests": 1}}, "max_agents": 1, "max_requests": 3}
    async with shoal.open(
        cwd=tmp_path, model=create_priced_model(), resume=session.id, settings=json.dumps({"shoal": limits})
    ) as again:
        budget = again.agent.budget.budget
        assert budget.spending_by_agent_type == {"lead": (ASKED, COST), "Explore": (ASKED, COST)}
        assert budget.usd == pytest.approx(2 * COST)
        assert budget.started_agent_count == 1
        refused = budget.open_agent_slot("Plan", 1)
        assert isinstance(refused, BudgetRefusal)
        assert refused.limit == "total"
        typed = budget.get_or_create_agent_budget(worker, "Explore").reserve(CARD, 10)
        assert isinstance(typed, BudgetRefusal)
        assert typed.scope == "kind"
        assert (await run_prompt(again)).reason == "done"
        spent = await run_prompt(again)
        assert (spent.reason, spent.limit, spent.requests) == ("budget", "requests", 0)
        assert spent.cost_usd == pytest.approx(3 * COST)


@pytest.mark.spec("USR-19")
async def test_the_cost_of_a_compaction_summary_counts(tmp_path: Path) -> None:
    async with shoal.open(cwd=tmp_path, model=create_priced_model()) as session:
        await run_prompt(session)
        await run_prompt(session)
        await session.compact()
        budget, journal = session.agent.budget.budget, session.runtime.store.journal
        assert isinstance(journal, FileJournal)
    settled = [r.event for r in read_journal(journal.path) if isinstance(r.event, ModelRequestSettled)]
    assert len(settled) == 3
    assert budget.usage == sum((event.usage for event in settled), Usage())
    assert budget.usd == pytest.approx(3 * COST)


async def test_a_manual_compaction_is_refused_on_a_spent_budget_and_loses_nothing(
    tmp_path: Path,
) -> None:
    async with shoal.open(cwd=tmp_path, model=create_priced_model(), max_total_tokens=1_100) as session:
        await run_prompt(session)
        before = list(session.agent.conversation.messages)
        with pytest.raises(BudgetExhausted, match="the budget of 1,100 tokens is spent"):
            await session.compact()
        assert session.agent.conversation.messages == before


@pytest.mark.spec("USR-01")
async def test_an_exceeded_time_limit_ends_the_turn_with_a_reason(tmp_path: Path) -> None:
    replies = [ToolUseBlock(id="c", name="Bash", input={"command": "sleep 60"})]
    async with shoal.open(
        cwd=tmp_path,
        model=ScriptedModel(replies, card=CARD),
        settings='{"shoal": {"max_seconds": 0.3}}',
        skip_permissions=True,
    ) as session:
        finished = await run_prompt(session)
        assert (finished.reason, finished.limit) == ("deadline", "seconds")
        assert "0.3 s for the whole run has passed" in finished.detail
        assert session.agent.conversation.messages[-1].role == "user"
