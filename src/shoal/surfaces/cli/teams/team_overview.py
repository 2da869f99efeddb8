"""Overview of a team: its roster, each member's status from the run's journal, its mail and its board."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct

from shoal.surfaces.cli.team_store_access import choose_team

if TYPE_CHECKING:
    from shoal.app.run_access.run_handle import RunHandle
    from shoal.app.run_view.agent_status import AgentStatusRecord, RunViewAgentsState
    from shoal.app.teams.team_store import TeamStore
    from shoal.core.permissions.questions import Question
    from shoal.core.teams.roster import RosterEntry, TeamRoster
    from shoal.core.teams.tasks import Task

LeadState: TypeAlias = Literal["alive", "ended", "died", "foreign"]
"""`foreign` means that a live program other than Shoal leads the team."""
MemberState: TypeAlias = Literal["working", "waiting", "idle", "cut off", "down", "ended", "died", "foreign"]
_MAIL_LIMIT = 100_000


class TeamMemberOverview(Struct, frozen=True, kw_only=True):
    member: RosterEntry
    state: MemberState
    task: str = ""
    doing: str = ""
    tokens: int = 0
    usd: float | None = 0.0
    """None if a price is unknown."""
    last_event: float | None = None
    """Number of seconds since the last event; None if there was none."""
    unread: int = 0
    question: Question | None = None


class TeamOverview(Struct, frozen=True, kw_only=True):
    team: TeamRoster
    run: RunHandle
    lead: LeadState
    foreign_lead: str = ""
    """Evidence that a program other than Shoal leads the team; empty if there is none."""
    members: tuple[TeamMemberOverview, ...]
    """The lead first."""
    tasks: tuple[Task, ...]
    tokens: int
    usd: float | None

    @property
    def is_live(self) -> bool:
        return self.lead == "alive"

    def count_members(self, *states: MemberState) -> int:
        """Count the members in these states, without the lead."""
        return sum(each.state in states for each in self.members[1:])

    @property
    def open_task_count(self) -> int:
        return sum(task.status != "completed" for task in self.tasks)

    @property
    def session(self) -> str:
        return self.run.session


async def find_named_or_running_team(store: TeamStore, name: str | None) -> TeamRoster:
    """Find a team as `find_named_or_only_team` does; among several teams choose the only running one."""
    return await find_named_or_only_team(store, name or await find_only_running_team(store))


async def find_only_running_team(store: TeamStore) -> str | None:
    from shoal.app.settings.configured_store import open_home_store
    from shoal.app.settings.settings import find_process_shoal_home
    from shoal.stores.files.home.home_paths import to_possible_session_id

    sessions = open_home_store(find_process_shoal_home(), read_only=True)
    teams = [await store.rosters.read_team_roster(name) for name in await store.rosters.list_teams()]
    running_names = [
        team.name
        for team in teams
        if team is not None and sessions.is_session_live(to_possible_session_id(team.lead_session_id))
    ]
    return running_names[0] if len(running_names) == 1 else None


async def find_named_or_only_team(store: TeamStore, name: str | None) -> TeamRoster:
    from shoal.core.errors import TeamNotFound
    from shoal.core.names import TeamName

    team_name = TeamName(await choose_team(store, name, hint="Specify a team."))
    team = await store.rosters.read_team_roster(team_name)
    if team is None:
        raise TeamNotFound(f"The team {team_name} is gone. List the teams: shoal team ls")
    return team


async def build_team_overview(store: TeamStore, team: TeamRoster) -> TeamOverview:
    from shoal.app.teams.foreign_lead import find_live_foreign_lead
    from shoal.core.clock import SystemClock
    from shoal.core.names import LEAD_NAME

    run = find_team_run(team)
    statuses, lead = _load_agent_statuses_and_lead_state(run)
    foreign_lead = "" if lead == "alive" else find_live_foreign_lead(run.home, team)
    if foreign_lead:
        lead = "foreign"
    tasks = tuple(await store.open_board(team.name).list_tasks())
    now = SystemClock().now() / 1000
    members = [
        _build_member_overview(each, _find_member_status(each, statuses), tasks, now, lead)
        for each in sorted(team.members, key=lambda each: each.name != LEAD_NAME)
    ]
    for number, member_overview in enumerate(members):
        members[number] = _add_unread_count(
            member_overview, await _count_unread_mail(store, team, member_overview.member)
        )
    return TeamOverview(
        team=team,
        run=run,
        lead=lead,
        foreign_lead=foreign_lead,
        members=tuple(members),
        tasks=tasks,
        tokens=sum(each.tokens for each in statuses.all.values()),
        usd=_sum_agent_costs(statuses),
    )


def find_team_run(team: TeamRoster) -> RunHandle:
    from shoal.app.run_access.stored_runs import open_process_run
    from shoal.stores.files.home.home_paths import to_possible_session_id

    return open_process_run(to_possible_session_id(team.lead_session_id))


def describe_idle_team(team: TeamRoster, advice: str) -> str:
    """Return why no run of Shoal leads the team, with the advice unless another program leads it."""
    from shoal.app.teams.foreign_lead import find_live_foreign_lead

    if evidence := find_live_foreign_lead(find_team_run(team).home, team):
        return f"Shoal does not run the team {team.name}: another program leads it ({evidence})."
    return f"The team {team.name} is not running. {advice}"


def _load_agent_statuses_and_lead_state(run: RunHandle) -> tuple[RunViewAgentsState, LeadState]:
    """Load the statuses from the run's journal, which is read once because it may be long."""
    from shoal.app.run_view.agent_status import RunViewAgentsState
    from shoal.stores.files.sessions.journal_snapshots import load_journal_state

    # Checked first, so that the last events of a run that ends meanwhile are still read.
    is_live = run.is_live
    statuses, _ = load_journal_state(run.journal_path, RunViewAgentsState)
    if is_live:
        return statuses, "alive"
    statuses.mark_agents_lost()
    return statuses, "ended" if statuses.is_run_ended else "died"


