"""Agent messenger: a running agent gets messages at its next step, an ended one is resumed with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from shoal.agent.agent_runner import AgentRunner
from shoal.core.agents.subagents import AgentMessageDeliveryReceipt
from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.conversation.messages import TextBlock
from shoal.core.errors import AgentRequestRefused
from shoal.core.events import JournaledEvent, QueueItemAdded
from shoal.core.ids import LEAD_ID, AgentId, IdGenerator
from shoal.runs.agent_registry import EVERYONE, AgentRegistry
from shoal.runs.agent_run import AgentRun
from shoal.runs.inbox_queue import SharedInboxQueue
from shoal.runs.prepared_agent import PreparedAgent
from shoal.runs.run_texts import format_run_notice
from shoal.wire.notification_text import format_mail_message


class ResumeAgentCallback(Protocol):
    async def __call__(
        self, agent: AgentId, parent: AgentRunner, call: str, on_ready: Callable[[PreparedAgent], None]
    ) -> AgentRun:
        """Resume an agent. `on_ready` is called when it is prepared, right before it begins."""
        ...


class AgentMessenger:
    def __init__(
        self,
        *,
        registry: AgentRegistry,
        queue: SharedInboxQueue,
        ids: IdGenerator,
        emit: Callable[[JournaledEvent], None],
        resume: ResumeAgentCallback,
    ) -> None:
        self._registry = registry
        self._queue = queue
        self._ids = ids
        self._emit = emit
        self._resume_run = resume
        self._resuming: set[AgentId] = set()
        self._pending: dict[AgentId, list[InboxItem]] = {}

    def restore_pending_inbox_items(self, pending: dict[AgentId, list[InboxItem]]) -> None:
        """Restore the items that were pending when an earlier process of this session ended."""
        self._pending = pending
        for item in pending.pop(LEAD_ID, []):
            self._queue.put(item)

    async def send_message(
        self, to: str, text: str, *, summary: str, sender: AgentRunner, call: str
    ) -> tuple[AgentMessageDeliveryReceipt, ...]:
        """Send an agent's message to another, or to all running agents."""
        identity = sender.identity
        message_text = format_mail_message(identity.name, text, summary=summary, color=identity.color)
        targets = [self._registry.resolve_agent_id(to)]
        if to == EVERYONE:
            targets = [run.id for run in self._registry.list_running_agents() if run.id != identity.agent]
        if not targets:
            raise AgentRequestRefused(format_run_notice("nobody_running"))
        items = [
            InboxItem(
                id=self._ids.new_short_id(), to=each, content=(TextBlock(text=message_text),), by="agent"
            )
            for each in targets
        ]
        return tuple([await self._deliver_inbox_item(item, message_text, sender, call) for item in items])

    async def send_user_message(self, to: str, text: str, lead: AgentRunner) -> AgentMessageDeliveryReceipt:
        """Send a person's message."""
        item = InboxItem(
            id=self._ids.new_short_id(),
            to=self._registry.resolve_agent_id(to),
            content=(TextBlock(text=text),),
            by="person",
        )
        return await self._deliver_inbox_item(item, text, lead, "")

    async def _deliver_inbox_item(
        self, item: InboxItem, text: str, sender: AgentRunner, call: str
    ) -> AgentMessageDeliveryReceipt:
        to = item.to
        run = self._registry.get_run(to)
        if run is not None and run.is_remote and run.completion is not None:
            raise AgentRequestRefused(format_run_notice("message_to_ended_remote_agent", agent=to))
        if to == LEAD_ID or to in self._resuming or (run is not None and run.completion is None):
            self._enqueue_inbox_item(item, text)
            name = "lead" if to == LEAD_ID else run.facts.name if run else ""
            return AgentMessageDeliveryReceipt(to=to, name=name or to, how="queued")
        return await self._resume_agent_with_item(item, text, sender, call)

    def _enqueue_inbox_item(self, item: InboxItem, text: str) -> None:
        self._emit(QueueItemAdded(agent=item.to, item=item.id, by=item.by, text=text))
        self._queue.put(item)

    async def _resume_agent_with_item(
        self, item: InboxItem, text: str, parent: AgentRunner, call: str
    ) -> AgentMessageDeliveryReceipt:
        agent = item.to

        def enqueue_pending_and_new_items(outfit: PreparedAgent) -> None:
            for pending_item in self._pending.pop(agent, []):
                if not outfit.has_received_item(pending_item):
                    self._queue.put(pending_item)
            self._enqueue_inbox_item(item, text)

        earlier_run = self._registry.get_run(agent)
        self._resuming.add(agent)
        try:
            if earlier_run is not None:
                await earlier_run.wait_until_closed()
            run = await self._resume_run(agent, parent, call, enqueue_pending_and_new_items)
        except BaseException:
            # Messages that arrived meanwhile wait until it can be resumed.
            while (waiting_item := self._queue.take_next(agent)) is not None:
                self._pending.setdefault(agent, []).append(waiting_item)
            raise
        finally:
            self._resuming.discard(agent)
        assert run.monitor is not None
        return AgentMessageDeliveryReceipt(
            to=agent, name=run.facts.name or agent, how="resumed", output=run.monitor.output
        )
