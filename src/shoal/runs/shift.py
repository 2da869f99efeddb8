"""An agent's shift: it works until it is done, its own agents are, and what must hold of its work holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec.structs import replace

from shoal.agent.loop import run
from shoal.core.agents import Ran
from shoal.core.errors import ShoalError, StoreError
from shoal.core.events import Speaker
from shoal.core.groups import outlive_cancel
from shoal.core.identity import assume
from shoal.core.messages import Message, user
from shoal.core.neutral import neutral
from shoal.runs.endings import Ending, ending, last_words
from shoal.runs.outfit import Check, Outfit
from shoal.runs.queue import Queue
from shoal.runs.run import Run

_PARENT: Speaker = "agent"
_RUNTIME: Speaker = "runtime"
ATTEMPTS = 3
"""Times in a row that the acceptance command may fail."""
_JUDGED = ("done", "max_turns")


class Shift:
    """`waits` says whether the end of an agent that this one started is still to be told."""

    def __init__(self, queue: Queue, waits: Callable[[], bool]) -> None:
        self._queue = queue
        self._waits = waits
        self.acceptance: Ran | None = None
        self.cut: Message | None = None
        """Results for calls that its end cut short."""
        self._failures = 0

    async def work(self, this: Run, outfit: Outfit) -> Ending:
        """Expected ends are values, and so is a crash: whoever started the agent reads of it."""
        agent = outfit.agent
        assume(agent.identity, agent.surroundings.workspace)
        try:
            return await self._worked(this, outfit)
        except asyncio.CancelledError:
            if not this.stopping:
                raise
            outlive_cancel()
            self._close(outfit)
            return Ending(status="killed", text=last_words(agent.conversation.messages), detail=this.stopping)
        except ShoalError as error:
            self._close(outfit)
            return Ending(status="failed", text=last_words(agent.conversation.messages), detail=str(error))
        except Exception as error:  # noqa: BLE001 - the wall around agents: a crash is a failure others can read
            self._close(outfit)
            detail = f"{type(error).__name__}: {error}"
            return Ending(status="failed", text=last_words(agent.conversation.messages), detail=detail)

    async def _worked(self, this: Run, outfit: Outfit) -> Ending:
        agent = outfit.agent
        prompt, by = outfit.prompt, _PARENT
        most, used = agent.bounds.max_turns, 0
        while True:
            if most is not None:
                # For the whole shift: what arrives does not begin the count anew.
                agent.bounds = replace(agent.bounds, max_turns=most - used)
            ended = await run(agent, prompt, by=by)
            used += ended.requests
            ended, self.cut = replace(ended, requests=used), ended.cut
            prompt, by = None, _RUNTIME
            if ended.reason == "done" and await self._more(outfit):
                continue
            if outfit.check is not None and ended.reason in _JUDGED:
                prompt = await self._checked(outfit.check)
            if this.witness is not None and this.witness.used_shell:
                this.witness.committed(await outfit.commits())
            # What came meanwhile is heard before the end.
            heard = prompt is None and not self._queue.size(agent.identity.agent)
            if ended.reason != "done" or heard or used == most:
                return self._judged(ending(ended, agent.conversation.messages))

    async def _checked(self, check: Check) -> Message | None:
        """What the agent is told where its work is not accepted and may be mended."""
        self.acceptance, wrote = await check()
        if self.acceptance.exit_code == 0:
            self._failures = 0
            return None
        self._failures += 1
        return user(_not_accepted(self.acceptance, wrote)) if self._failures < ATTEMPTS else None

    def _judged(self, end: Ending) -> Ending:
        if end.status != "completed" or self.acceptance is None or self.acceptance.exit_code == 0:
            return end
        times = "" if self._failures == 1 else f" {self._failures} times"
        failed = f"its acceptance command failed{times}: {self.acceptance.command}"
        return Ending(status="failed", text=end.text, detail="; ".join(filter(None, (end.detail, failed))))

    async def _more(self, outfit: Outfit) -> bool:
        """Whether something arrived for the agent, waiting for the ends of those it started."""
        me = outfit.agent.identity.agent
        while not self._queue.size(me):
            if not self._waits():
                return False
            await self._queue.arrival(me)
        return True

    def _close(self, outfit: Outfit) -> None:
        """Leave the conversation so that it can go on; resuming does the same where this cannot."""
        try:
            self.cut = outfit.agent.conversation.interrupt()
        except StoreError:
            return


def _not_accepted(ran: Ran, wrote: str) -> str:
    how = "did not end in time" if ran.exit_code is None else f"ended with {ran.exit_code}"
    return (
        f"Your work is not accepted yet: `{ran.command}` {how}. It wrote, at its end:\n\n{neutral(wrote)}\n\n"
        "Find out why, mend it, and end with your report."
    )
