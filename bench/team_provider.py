"""Measures a team from another process, which is its provider and writes to its inboxes.

`python -m bench.team_provider --team crew --members 8` prints its address, then, each as a line of JSON, the
seconds from the reply that starts the teammates to the first request of the last one, and for each line
`wake` that it reads the seconds from the return of a post to the request that holds it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.instant_model import FINAL_TEXT
from shoal.core.budgets.usage import Usage
from shoal.core.clock import SystemClock
from shoal.core.conversation.messages import TextBlock, ToolUseBlock
from shoal.core.ids import IdGenerator
from shoal.core.names import AgentName, TeamName
from shoal.core.teams.mail import MailMessage
from shoal.stores.files.mailboxes.file_mailbox_store import FileMailboxStore
from shoal.testing.messages_format import MockMessagesApiFormat
from shoal.testing.mock_replies import MockReply
from shoal.testing.servers import MockServer, run_mock_server

_USAGE = Usage(input_tokens=100, output_tokens=10)
_MEMBER = re.compile(r"- You are ([\w-]+), a member of the team")
_WAKE = re.compile(r"WAKE-(\d+)")
_IDLE_SECONDS = 0.03
"""Seconds after which a teammate that has answered is idle again."""


class TeamProvider:
    def __init__(self, team: str, members: int) -> None:
        self._team = team
        self._members = members
        self._replies = 0
        self._spawned_at = 0.0
        self._seen: set[str] = set()
        self.all_started: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        """Seconds until the first request of the last member."""
        self.woken_at: dict[int, asyncio.Future[float]] = {}

    def choose_reply(self, body: Mapping[str, Any]) -> MockReply:
        now = time.perf_counter()
        member = _MEMBER.search(str(body.get("system")))
        if member is None:
            return MockReply(content=self._reply_as_lead(), usage=_USAGE)
        self._seen.add(member[1])
        if len(self._seen) == self._members and not self.all_started.done():
            self.all_started.set_result(now - self._spawned_at)
        for number in _WAKE.findall(str(body["messages"][-1])):
            if not self.woken_at[int(number)].done():
                self.woken_at[int(number)].set_result(now)
        return MockReply(content=(TextBlock(text=FINAL_TEXT),), usage=_USAGE)

    def _reply_as_lead(self) -> tuple[TextBlock | ToolUseBlock, ...]:
        self._replies += 1
        if self._replies == 1:
            return (ToolUseBlock(id="", name="TeamCreate", input={"team_name": self._team}),)
        if self._replies > 2:
            return (TextBlock(text=FINAL_TEXT),)
        self._spawned_at = time.perf_counter()
        arguments = {"description": "Wait", "prompt": "Wait for messages."}
        return tuple(
            ToolUseBlock(id="", name="Agent", input={**arguments, "name": f"m{number}"})
            for number in range(self._members)
        )

    async def time_wake(self, boxes: FileMailboxStore, ids: IdGenerator, number: int) -> float:
        await asyncio.sleep(_IDLE_SECONDS)
        to = AgentName(f"m{number % self._members}")
        self.woken_at[number] = asyncio.get_running_loop().create_future()
        mail = MailMessage(id=ids.new_uuid(), sender=AgentName("bob"), text=f"WAKE-{number}", timestamp="t")
        await boxes.post(to, mail)
        returned = time.perf_counter()
        return max(0.0, await self.woken_at[number] - returned)


async def main(team: str, members: int) -> None:
    ids = IdGenerator()
    provider = TeamProvider(team, members)
    mailboxes = FileMailboxStore(Path(os.environ["SHOAL_HOME"]), TeamName(team), clock=SystemClock(), ids=ids)
    server = MockServer(MockMessagesApiFormat(), provider.choose_reply, strict=False, keep_requests=False)
    async with run_mock_server(server):
        print(server.url, flush=True)
        print(json.dumps(await provider.all_started), flush=True)
        number = 0
        while await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(await provider.time_wake(mailboxes, ids, number)), flush=True)
            number += 1
    await mailboxes.aclose()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A provider of a team, and somebody who writes to it.")
    parser.add_argument("--team", required=True)
    parser.add_argument("--members", type=int, required=True)
    given = parser.parse_args()
    asyncio.run(main(given.team, given.members))
