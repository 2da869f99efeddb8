"""Approval of many agents at once: one question per message, with the estimated cost."""

from __future__ import annotations

import asyncio
from typing import Any

from shoal.agent.agent_runner import AgentRunner
from shoal.core.budgets.budget import Budget
from shoal.core.budgets.spawn_estimates import SpawnCostEstimate, estimate_spawn_cost
from shoal.core.budgets.usage import ModelCard
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.conversation.tools import TOOL_ALIASES, ToolContext
from shoal.core.errors import AgentRequestRefused
from shoal.core.ids import LEAD_ID, AgentId
from shoal.core.permissions.questions import AllowAnswer, Answer, DenyAnswer, PermissionQuestion
from shoal.runs.run_texts import format_run_notice

_MAX_LISTED_CALLS = 20
_ASSUMED_START_TOKENS = 4_000
"""Assumed tokens of an agent's first request: its prompt and its tools."""


class BulkSpawnApproval:
    """Asks a person before more than `threshold` agents start from one message; None never asks."""

    def __init__(self, threshold: int | None, budget: Budget) -> None:
        self._threshold = threshold
        self._budget = budget
        self._asked: dict[AgentId, tuple[str, asyncio.Future[Answer]]] = {}
        """Last such message of each agent: its calls need not all start at once."""

    async def require_approval(self, parent: AgentRunner, context: ToolContext) -> None:
        """Raise `AgentRequestRefused` if the user denies."""
        if self._threshold is None or len(context.calls) <= self._threshold:
            return
        calls = [call for call in context.calls if TOOL_ALIASES.get(call.name, call.name) == "Agent"]
        if len(calls) <= self._threshold:
            return
        match await self._ask_once_per_message(calls, parent, context):
            case AllowAnswer():
                return
            case DenyAnswer(reason=reason):
                raise AgentRequestRefused(
                    format_run_notice("agents_refused", count=len(calls), reason=reason)
                )
            case _:
                raise AgentRequestRefused(format_run_notice("agents_unanswered"))

    async def _ask_once_per_message(
        self, calls: list[ToolUseBlock], parent: AgentRunner, context: ToolContext
    ) -> Answer:
        """Ask for the first of the calls; the others, concurrent or later, get the same answer."""
        agent_id, first_call = context.agent.agent, calls[0].id
        last_asked = self._asked.get(agent_id)
        if last_asked is not None and last_asked[0] == first_call:
            return await asyncio.shield(last_asked[1])
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked[agent_id] = first_call, future
        try:
            answer = await context.question_broker.ask_person_or_deny(
                self._build_spawn_question(calls, parent, context)
            )
        except Exception as error:
            # The concurrent calls fail with the same error.
            future.set_exception(error)
            future.exception()
            raise
        except BaseException:
            future.cancel()
            raise
        future.set_result(answer)
        return answer

    def _build_spawn_question(
        self, calls: list[ToolUseBlock], parent: AgentRunner, context: ToolContext
    ) -> PermissionQuestion:
        cost = describe_agents_cost(len(calls), parent.model.card, self._budget)
        return PermissionQuestion(
            id=context.ids.new_short_id(),
            agent=context.agent.agent,
            tool_use_id=context.call_id,
            tool="Agent",
            input={
                "agents": [_describe_spawn_call(call.input) for call in calls[:_MAX_LISTED_CALLS]],
                "count": len(calls),
            },
            reason=f"it would start {len(calls)} agents at once, {cost}",
        )


def describe_agents_cost(count: int, card: ModelCard, budget: Budget) -> str:
    """Return the estimated cost of that many agents, based on those that ran so far."""
    costs = [usd for agent, (_, usd) in budget.spending_by_agent.items() if agent != LEAD_ID]
    mean = sum(costs) / len(costs) if costs else None
    return format_spawn_estimate(estimate_spawn_cost(count, _ASSUMED_START_TOKENS, card, mean))


def format_spawn_estimate(cost: SpawnCostEstimate) -> str:
    if cost.usd is None:
        return f"about {cost.tokens:,} tokens in total"
    basis = "based on earlier agents here" if cost.measured else "estimated"
    return f"about ${cost.usd:.2f} in total ({basis})"


def _describe_spawn_call(arguments: dict[str, Any]) -> str:
    return f"{arguments.get('subagent_type') or 'general-purpose'}: {arguments.get('description', '')}"
