"""Overview of a team: its roster, each member's status from the run's journal, its mail and its board."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct

from shoal.surfaces.cli.record import chosen_team

if TYPE_CHECKING:
    from shoal.app.outside.watching import Run
    from shoal.app.picture.standing import Standing, Standings
    from shoal.app.teams.record import AgentsRecord
    from shoal.core.questions import Question
    from shoal.core.roster import Member, Team
    from shoal.core.tasks import Task

LeadState: TypeAlias = Literal["alive", "ended", "died"]
MemberState: TypeAlias = Literal["working", "waiting", "idle", "cut off", "ended", "died"]
_MOST_MAIL = 100_000


class MemberView(Struct, frozen=True, kw_only=True):
    member: Member
    state: MemberState
    task: str = ""
    doing: str = ""
    tokens: int = 0
    usd: float | None = 0.0
    """None if a price is not known."""
    last_event: float | None = None
    """Seconds ago; None if there was no event."""
    unread: int = 0
    question: Question | None = None


class TeamView(Struct, frozen=True, kw_only=True):
    team: Team
    run: Run
    lead: LeadState
    members: tuple[MemberView, ...]
    """The lead first."""
    tasks: tuple[Task, ...]
    tokens: int
    usd: float | None

    @property
    def is_live(self) -> bool:
        return self.lead == "alive"

    def number_of(self, *states: MemberState) -> int:
        """Count the members in these states, without the lead."""
        return sum(each.state in states for each in self.members[1:])

    @property
    def open_tasks(self) -> int:
        return sum(task.status != "completed" for task in self.tasks)

    @property
    def session(self) -> str:
        return self.run.session


async def team_running(record: AgentsRecord, name: str | None) -> Team:
    """Find a team as `find_team` does; among several teams choose the only running one."""
    return await team_named(record, name or await only_running(record))


async def only_running(record: AgentsRecord) -> str | None:
    teams = [await record.rosters.read(name) for name in await record.rosters.list()]
    running = [team.name for team in teams if team is not None and run_of(team).is_live]
    return running[0] if len(running) == 1 else None


async def team_named(record: AgentsRecord, name: str | None) -> Team:
    from shoal.core.errors import NoSuchTeam
    from shoal.core.names import TeamName

    chosen = TeamName(await chosen_team(record, name, how="Name one."))
    team = await record.rosters.read(chosen)
    if team is None:
        raise NoSuchTeam(f"The team {chosen} is gone. `shoal team ls` lists those there are.")
    return team


async def view_of(record: AgentsRecord, team: Team) -> TeamView:
    from shoal.core.clock import SystemClock
    from shoal.core.names import LEAD_NAME

    run = run_of(team)
    standings, lead = _told(run)
    tasks = tuple(await record.board(team.name).list())
    now = SystemClock().now() / 1000
    members = [
        _member(each, _standing(each, standings), tasks, now, lead)
        for each in sorted(team.members, key=lambda each: each.name != LEAD_NAME)
    ]
    for number, each in enumerate(members):
        members[number] = _with_mail(each, await _unread(record, team, each.member))
    return TeamView(
        team=team,
        run=run,
        lead=lead,
        members=tuple(members),
        tasks=tasks,
        tokens=sum(each.tokens for each in standings.all.values()),
        usd=_sum(standings),
    )


def run_of(team: Team) -> Run:
    from shoal.app.outside.watching import Run
    from shoal.app.settings.settings import home_directory
    from shoal.core.ids import SessionId

    return Run(session=SessionId(team.lead_session_id), home=home_directory())


def _told(run: Run) -> tuple[Standings, LeadState]:
    """Load the statuses from the run's journal, which is read once because it may be long."""
    from shoal.app.picture.standing import Standings
    from shoal.core.events import Event, SessionEnded
    from shoal.stores.files.journal import read_journal

    # Checked first, so that the last events of a run that ends meanwhile are still read.
    live = run.is_live
    standings, last = Standings(), None
    for recorded in read_journal(run.journal):
        last = recorded.event
        if isinstance(last, Event):
            standings.hear(last, recorded.at / 1000)
    if live:
        return standings, "alive"
    standings.lost()
    return standings, "ended" if isinstance(last, SessionEnded) else "died"


