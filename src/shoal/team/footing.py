"""What of a session its team stands on."""

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
    """Who approves the plans of teammates."""
    usual: str
    """The agent that is started where none is named."""
    implicit: Callable[[], bool]
    """Whether an agent with a name makes a team where there is none."""
    grace: float
    """Seconds a member has to answer a request to shut down."""
    stall_after: float
    """Seconds of silence after which a member at work counts as stalled."""
    report_tokens: int
    trust_unsigned: TrustUnsigned
    """What becomes of orders that none of our own processes signed."""
    stop_agents_of: Callable[[AgentId, str], Awaitable[None]]
    """Ends the agents that a member started."""

    leads_at_work: Callable[[AgentId], bool] = lambda _: False
    """Whether a member leads a team of its own that is at work."""
    changed: Callable[[], None] = lambda: None
    """Told when a member of the team stands otherwise than before."""
    nests: bool = False
    """Whether members may lead teams of their own."""
    form: Form = "in-process"
    """How the members run that are made here."""
    elsewhere: Elsewhere = NowhereElse()
    hear: Callable[[bytes], None] = lambda _: None
    """Told the lines that teammates in other processes have written to the journal."""
    permit: Callable[[Suggestion], None] = lambda _: None
    """Told what a person answered for the whole session to a teammate in another process."""
    revivals: int = 0
    """How often a teammate whose process died is started again with its history."""

    def tell(self, event: Journaled) -> None:
        """As `emit`, where what happened has happened: a full disk keeps it from the record, and no more."""
        try:
            self.emit(event)
        except StoreError as error:
            self.note(f"Not in the journal: {type(event).__name__} of {event.agent}. {error}")

    async def ask(self, question: Question) -> Answer:
        """A person. Where the question cannot be put to anybody, who asked is told so and need not wait."""
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
        """Where a person answers."""
        return self.lead().surroundings.desk
