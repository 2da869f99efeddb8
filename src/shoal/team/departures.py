"""Shutdown of team members: on request, by themselves or by force, and the notices about it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TypeGuard

from shoal.core.agents import KeptWork
from shoal.core.bodies import ShutdownApproved, ShutdownRejected, ShutdownRequest
from shoal.core.errors import AgentRefused, NoSuchTeam, ShoalError
from shoal.core.events import AgentEnded, WorkKept
from shoal.core.names import LEAD_NAME, AgentName, TeamName
from shoal.core.record import TaskBoard
from shoal.runs.endings import Ending
from shoal.team.activity import Activity
from shoal.team.afar import Afar
from shoal.team.footing import Footing
from shoal.team.lead_mail import LeadMail
from shoal.team.mate import Mate
from shoal.team.obituary import approved, backend_of, completion, obituary, terminated
from shoal.team.office import Office
from shoal.team.post import Post

KILL = 5.0
"""Seconds in which a member that is ended must be gone."""


class Departures:
    """Part of the team supervisor that ends members."""

    name: TeamName
    office: Office
    _on: Footing
    _tasks: asyncio.TaskGroup
    _board: TaskBoard
    _posts: dict[AgentName, Post]
    _leaving: set[Post]
    """Members that ended and whose end is not announced yet."""
    _lead_mail: LeadMail
    _activity: Activity

    def changed(self) -> None:
        raise NotImplementedError

    def show_activity(self, name: AgentName, *, active: bool) -> None:
        raise NotImplementedError

    def asked_to_end(self, name: AgentName, request: ShutdownRequest) -> None:
        post = self._posts.get(name)
        if post is None:  # it ended while the request was on its way
            return
        post.end_grace()
        post.member.request = request
        post.grace = self._tasks.create_task(self._enforce(post))

    def asked_elsewhere(self, name: AgentName, request: ShutdownRequest) -> None:
        """Start the grace of a remote member, which takes its mail in its own process."""
        post = self._posts.get(name)
        if post is not None and isinstance(post.member, Afar):
            self.asked_to_end(name, request)

    async def answer_end(self, post: Post, request: str, reason: str, *, approve: bool) -> None:
        asked = post.member.request
        if asked is None or request not in ("", asked.request_id):
            raise AgentRefused("There is no such request to shut down, or it was answered already.")
        if not approve and post.rejected:
            raise AgentRefused("The lead asks for the second time: finish what you must, and approve.")
        post.end_grace()
        if approve:
            post.approved = asked
            self._tasks.create_task(self.end(post, "it shut down as it was asked to"))
            # This is the member's own tool call and ends with it: its model must not be called after this.
            await post.gone.wait()
            return
        post.rejected = True
        await self.office.post_body(
            post.member.name,
            LEAD_NAME,
            ShutdownRejected(
                request_id=asked.request_id,
                sender=post.member.name,
                reason=reason,
                timestamp=self.office.now,
            ),
        )

    def agreed_to_end(self, name: AgentName, request: str) -> None:
        """Record that a remote member agreed and ends by itself."""
        post = self._posts.get(name)
        if post is not None and (asked := post.member.request) is not None and asked.request_id == request:
            post.approved = asked
            if not is_foreign(post.member):
                # A foreign program keeps the rest of its grace to end, and is not idle before it is gone.
                post.end_grace()

    def answered_to_end(self, name: AgentName, answer: ShutdownApproved | ShutdownRejected) -> None:
        """Handle an answer by mail; from an own member that agrees, it arrives after the member is gone."""
        if isinstance(answer, ShutdownApproved):
            self.agreed_to_end(name, answer.request_id)
            return
        post = self._posts.get(name)
        asked = None if post is None else post.member.request
        if post is not None and asked is not None and asked.request_id == answer.request_id:
            post.end_grace()
            post.rejected = True

    async def end(self, post: Post, why: str, *, silent: bool = False, stays: bool = False) -> None:
        """End a member whatever it is doing; it is gone when this returns."""
        # A task that is cancelled before its first step never runs, and would never report its end.
        await asyncio.sleep(0)
        if post.life is not None:
            ends_already, post.member.stopping = bool(post.member.stopping), post.member.stopping or why
            post.silent, post.member.stays = post.silent or silent, post.member.stays or stays
            if not ends_already:
                # Only once: a second cancel would interrupt its end report.
                post.life.cancel()
        try:
            async with self._on.clock.deadline(KILL):
                await post.gone.wait()
        except TimeoutError:
            self._on.note(f"{post.member.name} did not end within {KILL:g} s; it is out of the team.")
            if post.life is not None:
                post.life.cancel()
            await self._leave(post, Ending(status="killed", text="", detail=why))

    async def _left(self, post: Post) -> None:
        """Wait until the end of a member that is already ending is announced."""
        with suppress(TimeoutError):
            async with self._on.clock.deadline(KILL):
                await post.gone.wait()

    async def _enforce(self, post: Post) -> None:
        await self._on.clock.sleep(self._on.grace)
        await self.end(post, f"it did not answer the request to shut down within {self._on.grace:g} s")

    async def _leave(self, post: Post, end: Ending) -> None:
        member = post.member
        if self._posts.pop(member.name, None) is None:
            return
        self._leaving.add(post)
        member.state = "shutdown"
        self._activity.forget(member.name)
        if post.pump is not None:
            post.pump.cancel()
        work: KeptWork | None = None
        try:
            with self._put_away(member.name):
                await self._on.stop_agents_of(member.id, "the teammate that started it ended")
            await self._out_of_the_record(post)
            with self._put_away(member.name):
                work = await member.finish()
        finally:
            self._on.purse.ended(post.counted)
            self._on.queue.forget(member.id)
            self._tell_ended(post, end, work)
            self._leaving.discard(post)
            post.gone.set()
            self.changed()
            if post.grace is not None and post.grace is not asyncio.current_task():
                post.end_grace()

    async def _out_of_the_record(self, post: Post) -> None:
        name, rosters = post.member.name, self._on.record.rosters
        if post.member.stays:
            self.show_activity(name, active=False)
            return
        left = False
        with self._put_away(name), suppress(NoSuchTeam):
            await self._board.release_all(name)
        with self._put_away(name), suppress(NoSuchTeam):
            await rosters.leave(self.name, name)
            left = True
        if left and post.approved is not None and not is_foreign(post.member):
            # Posted after it is gone, so that a reader of the approval finds it gone.
            pane = post.member.pane
            body = approved(post.approved, name, pane, backend_of(pane), self.office.now)
            with self._put_away(name):
                await self.office.post_body(name, LEAD_NAME, body)

    @contextmanager
    def _put_away(self, name: AgentName) -> Iterator[None]:
        """Report errors of one clean-up step, so that the other steps still run."""
        try:
            yield
        except ShoalError as error:
            self._on.note(f"Not everything of {name} could be put away: {error}")

    def _tell_ended(self, post: Post, end: Ending, work: KeptWork | None) -> None:
        """Notify the lead through its queue, not by mail; one event, so that a crash cannot split it."""
        member, done = post.member, completion(self._on, post, end)
        notice = "" if post.silent else terminated(post, end, work)
        self._on.tell(AgentEnded(agent=member.id, completion=done, notice=notice))
        if work is not None:
            self._on.tell(WorkKept(agent=member.id, work=work))
        if notice:
            self._lead_mail.release()
            self._on.queue.put(obituary(self._on.leader, done.id, notice))


def is_foreign(member: Mate) -> TypeGuard[Afar]:
    """Return True if the member is a foreign program."""
    return isinstance(member, Afar) and member.is_foreign