def _standing(member: Member, standings: Standings) -> Standing | None:
    from shoal.core.ids import LEAD, AgentId
    from shoal.core.names import LEAD_NAME

    return standings.all.get(LEAD if member.name == LEAD_NAME else AgentId(member.agent_id))


def _member(
    member: Member, standing: Standing | None, tasks: tuple[Task, ...], now: float, lead: LeadState
) -> MemberView:
    own = [f"#{task.id} {task.subject}" for task in tasks if task.owner == member.name and _is_at_work(task)]
    if standing is None:
        return MemberView(member=member, state=_state(member, standing, lead), task=", ".join(own))
    return MemberView(
        member=member,
        state=_state(member, standing, lead),
        task=", ".join(own),
        doing=standing.doing if standing.live else "",
        tokens=standing.tokens,
        usd=standing.usd if standing.priced else None,
        last_event=max(now - standing.heard, 0.0),
        question=standing.question if lead == "alive" else None,
    )


def _state(member: Member, standing: Standing | None, lead: LeadState) -> MemberState:
    from shoal.core.names import LEAD_NAME

    if lead != "alive":
        if member.name == LEAD_NAME:
            return lead
        # The roster is up to a second late, the journal is not.
        was_at_work = member.is_active if standing is None else standing.at_work
        return "cut off" if was_at_work else "idle"
    if standing is not None and standing.state in ("working", "waiting"):
        return "waiting" if standing.state == "waiting" else "working"
    return "working" if standing is None and member.is_active else "idle"


def _is_at_work(task: Task) -> bool:
    return task.status == "in_progress"


def _with_mail(view: MemberView, unread: int) -> MemberView:
    from msgspec.structs import replace

    return replace(view, unread=unread)


async def _unread(record: AgentsRecord, team: Team, member: Member) -> int:
    from shoal.core.errors import NoSuchInbox

    try:
        return len(await record.mailboxes(team.name).take(member.name, limit=_MOST_MAIL))
    except NoSuchInbox:
        return 0


def _sum(standings: Standings) -> float | None:
    every = standings.all.values()
    return sum(each.usd for each in every) if all(each.priced for each in every) else None


def facts(view: TeamView) -> dict[str, Any]:
    """Return the overview for programs."""
    counts = Counter(task.status for task in view.tasks)
    return {
        "name": view.team.name,
        "description": view.team.description,
        "session": view.session,
        "lead": view.lead,
        "created_at": view.team.created_at,
        "working": view.number_of("working", "waiting"),
        "idle": view.number_of("idle"),
        "cut_off": view.number_of("cut off"),
        "open_tasks": view.open_tasks,
        "tasks": {status: counts[status] for status in ("pending", "in_progress", "completed")},
        "tokens": view.tokens,
        "cost_usd": None if view.usd is None else round(view.usd, 6),
        "members": [_member_facts(each) for each in view.members],
    }


def _member_facts(each: MemberView) -> dict[str, Any]:
    member = each.member
    return {
        "name": member.name,
        "agent": member.agent_id,
        "type": member.agent_type,
        "state": each.state,
        "task": each.task,
        "doing": each.doing,
        "model": member.model,
        "color": member.color,
        "runs_in": member.backend_type,
        "cwd": member.cwd,
        "joined_at": member.joined_at,
        "last_event_seconds": None if each.last_event is None else round(each.last_event, 3),
        "tokens": each.tokens,
        "cost_usd": None if each.usd is None else round(each.usd, 6),
        "unread": each.unread,
        "question": each.question,
    }
