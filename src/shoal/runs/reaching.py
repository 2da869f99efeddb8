"""Agent messenger: a running agent gets messages at its next step, an ended one is resumed with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from shoal.agent.agent import Agent
from shoal.core.agents import Reached
from shoal.core.arrivals import Item
from shoal.core.errors import AgentRefused
from shoal.core.events import Journaled, Queued
from shoal.core.ids import LEAD, AgentId, Ids
from shoal.core.messages import Text
from shoal.runs.outfit import Outfit
from shoal.runs.queue import Queue
from shoal.runs.roll import EVERYONE, Roll
from shoal.runs.run import Run
from shoal.wire.notices import message_from


class Resume(Protocol):
    async def __call__(
        self, agent: AgentId, parent: Agent, call: str, ready: Callable[[Outfit], None]
    ) -> Run:
        """Resume an agent. `on_ready` is called when it is prepared, right before it begins."""
        ...


class Reaching:
    def __init__(
        self, *, roll: Roll, queue: Queue, ids: Ids, emit: Callable[[Journaled], None], resume: Resume
    ) -> None:
        self._roll = roll
        self._queue = queue
        self._ids = ids
        self._emit = emit
        self._resume_run = resume
        self._resuming: set[AgentId] = set()
        self._pending: dict[AgentId, list[Item]] = {}

    def recover(self, pending: dict[AgentId, list[Item]]) -> None:
        """Restore the items that were pending when an earlier process of this session ended."""
        self._pending = pending
        for item in pending.pop(LEAD, []):
            self._queue.put(item)

    async def send(
        self, to: str, text: str, *, summary: str, sender: Agent, call: str
    ) -> tuple[Reached, ...]:
        """Send an agent's message to another, or to all running agents."""
        who = sender.identity
        said = message_from(who.name, text, summary=summary, color=who.color)
        targets = [self._roll.meant(to)]
        if to == EVERYONE:
            targets = [run.id for run in self._roll.at_work() if run.id != who.agent]
        if not targets:
            raise AgentRefused("Nobody is at work who could be told. ListAgents shows who there is.")
        items = [
            Item(id=self._ids.short(), to=each, content=(Text(text=said),), by="agent") for each in targets
        ]
        return tuple([await self._deliver(item, said, sender, call) for item in items])

    async def say(self, to: str, text: str, lead: Agent) -> Reached:
        """Send a person's message."""
        item = Item(id=self._ids.short(), to=self._roll.meant(to), content=(Text(text=text),), by="person")
        return await self._deliver(item, text, lead, "")

    async def _deliver(self, item: Item, said: str, sender: Agent, call: str) -> Reached:
        to = item.to
        run = self._roll.get(to)
        if to == LEAD or to in self._resuming or (run is not None and run.completion is None):
            self._post(item, said)
            name = "lead" if to == LEAD else run.facts.name if run else ""
            return Reached(to=to, name=name or to, how="queued")
        return await self._resume(item, said, sender, call)

    def _post(self, item: Item, text: str) -> None:
        self._emit(Queued(agent=item.to, item=item.id, by=item.by, text=text))
        self._queue.put(item)

    async def _resume(self, item: Item, said: str, parent: Agent, call: str) -> Reached:
        agent = item.to

        def ready(outfit: Outfit) -> None:
            for left in self._pending.pop(agent, []):
                if not outfit.knows(left):
                    self._queue.put(left)
            self._post(item, said)

        earlier = self._roll.get(agent)
        self._resuming.add(agent)
        try:
            if earlier is not None:
                await earlier.over()
            run = await self._resume_run(agent, parent, call, ready)
        except BaseException:
            # Messages that arrived meanwhile wait until it can be resumed.
            while (waiting := self._queue.take(agent)) is not None:
                self._pending.setdefault(agent, []).append(waiting)
            raise
        finally:
            self._resuming.discard(agent)
        assert run.witness is not None
        return Reached(to=agent, name=run.facts.name or agent, how="resumed", output=str(run.witness.output))
