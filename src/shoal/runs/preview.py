"""Approval of many agents at once: one question per message, with the estimated cost."""

from __future__ import annotations

import asyncio
from typing import Any

from shoal.agent.agent import Agent
from shoal.core.budget import Purse
from shoal.core.errors import AgentRefused
from shoal.core.fanout import Estimate, estimate
from shoal.core.ids import LEAD, AgentId
from shoal.core.messages import ToolUse
from shoal.core.questions import Allowed, Answer, Denied, MayRun
from shoal.core.tools import ALIASES, Site

_NAMED = 20
_START = 4_000
"""Assumed tokens of an agent's first request: its prompt and its tools."""


class Preview:
    """Asks a person before more than `threshold` agents start from one message; None never asks."""

    def __init__(self, most: int | None, purse: Purse) -> None:
        self._most = most
        self._purse = purse
        self._asked: dict[AgentId, tuple[str, asyncio.Future[Answer]]] = {}
        """Last such message of each agent: its calls need not all start at once."""

    async def allow(self, parent: Agent, site: Site) -> None:
        """Raise `AgentRequestRefused` if the person denies."""
        if self._most is None or len(site.calls) <= self._most:
            return
        calls = [call for call in site.calls if ALIASES.get(call.name, call.name) == "Agent"]
        if len(calls) <= self._most:
            return
        match await self._answer(calls, parent, site):
            case Allowed():
                return
            case Denied(reason=reason):
                raise AgentRefused(f"No agent was started, of the {len(calls)} in your message: {reason}")
            case _:
                raise AgentRefused("No agent was started: the answer was not about starting them.")

    async def _answer(self, calls: list[ToolUse], parent: Agent, site: Site) -> Answer:
        """Ask for the first of the calls; the others, concurrent or later, get the same answer."""
        me, first = site.agent.agent, calls[0].id
        asked = self._asked.get(me)
        if asked is not None and asked[0] == first:
            return await asyncio.shield(asked[1])
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked[me] = first, answer
        try:
            given = await site.desk.ask(self._question(calls, parent, site))
        except Exception as error:
            # The concurrent calls fail with the same error.
            answer.set_exception(error)
            answer.exception()
            raise
        except BaseException:
            answer.cancel()
            raise
        answer.set_result(given)
        return given

    def _question(self, calls: list[ToolUse], parent: Agent, site: Site) -> MayRun:
        cost = estimate(len(calls), _START, parent.model.card, self._mean())
        return MayRun(
            id=site.ids.short(),
            agent=site.agent.agent,
            tool_use_id=site.call_id,
            tool="Agent",
            input={"agents": [_wanted(call.input) for call in calls[:_NAMED]], "count": len(calls)},
            reason=f"it would start {len(calls)} agents at once, {told(cost)}",
        )

    def _mean(self) -> float | None:
        spent = [usd for agent, (_, usd) in self._purse.by_agent.items() if agent != LEAD]
        return sum(spent) / len(spent) if spent else None


def told(cost: Estimate) -> str:
    if cost.usd is None:
        return f"about {cost.tokens:,} tokens in all"
    how = "as agents here have cost so far" if cost.measured else "estimated"
    return f"about ${cost.usd:.2f} in all ({how})"


def _wanted(given: dict[str, Any]) -> str:
    return f"{given.get('subagent_type') or 'general-purpose'}: {given.get('description', '')}"
