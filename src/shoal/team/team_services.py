"""Session services that a team uses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct

from shoal.agent.agent_runner import AgentRunner
from shoal.core.agents.identity import TeammateForm
from shoal.core.budgets.budget import Budget
from shoal.core.clock import Clock
from shoal.core.conversation.messages import Message
from shoal.core.errors import ShoalError, StateFileError
from shoal.core.events import JournaledEvent
from shoal.core.ids import AgentId, IdGenerator
from shoal.core.permissions.permission_changes import PermissionSuggestion
from shoal.core.permissions.permission_decisions import PermissionMode
from shoal.core.permissions.questions import Answer, DenyAnswer, Question
from shoal.core.ports import QuestionBroker
from shoal.core.teams.team_storage import TeamStorage
from shoal.runs.inbox_queue import SharedInboxQueue
from shoal.runs.prepared_agent import AgentPreparer
from shoal.team.mail.mail_authentication import TrustUnsigned
from shoal.team.members.member_launcher import MemberLauncher, NullMemberLauncher
from shoal.tools.plan_tools import PlanApprover


class TeamServices(Struct, frozen=True, kw_only=True):
    store: TeamStorage
    agent_factory: AgentPreparer
    queue: SharedInboxQueue
    budget: Budget
    clock: Clock
    ids: IdGenerator
    emit: Callable[[JournaledEvent], None]
    note: Callable[[str], None]
    lead: Callable[[], AgentRunner]
    mode: Callable[[], PermissionMode]
    """The lead's permission mode."""
    approver: Callable[[], PlanApprover]
    """Approver of teammates' plans."""
    default_kind: str
    """Agent type that is started if none is given."""
    creates_implicit_teams: Callable[[], bool]
    """Returns True if spawning a named agent creates a team where there is none."""
    grace: float
    """Seconds a member has to answer a request to shut down."""
    stall_after: float
    """Seconds of silence after which a working member counts as stalled."""
    report_tokens: int
    trust_unsigned: TrustUnsigned
    """Policy for requests in mail that no Shoal process signed."""
    stop_agents_of: Callable[[AgentId, str], Awaitable[None]]
    """Stops the agents that a member started."""
    announce_missed_results: Callable[[AgentId, Message | None], None]
    """Called with the results of a member's cut-off calls, so that what they would report is announced."""

    leads_working_team: Callable[[AgentId], bool] = lambda _: False
    """Returns True if a member leads a nested team that is working."""
    on_changed: Callable[[], None] = lambda: None
    """Called when the state of a member changes."""
    allows_nested_teams: bool = False
    """True if members may lead nested teams."""
    form: TeammateForm = "in-process"
    """Form in which members created here run."""
    launcher: MemberLauncher = NullMemberLauncher()
    on_journal_line: Callable[[bytes], None] = lambda _: None
    """Called with each line that a teammate in another process wrote to the journal."""
    apply_permission_update: Callable[[PermissionSuggestion], None] = lambda _: None
    """Applies a session-wide permission that a person granted to a remote teammate."""
    max_restarts: int = 0
    """Maximum restarts of a teammate whose process died."""

    def emit_or_note(self, event: JournaledEvent) -> None:
        """Emit an event; if the journal cannot store it, add a note instead of failing."""
        try:
            self.emit(event)
        except StateFileError as error:
            self.note(f"Not in the journal: {type(event).__name__} of {event.agent}. {error}")

    async def ask_person_or_deny(self, question: Question) -> Answer:
        """Ask a person; return a denial if nobody can be asked."""
        try:
            return await self.question_broker.ask_person_or_deny(question)
        except ShoalError as error:
            self.note(f"A question of {question.agent} could not be asked: {error}")
            return DenyAnswer(reason=f"Nobody could be asked: {error}", by="policy")

    @property
    def lead_id(self) -> AgentId:
        return self.lead().identity.agent

    @property
    def question_broker(self) -> QuestionBroker:
        """Broker of the lead, which reaches a person."""
        return self.lead().environment.question_broker
