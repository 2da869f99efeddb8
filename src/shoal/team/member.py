"""Teammate in this process: waits for work, works on it, reports that it is idle, and repeats."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from shoal.agent.hooked import note, told
from shoal.agent.loop import Ended, run
from shoal.core.agents import KeptWork
from shoal.core.arrivals import Item
from shoal.core.bodies import (
    IdleNotification,
    IdleReason,
    PermissionResponse,
    PlanApprovalResponse,
    ShutdownRequest,
)
from shoal.core.caps import Started
from shoal.core.clock import iso
from shoal.core.errors import LockUnavailable, ShoalError, StoreError
from shoal.core.events import AgentStarted, MemberRested, MemberWoken
from shoal.core.groups import outlive_cancel
from shoal.core.hooks import IN_A_ROW
from shoal.core.identity import assume
from shoal.core.ids import AgentId
from shoal.core.messages import Message, Text, cut_off_call, user
from shoal.core.names import LEAD_NAME, AgentName, TaskId
from shoal.core.neutral import neutral
from shoal.core.questions import MayRun
from shoal.core.record import TaskBoard
from shoal.core.tasks import Task, mark_of
from shoal.core.teams import MemberState, Teammate
from shoal.runs.endings import Ending, ending, last_words
from shoal.runs.outfit import Outfit
from shoal.runs.reports import kept
from shoal.team.authenticity import Received
from shoal.team.footing import Footing
from shoal.team.letters import Letter, plain, shown, task_letter
from shoal.team.mail_desk import MailDesk
from shoal.team.mate import Stage
from shoal.team.office import Office
from shoal.team.prompts import STALLED
from shoal.team.stalls import Pulse, Stalled
from shoal.wire.notices import late_permission

_PAUSE = 1.0
"""Seconds before a board that could not be read or written is retried."""


class Member:
    def __init__(
        self,
        on: Footing,
        outfit: Outfit,
        counted: Started | None,
        *,
        desk: MailDesk,
        office: Office,
        board: TaskBoard,
        stage: Stage,
    ) -> None:
        self._on = on
        self._counted = counted
        """None for the member of a process whose lead has no budget of ours."""
        self._office = office
        self._board = board
        self._stage = stage
        self.outfit = outfit
        self.desk = desk
        self.agent = outfit.agent
        self.id: AgentId = outfit.agent.identity.agent
        self.name = AgentName(outfit.agent.identity.name)
        self.state: MemberState = "created"
        self.claiming = False
        self.claims = True
        """True if it claims tasks by itself; False after a failure until somebody writes to it."""
        self.told = ""
        """Recipient and summary of its last message to anybody but the lead."""
        self.stopping = ""
        """Reason why it is being ended; empty if it is not."""
        self.stays = False
        self.request: ShutdownRequest | None = None
        """Shutdown request that is not answered yet."""
        self._pulse = Pulse(on.clock, on.stall_after, self.agent.tools, lambda: desk.waits)
        self.agent.tell = self._pulse.between(self.agent.tell)
        desk.changed = self._pulse.still_waits
        self._in_turn = self._interrupting = False
        self._task: TaskId | None = None
        self._trouble = ""
        """Last error that kept it from claiming tasks."""

    @property
    def started(self) -> AgentStarted:
        return self.outfit.started

    @property
    def pane(self) -> str:
        return "in-process"

    @property
    def is_busy(self) -> bool:
        """True if work or its end is still pending."""
        if self.state in ("running", "created") or self.claiming or self.request is not None:
            return True
        return bool(self._on.queue.size(self.id))

    @property
    def may_claim(self) -> bool:
        return self.claims and self.request is None and not self.stopping

    async def at_rest(self) -> bool:
        # The mail pump knows whether it has undelivered mail.
        return True

    def waits_for(self, request: str, mail: str) -> bool:
        return self.desk.waits_for(request)

    async def finish(self) -> KeptWork | None:
        return await self.outfit.finish()

    def teammate(self) -> Teammate:
        identity = self.agent.identity
        return Teammate(
            agent=self.id,
            name=self.name,
            kind=identity.kind,
            state=self.state,
            color=identity.color,
            model=self.agent.model.card.id,
        )

    async def bring(self, received: Received) -> bool:
        """Handle received mail; return True if it is settled."""
        mail, body = received.mail, received.body
        match body:
            case PermissionResponse() | PlanApprovalResponse():
                if self.desk.answer(body):
                    return True
                if isinstance(body, PermissionResponse) and await self._heard_late(mail.id, body):
                    return False
                self._on.note(f"An answer for {self.name} came too late: {body.request_id} is dropped.")
                return True
            case ShutdownRequest():
                self.request = body
                self._stage.asked_to_end(self.name, body)
            case _:
                self.claims = self.claims or not mail.fyi
        letter = shown(mail, body) if received.believed else plain(mail, believed=False)
        self._on.queue.put(letter.item(mail.id, self.id))
        self._stage.changed()
        return False

    async def _heard_late(self, ident: str, body: PermissionResponse) -> bool:
        """Queue a late permission for a call of an earlier process; return False if it is none."""
        asked = await self._office.asked(self.name, body.request_id)
        call = None if asked is None else cut_off_call(self.agent.conversation.messages, asked.tool_use_id)
        answer = None if call is None else self.desk.late(body, call)
        if call is None or answer is None:
            return False
        question = MayRun(
            id=body.request_id,
            agent=self.id,
            tool_use_id=call.id,
            tool=call.name,
            input=call.input,
            reason="",
        )
        text = late_permission(question, answer, asker="")
        self._on.queue.put(
            Item(id=ident, to=self.id, content=(Text(text=text),), by="runtime", mode="orphaned-permission")
        )
        self.agent.permissions.remember(call, answer)
        self._stage.changed()
        return True

    async def live(self) -> Ending:
        """Run until it is ended; expected ends and crashes are returned as values."""
        assume(self.agent.identity, self.agent.surroundings.workspace)
        try:
            while True:
                await self._wake()
                await self._take_place()
                await self._work()
                self._give_place_back()
        except asyncio.CancelledError:
            if not self.stopping:
                raise
            outlive_cancel()
            self._close()
            return Ending(status="killed", text=self.words, detail=self.stopping)
        except Exception as error:  # noqa: BLE001 - the wall around teammates: a crash ends this one alone
            self._close()
            detail = str(error) if isinstance(error, ShoalError) else f"{type(error).__name__}: {error}"
            return Ending(status="failed", text=self.words, detail=detail)

    def interrupt(self, task: asyncio.Task[Any]) -> bool:
        """End its working period but not the member."""
        if not self._in_turn:
            return False
        self._interrupting = True
        task.cancel()
        return True

    async def _wake(self) -> None:
        """Wait until an item is queued for it or it has claimed a task."""
        queue = self._on.queue
        while not queue.size(self.id):
            if self.state == "created" or not self.may_claim:
                await queue.arrival(self.id)
            elif await _first(self._claimable, lambda: queue.arrival(self.id)):
                await self._claim()

    async def _claimable(self) -> None:
        while True:
            try:
                return await self._board.wait_claimable()
            except (LockUnavailable, StoreError) as error:
                await self._kept_from_tasks(error)

    async def _kept_from_tasks(self, error: ShoalError) -> None:
        """Note an error once and pause before the retry; other work continues."""
        if str(error) != self._trouble:
            self._trouble = str(error)
            self._on.note(f"{self.name} cannot take tasks now, and tries again: {error}")
        await self._on.clock.sleep(_PAUSE)

    async def _claim(self) -> None:
        # Acquired first: a claimed task must be one that somebody works on.
        await self._take_place()
        if self._on.queue.size(self.id):
            return
        # Set before the next await: a team whose last open task is being claimed is not quiet.
        self.claiming = True
        claim = None
        try:
            if self.may_claim:
                claim = await self._board.claim_next(by=self.name)
                self._trouble = ""
            if claim is not None and claim.success and claim.task is not None:
                self._task = claim.task.id
                self._on.record.attempts[self.id, claim.task.id] = claim.attempt or ""
                self._on.queue.put(task_letter(claim.task).item(told_of(claim.task), self.id))
        except (LockUnavailable, StoreError) as error:
            await self._kept_from_tasks(error)
        finally:
            self.claiming = False
            if claim is None or not claim.success:
                self._give_place_back()
            self._stage.changed()

    async def _take_place(self) -> None:
        """Wait for a slot among the members that may work at once."""
        if self._counted is not None:
            await self._on.purse.working(self._counted)

    def _give_place_back(self) -> None:
        if self._counted is not None:
            self._on.purse.resting(self._counted)

    async def _work(self) -> None:
        self.state = "running"
        self._on.emit(MemberWoken(agent=self.id))
        self._stage.show_activity(self.name, active=True)
        self.told = ""
        reason: IdleReason = "available"
        self._in_turn = True
        try:
            end = ending(await self._period(), self.agent.conversation.messages)
        except asyncio.CancelledError:
            if self.stopping or not self._interrupting:
                raise
            outlive_cancel()
            self._interrupting = False
            self._close()
            reason, end = "interrupted", Ending(status="completed", text=self.words)
        except StoreError:
            raise
        except (ShoalError, Stalled) as error:
            self._close()
            end = Ending(status="failed", text=self.words, detail=str(error))
        finally:
            self._in_turn = False
        if end.status == "failed":
            reason = "failed"
        await self.rest(reason, end)

    async def _period(self) -> Ended:
        """Run turns until the work is done and no hook sends it back."""
        prompt: Message | None = None
        for _ in range(IN_A_ROW + 1):
            ended = await self._turn(prompt)
            self._on.unanswered(self.id, ended.cut)
            if ended.reason == "blocked" and not self.agent.halted:
                # The person's prompt was erased: there was nothing to do.
                return Ended(reason="done", detail=ended.detail)
            if ended.reason != "done" or not self.agent.hooks.wants("TeammateIdle"):
                return ended
            verdict = await told(self.agent, "TeammateIdle")
            if self.agent.halted:
                return Ended(reason="blocked", text=ended.text, detail=self.agent.halted)
            if verdict.blocked is None:
                return ended
            prompt = user(f"[A TeammateIdle hook sends you back to work:]\n{neutral(verdict.blocked)}")
        again = f"The TeammateIdle hooks sent it back {IN_A_ROW} times in a row; it rests all the same."
        await note(self.agent, again)
        return ended

    async def _turn(self, prompt: Message | None) -> Ended:
        """Run a turn, restarted once from its history. Raises `MemberStalled` at the second stall."""
        try:
            async with self._pulse.watched():
                return await run(self.agent, prompt, by="runtime")
        except Stalled as stalled:
            self._close()
            self._on.note(f"{self.name} has stalled, and its turn is begun again: {stalled}.")
            again = Letter(rank=0, by="runtime", text=STALLED)
            self._on.queue.put(again.item(f"stalled-{self._on.ids.short()}", self.id))
        async with self._pulse.watched():
            return await run(self.agent, None)

    @property
    def rest_id(self) -> str:
        """Id of its idle notice, derived from the last entry of its transcript."""
        return f"rest-{self.agent.conversation.last or self._on.ids.short()}"

    async def rest(self, reason: IdleReason, end: Ending) -> None:
        """Send the lead one idle notice per working period, then show the idle state."""
        self.claims = reason == "available"
        if reason == "failed":
            await self._board.release_all(self.name)
        completed = await self._completed()
        report = kept(
            end.text,
            self.id,
            self._on.ids.short(),
            self.agent.surroundings.results,
            tokens=self._on.report_tokens,
        )
        result = report.shown if report.whole is None else f"{report.shown}\n[The whole is in {report.whole}]"
        await self._office.post_body(
            self.name,
            LEAD_NAME,
            IdleNotification(
                sender=self.name,
                timestamp=iso(self._on.clock.now()),
                idle_reason=reason,
                summary=self.told or None,
                completed_task_id=completed,
                completed_status=None if completed is None else "completed",
                failure_reason=end.detail or reason if reason == "failed" else None,
                result=result or None,
            ),
            ident=self.rest_id,
        )
        self._stage.show_activity(self.name, active=False)
        self._on.emit(MemberRested(agent=self.id, reason=reason, detail=end.detail))
        self.state = "idle"
        self._stage.changed()

    async def _completed(self) -> TaskId | None:
        """Return the task that it claimed by itself if it is completed."""
        task, self._task = self._task, None
        found = None if task is None else await self._board.get(task)
        return task if found is not None and found.status == "completed" else None

    @property
    def words(self) -> str:
        """Last text that it wrote."""
        return last_words(self.agent.conversation.messages)

    def _close(self) -> None:
        """Close open calls so that the conversation can continue; a resume does the same if this fails."""
        try:
            self._on.unanswered(self.id, self.agent.conversation.interrupt())
        except StoreError:
            return


def told_of(task: Task) -> str:
    """Return the id of the notice about a claimed task, the same in every process."""
    return f"task-{task.id}-{mark_of(task.attempt)}"


async def _first(
    one: Callable[[], Coroutine[Any, Any, None]], other: Callable[[], Coroutine[Any, Any, None]]
) -> bool:
    """Wait until one of them ends; return True if the first ended, even if both did."""
    async with asyncio.TaskGroup() as both:
        tasks = [both.create_task(each()) for each in (one, other)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
    return not tasks[0].cancelled()
