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

from bench.instant import FINAL
from shoal.core.clock import SystemClock
from shoal.core.ids import Ids
from shoal.core.mail import Mail
from shoal.core.messages import Text, ToolUse
from shoal.core.names import AgentName, TeamName
from shoal.core.usage import Usage
from shoal.stores.files.mailboxes import FileMailboxes
from shoal.testing.messages_form import MessagesForm
from shoal.testing.replies import Answer
from shoal.testing.servers import MockServer, serving

_USAGE = Usage(input_tokens=100, output_tokens=10)
_MEMBER = re.compile(r"- You are ([\w-]+), a member of the team")
_WAKE = re.compile(r"WAKE-(\d+)")
_REST = 0.03
"""Seconds after which a teammate that has answered is idle again."""


class Outside:
    def __init__(self, team: str, members: int) -> None:
        self._team = team
        self._members = members
        self._replies = 0
        self._spawned_at = 0.0
        self._seen: set[str] = set()
        self.all_there: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        """Seconds until the first request of the last member."""
        self.woken: dict[int, asyncio.Future[float]] = {}

    def think(self, body: Mapping[str, Any]) -> Answer:
        now = time.perf_counter()
        member = _MEMBER.search(str(body.get("system")))
        if member is None:
            return Answer(content=self._as_lead(), usage=_USAGE)
        self._seen.add(member[1])
        if len(self._seen) == self._members and not self.all_there.done():
            self.all_there.set_result(now - self._spawned_at)
        for number in _WAKE.findall(str(body["messages"][-1])):
            if not self.woken[int(number)].done():
                self.woken[int(number)].set_result(now)
        return Answer(content=(Text(text=FINAL),), usage=_USAGE)

    def _as_lead(self) -> tuple[Text | ToolUse, ...]:
        self._replies += 1
        if self._replies == 1:
            return (ToolUse(id="", name="TeamCreate", input={"team_name": self._team}),)
        if self._replies > 2:
            return (Text(text=FINAL),)
        self._spawned_at = time.perf_counter()
        given = {"description": "Wait", "prompt": "Wait for messages."}
        return tuple(
            ToolUse(id="", name="Agent", input={**given, "name": f"m{number}"})
            for number in range(self._members)
        )

    async def wake(self, boxes: FileMailboxes, ids: Ids, number: int) -> float:
        await asyncio.sleep(_REST)
        to = AgentName(f"m{number % self._members}")
        self.woken[number] = asyncio.get_running_loop().create_future()
        mail = Mail(id=ids.uuid(), sender=AgentName("bob"), text=f"WAKE-{number}", timestamp="t")
        await boxes.post(to, mail)
        returned = time.perf_counter()
        return max(0.0, await self.woken[number] - returned)


async def main(team: str, members: int) -> None:
    ids = Ids()
    outside = Outside(team, members)
    boxes = FileMailboxes(Path(os.environ["SHOAL_HOME"]), TeamName(team), clock=SystemClock(), ids=ids)
    server = MockServer(MessagesForm(), outside.think, strict=False, keep_requests=False)
    async with serving(server):
        print(server.url, flush=True)
        print(json.dumps(await outside.all_there), flush=True)
        number = 0
        while await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(await outside.wake(boxes, ids, number)), flush=True)
            number += 1
    await boxes.aclose()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A provider of a team, and somebody who writes to it.")
    parser.add_argument("--team", required=True)
    parser.add_argument("--members", type=int, required=True)
    given = parser.parse_args()
    asyncio.run(main(given.team, given.members))
