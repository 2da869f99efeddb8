"""Session services that a team uses."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from msgspec import Struct

from shoal.agent.agent_runner import AgentRunner
from shoal.core.agents.identity import TeammateForm
from shoal.core.budgets.budget import Budget
from shoal.core.clock import Clock
from shoal.core.conversation.messages import Message
from shoal.core.errors import ShoalError, StateFileError
from shoal.core.events import JournaledEvent, NoteAdded
from shoal.core.ids import LEAD_ID, AgentId, IdGenerator
from shoal.core.permissions.permission_changes import PermissionSuggestion
from shoal.core.permissions.permission_decisions import PermissionMode
from shoal.core.permissions.questions import Answer, DenyAnswer, Question
from shoal.core.ports import QuestionBroker
from shoal.core.teams.team_storage import TeamStorage
from shoal.runs.inbox_queue import SharedInboxQueue
from shoal.runs.prepared_agent import AgentPreparer
from shoal.team.mail.mail_authentication import TrustUnsigned
from shoal.team.members.member_launcher import MemberLauncher
from shoal.team.team_prompts import format_team_notice
from shoal.tools.plan_tools import PlanApprover


class TeamPolicy(Struct, frozen=True, kw_only=True):
    """Settings of a team."""

    default_kind: str
    """Agent type that is started if none is given."""
    plan_approver: PlanApprover
    """Approver of teammates' plans."""
    implicit_teams: bool
    """True if spawning a named agent creates a team if there is none."""
    grace: float
    """Seconds a member has to answer a request to shut down."""
    stall_after: float
    """Seconds of silence after which a working member counts as stalled."""
    report_tokens: int
    trust_unsigned: TrustUnsigned
    """Policy for requests in mail that no Shoal process signed."""
    max_restarts: int = 0
    """Maximum restarts of a teammate whose process died."""
    allows_nested_teams: bool = False
    """True if members may lead nested teams."""
    form: TeammateForm = "in-process"
    """Form in which members created here run."""


class TeamEventSink(Protocol):
    """Event bus of the session."""

    def emit_event(self, event: JournaledEvent) -> None: ...

    def publish_remote_journal_line(self, line: bytes) -> None:
        """Publish an event that a teammate in another process wrote to the journal."""
        ...


class TeamPermissions(Protocol):
    """Permissions of a team's agents."""

    def get_mode(self, agent: AgentRunner) -> PermissionMode: ...

    @property
    def session_permissions(self) -> tuple[PermissionSuggestion, ...]:
        """Session-wide permissions that a person granted."""
        ...

    def apply_session_permission(self, update: PermissionSuggestion) -> None:
        """Apply a session-wide permission that a person granted to a remote teammate."""
        ...


class MemberAgents(Protocol):
    """Agents that members started."""

    @property
    def has_running_agents(self) -> bool: ...

    async def stop_child_agents(self, parent: AgentId, why: str) -> None: ...

    def announce_missed_results(self, agent: AgentId, interrupted_results: Message | None) -> None:
        """Announce what the cut-off calls of a member would have reported."""
        ...


class LedTeams(Protocol):
    """Nested teams that members lead."""

    def is_leading_working_team(self, agent: AgentId) -> bool: ...

    async def build_briefing_of(self, agent: AgentId) -> str:
        """Build the summary of the team that a member leads; empty if it leads none."""
        ...

    async def end_team_of(self, agent: AgentId) -> None:
        """End the team that an ended member led."""
        ...

    async def suspend_team_of(self, agent: AgentId) -> None:
        """End the team that a down member leads, so that it can be resumed with its lead."""
        ...

    async def resume_team_of(self, agent: AgentId) -> None:
        """Resume the team that was suspended when its lead went down."""
        ...


class TeamInbox(Protocol):
    @property
    def queue(self) -> SharedInboxQueue: ...


class TeamRuntime(Protocol):
    """Services of the session that its teams use."""

    @property
    def team_store(self) -> TeamStorage: ...

    @property
    def inbox(self) -> TeamInbox: ...

    @property
    def budget(self) -> Budget: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def events(self) -> TeamEventSink: ...


class TeamServices(Struct, frozen=True, kw_only=True):
    """The runtime of the session, and what was made from it for a team."""

    runtime: TeamRuntime
    policy: TeamPolicy
    agent_factory: AgentPreparer
    ids: IdGenerator
    lead: Callable[[], AgentRunner]
    permissions: TeamPermissions
    agents: MemberAgents
    launcher: MemberLauncher
    led_teams: LedTeams | None = None
    """Teams that members lead, if they may."""

    def note(self, text: str) -> None:
        """Add a note for the user; a full disk must not end the caller over it."""
        with suppress(StateFileError):
            self.runtime.events.emit_event(NoteAdded(agent=LEAD_ID, text=text))

    def emit_or_note(self, event: JournaledEvent) -> None:
        """Emit an event; if the journal cannot store it, add a note instead of failing."""
        try:
            self.runtime.events.emit_event(event)
        except StateFileError as error:
            self.note(f"Could not record {type(event).__name__} from {event.agent} in the journal: {error}")

    async def ask_person_or_deny(self, question: Question) -> Answer:
        """Ask a person; return a denial if nobody is available."""
        try:
            return await self.question_broker.ask_person_or_deny(question)
        except ShoalError as error:
            self.note(f"A question from {question.agent} could not be asked: {error}")
            return DenyAnswer(reason=format_team_notice("question_not_asked", error=error), by="policy")

    async def stop_agents_of(self, member: AgentId, why: str) -> None:
        """End the team that a member led and the agents that it started."""
        if self.led_teams is not None:
            await self.led_teams.end_team_of(member)
        await self.agents.stop_child_agents(member, why)

    @property
    def lead_mode(self) -> PermissionMode:
        return self.permissions.get_mode(self.lead())

    @property
    def lead_id(self) -> AgentId:
        return self.lead().identity.agent

    @property
    def question_broker(self) -> QuestionBroker:
        """Broker of the lead, which reaches a person."""
        return self.lead().environment.question_broker
