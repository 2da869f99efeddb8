"""Agent worker: runs an agent until it and its children are done and its work is accepted."""

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
"""Consecutive failures allowed for the acceptance command."""
_JUDGED = ("done", "max_turns")


class Shift:
    """Runs one agent's job. `has_pending_children` is True while the end of a child is unreported."""

    def __init__(self, queue: Queue, waits: Callable[[], bool]) -> None:
        self._queue = queue
        self._waits = waits
        self.acceptance: Ran | None = None
        self.cut: Message | None = None
        """Results for calls that its end interrupted."""
        self._failures = 0

    async def work(self, this: Run, outfit: Outfit) -> Ending:
        """Run the job. Expected ends and crashes are both returned as values for the parent to read."""
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
        except Exception as error:  # noqa: BLE001 - boundary around agents: a crash becomes a readable failure
            self._close(outfit)
            detail = f"{type(error).__name__}: {error}"
            return Ending(status="failed", text=last_words(agent.conversation.messages), detail=detail)

    async def _worked(self, this: Run, outfit: Outfit) -> Ending:
        agent = outfit.agent
        prompt, by = outfit.prompt, _PARENT
        most, used = agent.bounds.max_turns, 0
        while True:
            if most is not None:
                # Limits the whole job: new input does not reset the count.
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
            # Items that arrived meanwhile are processed before the end.
            heard = prompt is None and not self._queue.size(agent.identity.agent)
            if ended.reason != "done" or heard or used == most:
                return self._judged(ending(ended, agent.conversation.messages))

    async def _checked(self, check: Check) -> Message | None:
        """Run the acceptance command; return a message for the agent if it fails and may be retried."""
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
        """Wait for items while children run; return True if something arrived for the agent."""
        me = outfit.agent.identity.agent
        while not self._queue.size(me):
            if not self._waits():
                return False
            await self._queue.arrival(me)
        return True

    def _close(self, outfit: Outfit) -> None:
        """Leave the conversation in a resumable state; resuming repairs it if this fails."""
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