def _find_member_status(member: RosterEntry, statuses: RunViewAgentsState) -> AgentStatusRecord | None:
    from shoal.core.ids import LEAD_ID, AgentId
    from shoal.core.names import LEAD_NAME

    return statuses.all.get(LEAD_ID if member.name == LEAD_NAME else AgentId(member.agent_id))


def _build_member_overview(
    member: RosterEntry,
    status: AgentStatusRecord | None,
    tasks: tuple[Task, ...],
    now: float,
    lead: LeadState,
) -> TeamMemberOverview:
    own_tasks = [
        f"#{task.id} {task.subject}" for task in tasks if task.owner == member.name and _is_in_progress(task)
    ]
    if status is None:
        return TeamMemberOverview(
            member=member, state=_resolve_member_state(member, status, lead), task=", ".join(own_tasks)
        )
    return TeamMemberOverview(
        member=member,
        state=_resolve_member_state(member, status, lead),
        task=", ".join(own_tasks),
        doing=status.activity if status.is_live else "",
        tokens=status.tokens,
        usd=status.usd if status.priced else None,
        last_event=max(now - status.last_event_at, 0.0),
        question=status.question if lead == "alive" else None,
    )


def _resolve_member_state(
    member: RosterEntry, status: AgentStatusRecord | None, lead: LeadState
) -> MemberState:
    from shoal.core.names import LEAD_NAME

    if lead != "alive":
        if member.name == LEAD_NAME:
            return lead
        if lead == "foreign":
            return "working" if member.is_active else "idle"
        # The roster is up to a second late, the journal is not.
        if member.is_down:
            return "down"
        was_working = member.is_active if status is None else status.is_working
        return "cut off" if was_working else "idle"
    if member.is_down or (status is not None and status.state == "down"):
        return "down"
    if status is not None and status.state in ("working", "waiting"):
        return "waiting" if status.state == "waiting" else "working"
    return "working" if status is None and member.is_active else "idle"


def _is_in_progress(task: Task) -> bool:
    return task.status == "in_progress"


def _add_unread_count(overview: TeamMemberOverview, unread: int) -> TeamMemberOverview:
    from msgspec.structs import replace

    return replace(overview, unread=unread)


async def _count_unread_mail(store: TeamStore, team: TeamRoster, member: RosterEntry) -> int:
    from shoal.core.errors import InboxNotFound, InvalidName

    try:
        return len(await store.open_mailboxes(team.name).take_unread(member.inbox_name, limit=_MAIL_LIMIT))
    except (InboxNotFound, InvalidName):
        return 0


def _sum_agent_costs(statuses: RunViewAgentsState) -> float | None:
    all_statuses = statuses.all.values()
    return sum(each.usd for each in all_statuses) if all(each.priced for each in all_statuses) else None


def team_overview_to_dict(overview: TeamOverview) -> dict[str, Any]:
    """Return the overview for programs."""
    counts = Counter(task.status for task in overview.tasks)
    return {
        "name": overview.team.name,
        "given_name": overview.team.given_name or overview.team.name,
        "description": overview.team.description,
        "session": overview.session,
        "lead": overview.lead,
        "foreign_lead": overview.foreign_lead,
        "created_at": overview.team.created_at,
        "working": overview.count_members("working", "waiting"),
        "idle": overview.count_members("idle"),
        "down": overview.count_members("down"),
        "cut_off": overview.count_members("cut off"),
        "open_tasks": overview.open_task_count,
        "tasks": {status: counts[status] for status in ("pending", "in_progress", "completed")},
        "tokens": overview.tokens,
        "cost_usd": None if overview.usd is None else round(overview.usd, 6),
        "members": [_member_overview_to_dict(each) for each in overview.members],
    }


def _member_overview_to_dict(overview: TeamMemberOverview) -> dict[str, Any]:
    member = overview.member
    return {
        "name": member.name,
        "agent": member.agent_id,
        "type": member.agent_type,
        "state": overview.state,
        "task": overview.task,
        "doing": overview.doing,
        "model": member.model,
        "color": member.color,
        "runs_in": member.backend_type,
        "cwd": member.cwd,
        "joined_at": member.joined_at,
        "last_event_seconds": None if overview.last_event is None else round(overview.last_event, 3),
        "tokens": overview.tokens,
        "cost_usd": None if overview.usd is None else round(overview.usd, 6),
        "unread": overview.unread,
        "question": overview.question,
    }
