"""Items on their way to an agent on another machine, until they are in its transcript."""

from __future__ import annotations

from shoal.core.conversation.inbox_items import InboxItem
from shoal.core.ids import AgentId
from shoal.runs.inbox_queue import SharedInboxQueue
from shoal.team.channel.member_channel_server import MemberChannelServer
from shoal.wire.member_channel_codec import AgentItemSentMessage


class RemoteAgentInbox:
    """Sends the items that wait for an agent to its process, and to the next one if that is lost."""

    def __init__(self, queue: SharedInboxQueue, agent: AgentId) -> None:
        self._queue = queue
        self._agent = agent
        self._unconfirmed: dict[str, InboxItem] = {}

    async def send_items(self, channel: MemberChannelServer) -> None:
        """Send what no process has confirmed, and then each new item, until canceled."""
        for item in self._unconfirmed.values():
            channel.send_message(AgentItemSentMessage(item=item))
        while True:
            await self._queue.wait_for_waking_item(self._agent)
            while (added := self._queue.take_next(self._agent)) is not None:
                self._unconfirmed[added.id] = added
                channel.send_message(AgentItemSentMessage(item=added))

    def confirm_delivery(self, item: str) -> None:
        self._unconfirmed.pop(item, None)

    def put_back_unconfirmed(self) -> None:
        """Return what the ended agent has not got to the queue, so that its result says so."""
        for item in reversed(self._unconfirmed.values()):
            self._queue.put_back(item)
        self._unconfirmed.clear()
