"""Session services that a team uses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct

from shoal.agent.agent import Agent
from shoal.core.budget import Purse
from shoal.core.clock import Clock
from shoal.core.decisions import Mode
from shoal.core.errors import ShoalError, StoreError
from shoal.core.events import Journaled
from shoal.core.identity import Form
from shoal.core.ids import AgentId, Ids
from shoal.core.messages import Message
from shoal.core.permissions import Suggestion
from shoal.core.ports import Desk
from shoal.core.questions import Answer, Denied, Question
from shoal.core.record import Record
from shoal.runs.outfit import Outfitter
from shoal.runs.queue import Queue
from shoal.team.authenticity import TrustUnsigned
from shoal.team.elsewhere import Elsewhere, NowhereElse
from shoal.tools.plan import Approver


class Footing(Struct, frozen=True, kw_only=True):
    record: Record
    outfitter: Outfitter
    queue: Queue
    purse: Purse
    clock: Clock
    ids: Ids
    emit: Callable[[Journaled], None]
    note: Callable[[str], None]
    lead: Callable[[], Agent]
    mode: Callable[[], Mode]
    """The lead's permission mode."""
    approver: Callable[[], Approver]
    """Approver of teammates' plans."""
    usual: str
    """Agent type that is started if none is given."""
    implicit: Callable[[], bool]
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
    unanswered: Callable[[AgentId, Message | None], None]
    """Called with the results of a member's cut-off calls, so that what they would report is announced."""

    leads_at_work: Callable[[AgentId], bool] = lambda _: False
    """Returns True if a member leads a nested team that is working."""
    changed: Callable[[], None] = lambda: None
    """Called when the state of a member changes."""
    nests: bool = False
    """True if members may lead nested teams."""
    form: Form = "in-process"
    """Form in which members created here run."""
    elsewhere: Elsewhere = NowhereElse()
    hear: Callable[[bytes], None] = lambda _: None
    """Called with each line that a teammate in another process wrote to the journal."""
    permit: Callable[[Suggestion], None] = lambda _: None
    """Applies a session-wide permission that a person granted to a remote teammate."""
    revivals: int = 0
    """Maximum restarts of a teammate whose process died."""

    def tell(self, event: Journaled) -> None:
        """Emit an event; if the journal cannot store it, add a note instead of failing."""
        try:
            self.emit(event)
        except StoreError as error:
            self.note(f"Not in the journal: {type(event).__name__} of {event.agent}. {error}")

    async def ask(self, question: Question) -> Answer:
        """Ask a person; return a denial if nobody can be asked."""
        try:
            return await self.desk.ask(question)
        except ShoalError as error:
            self.note(f"A question of {question.agent} could not be asked: {error}")
            return Denied(reason=f"Nobody could be asked: {error}", by="policy")

    @property
    def leader(self) -> AgentId:
        return self.lead().identity.agent

    @property
    def desk(self) -> Desk:
        """Broker of the lead, which reaches a person."""
        return self.lead().surroundings.desk
