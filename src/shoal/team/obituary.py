"""Results and snapshots of members for the lead, the journal and people."""

from __future__ import annotations

from msgspec import Struct

from shoal.core.agents import Completion, End, Evidence, Glimpse, KeptWork
from shoal.core.arrivals import Item
from shoal.core.bodies import ShutdownApproved, ShutdownRequest, TeammateTerminated
from shoal.core.events import AgentEnded, AgentStarted
from shoal.core.ids import AgentId
from shoal.core.messages import Text
from shoal.core.names import AgentName
from shoal.core.roster import BackendType
from shoal.core.usage import Usage
from shoal.runs.endings import Ending
from shoal.runs.witness import Witness
from shoal.team.afar import Afar
from shoal.team.footing import Footing
from shoal.team.member import Member
from shoal.team.post import Post
from shoal.wire.notices import kept_work


def status_of(post: Post, end: Ending) -> End:
    return "completed" if post.approved is not None else end.status


def terminated(post: Post, end: Ending, work: KeptWork | None) -> str:
    member = post.member
    told = TeammateTerminated(task=member.id, kind=member.started.kind, status=status_of(post, end)).text
    text = f"{told}: {end.detail}" if end.detail else told
    return text if work is None else f"{text}\n{kept_work(work)}"


def completion(on: Footing, post: Post, end: Ending) -> Completion:
    member, started, seen = post.member, post.member.started, witness_of(post)
    return Completion(
        id=on.ids.short(),
        agent=member.id,
        status=status_of(post, end),
        kind=started.kind,
        description=started.description,
        report_to=on.leader,
        call=started.call,
        name=member.name,
        background=True,
        text=end.text[:1000],
        detail=end.detail,
        duration_ms=round((on.clock.monotonic() - post.since) * 1000),
        output="" if seen is None else str(seen.output),
        usage=Usage() if seen is None else seen.usage,
        requests=0 if seen is None else seen.requests,
        evidence=Evidence() if seen is None else seen.evidence(),
    )


def obituary(to: AgentId, ident: str, notice: str) -> Item:
    return Item(id=ident, to=to, content=(Text(text=notice),), by="runtime")


class Lost(Struct, frozen=True, kw_only=True):
    """A former member whose end was never announced."""

    agent: AgentId
    name: str
    kind: str
    why: str
    out: bool = False
    """True if it is still in the roster and must be removed."""
    description: str = ""
    call: str = ""

    @classmethod
    def untold(cls, started: AgentStarted) -> Lost:
        where = f"; its worktree was {started.cwd}" if started.isolation else ""
        return cls(
            agent=started.agent,
            name=started.name,
            kind=started.kind,
            why=f"it had ended when the process of its lead was killed{where}",
            description=started.description,
            call=started.call,
        )

    def ended(self, ident: str, to: AgentId) -> AgentEnded:
        told = TeammateTerminated(task=self.agent, kind=self.kind, status="killed").text
        done = Completion(
            id=ident,
            agent=self.agent,
            status="killed",
            kind=self.kind,
            description=self.description,
            report_to=to,
            call=self.call,
            name=self.name,
            background=True,
            detail=self.why,
        )
        return AgentEnded(agent=self.agent, completion=done, notice=f"{told}: {self.why}")


def witness_of(post: Post) -> Witness | None:
    """Return its progress monitor; None for a foreign program."""
    match post.member:
        case Member(outfit=outfit):
            return outfit.witness
        case Afar(witness=witness):
            return witness
        case _:
            return None


def glimpse(on: Footing, post: Post) -> Glimpse:
    started, seen = post.member.started, witness_of(post)
    return Glimpse(
        agent=post.member.id,
        kind=started.kind,
        name=post.member.name,
        description=started.description,
        status="running",
        parent=on.leader,
        background=True,
        tool_calls=0 if seen is None else seen.tool_calls,
        tokens=0 if seen is None else seen.usage.total_tokens,
        seconds=on.clock.monotonic() - post.since,
    )


def approved(
    request: ShutdownRequest, name: AgentName, pane: str, backend: str, now: str
) -> ShutdownApproved:
    """Build the shutdown approval in the member's name."""
    return ShutdownApproved(
        request_id=request.request_id, sender=name, timestamp=now, pane_id=pane, backend_type=backend
    )


def backend_of(pane: str) -> BackendType:
    match pane:
        case "in-process":
            return "in-process"
        case "process":
            return "process"
        case _ if pane.startswith("%"):
            return "tmux"
        case _:
            return "iterm2"
