"""Running members of a team, with their tasks and the state of their shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property

from shoal.core.budgets.limits import AgentSlot
from shoal.core.ids import AgentId
from shoal.core.names import AgentName, TeamName
from shoal.core.teams.mail_bodies import ShutdownApprovedMail, ShutdownRejectedMail, ShutdownRequestMail
from shoal.core.teams.roster import RosterEntry, format_agent_id
from shoal.core.teams.team_operations import TeammateStatusSnapshot
from shoal.team.members.member_protocol import Member


class MemberHandle:
    """Handle of a running member: its tasks and the state of its shutdown."""

    def __init__(self, member: Member, entry: RosterEntry, slot: AgentSlot, *, started_at: float) -> None:
        self.member = member
        self.entry = entry
        self.slot = slot
        self.started_at = started_at
        self.run_task: asyncio.Task[None] | None = None
        self.mail_task: asyncio.Task[None] | None = None
        self.grace_task: asyncio.Task[None] | None = None
        self.approved_request: ShutdownRequestMail | None = None
        self.has_rejected = False
        """True if it has already rejected a shutdown once."""
        self.silent = False
        """True if its end is not announced to the lead."""
        self.restarts = 0
        """Number of restarts in a row after its process died."""
        self.failed_starts = 0
        """Number of attempts in a row that could not start it."""
        self.restarted_at = started_at
        self.known_mail: frozenset[str] = frozenset()
        """Ids of the unread mail of a down member; other mail starts the next attempt to restart it."""
        self.down_reported = False
        """True if the lead knows that it is down."""
        self.gone = asyncio.Event()

    @cached_property
    def restart_requested(self) -> asyncio.Event:
        """Event that is set when somebody wants a member that is down to be restarted now."""
        return asyncio.Event()

    def set_shutdown_request(self, request: ShutdownRequestMail | None) -> None:
        self.member.shutdown_request = request

    def mark_ending(self, why: str, *, quietly: bool, resumable: bool) -> bool:
        """Record why it is being ended; return False if it already was."""
        member = self.member
        is_first = not member.stop_reason
        member.stop_reason = member.stop_reason or why
        member.resumable = member.resumable or resumable
        self.silent = self.silent or quietly
        return is_first

    def clear_shutdown_request_and_grace(self) -> None:
        self.set_shutdown_request(None)
        if self.grace_task is not None:
            self.grace_task.cancel()
            self.grace_task = None


class MemberTable:
    """Members of one team by name. Waiters and `on_changed` are notified of each change."""

    def __init__(self, team: TeamName, on_changed: Callable[[], None] | None = None) -> None:
        self.team = team
        self.handles: dict[AgentName, MemberHandle] = {}
        self.own_names: set[AgentName] = set()
        """Names in the roster of the lead and of members that this session admitted or resumed."""
        self.leaving: set[MemberHandle] = set()
        """Members that ended and whose end is not announced yet."""
        self.version = 0
        """Number of changes so far."""
        self._changed_event: asyncio.Event | None = None
        self._on_changed = on_changed

    @property
    def changed_event(self) -> asyncio.Event:
        """Event that the next change sets."""
        if self._changed_event is None:
            self._changed_event = asyncio.Event()
        return self._changed_event

    def notify_changed(self) -> None:
        self.version += 1
        if self._changed_event is not None:
            changed, self._changed_event = self._changed_event, None
            changed.set()
        if self._on_changed is not None:
            self._on_changed()

    def resolve_name(self, name: str) -> AgentName | None:
        """Return the name of a member, given its name or id."""
        handle = self.handles.get(AgentName(name.removesuffix(f"@{self.team}")))
        return None if handle is None else handle.member.name

    def find_handle(self, agent: AgentId) -> MemberHandle | None:
        handle = self.handles.get(AgentName(agent.removesuffix(f"@{self.team}")))
        return handle if handle is not None and handle.member.id == agent else None

    def get_agent_id(self, name: AgentName) -> AgentId:
        return AgentId(format_agent_id(name, self.team))

    def list_statuses(self) -> tuple[TeammateStatusSnapshot, ...]:
        return tuple(handle.member.to_teammate_status() for handle in self.handles.values())

    def is_waiting_for_answer(self, name: AgentName, request: str, mail: str = "") -> bool:
        """Return True if the member may still wait for the answer to this request."""
        handle = self.handles.get(name)
        return handle is None or handle.member.is_waiting_for_answer(request, mail)

    def is_own_member(self, name: AgentName) -> bool:
        """Return True if it is a member and not a foreign program."""
        handle = self.handles.get(name)
        return handle is not None and not handle.member.is_foreign

    def on_foreign_mail(self, name: AgentName, *, is_idle: bool) -> None:
        """Update the state of a foreign program: it reports when it is idle, but no start of its work."""
        if (handle := self.handles.get(name)) is not None:
            handle.member.on_foreign_mail(is_idle=is_idle)

    def accept_shutdown_agreement(self, name: AgentName, request: str) -> None:
        """Record that a remote member agreed and ends on its own."""
        handle = self.handles.get(name)
        if (
            handle is not None
            and (shutdown_request := handle.member.shutdown_request) is not None
            and shutdown_request.request_id == request
        ):
            handle.approved_request = shutdown_request
            if not handle.member.is_foreign:
                # A foreign program keeps the rest of its grace to end, and is not idle before it is gone.
                handle.clear_shutdown_request_and_grace()

    def accept_shutdown_answer(
        self, name: AgentName, answer: ShutdownApprovedMail | ShutdownRejectedMail
    ) -> None:
        """Record an answer by mail; from an own member that agrees, it arrives after the member is gone."""
        if isinstance(answer, ShutdownApprovedMail):
            self.accept_shutdown_agreement(name, answer.request_id)
            return
        handle = self.handles.get(name)
        shutdown_request = None if handle is None else handle.member.shutdown_request
        if (
            handle is not None
            and shutdown_request is not None
            and shutdown_request.request_id == answer.request_id
        ):
            handle.clear_shutdown_request_and_grace()
            handle.has_rejected = True
