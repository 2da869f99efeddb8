"""Contract of every roster store."""

from __future__ import annotations

from shoal.core.errors import BadName, NoSuchTeam, RecordError, TeamBusy
from shoal.core.names import LEAD_NAME, RESERVED, AgentName, TeamName
from shoal.core.record import Rosters
from shoal.core.roster import COLORS, Newcomer, Team
from shoal.testing.contracts.rules import Doors, Rules, opened, refused, together

RULES = Rules()
ROOF = TeamName("roof")
ANN = AgentName("ann")
_LEAD = Newcomer(name=LEAD_NAME, agent_type="team-lead", model="big", cwd="/project", prompt="")


def newcomer(name: str = "ann", *, prompt: str = "Mend it.") -> Newcomer:
    return Newcomer(
        name=AgentName(name), agent_type="general-purpose", model="small", cwd="/project/x", prompt=prompt
    )


async def created(rosters: Rosters, name: str = "roof") -> Team:
    return await rosters.create(TeamName(name), lead=_LEAD, session="s-1", description="mends roofs")


async def found(rosters: Rosters, team: TeamName = ROOF) -> Team:
    there = await rosters.read(team)
    assert there is not None
    return there


@RULES.shows("TEAM-01")
async def a_team_begins_with_its_lead(doors: Doors[Rosters]) -> None:
    async with opened(doors, 2) as (rosters, others):
        team = await created(rosters)
        assert (team.name, team.description, team.lead_session_id) == ("roof", "mends roofs", "s-1")
        assert [member.name for member in team.members] == [LEAD_NAME]
        assert await others.read(ROOF) == team
        assert list(await others.list()) == [ROOF]


@RULES.shows("TEAM-01")
async def a_team_name_that_exists_gets_a_free_one(doors: Doors[Rosters]) -> None:
    async with opened(doors, 3) as several:
        teams = await together(*(created(several[n % 3]) for n in range(6)))
        names = {team.name for team in teams}
        assert len(names) == 6
        assert "roof" in names
        assert set(await several[0].list()) == names
        for team in teams:
            assert team.lead_agent_id == f"team-lead@{team.name}"


@RULES.shows("TEAM-02")
async def lead_and_teammates_hold_what_the_protocol_names(doors: Doors[Rosters]) -> None:
    async with opened(doors, 2) as (rosters, others):
        team = await created(rosters)
        (lead,) = team.members
        assert (lead.agent_type, lead.model, lead.cwd, lead.tmux_pane_id) == (
            "team-lead",
            "big",
            "/project",
            "",
        )
        assert (lead.prompt, lead.color, lead.plan_mode_required, lead.backend_type, lead.is_active) == (
            (None,) * 5
        )
        assert lead.joined_at == team.created_at > 1_000_000_000_000
        ann = await rosters.join(ROOF, newcomer())
        assert (ann.agent_type, ann.model, ann.cwd) == ("general-purpose", "small", "/project/x")
        assert (ann.prompt, ann.color, ann.plan_mode_required) == ("Mend it.", "blue", False)
        assert (ann.backend_type, ann.is_active) == ("in-process", True)
        assert (await found(others)).members == (lead, ann)


@RULES.shows("TEAM-03")
async def an_agent_s_id_names_it_and_its_team_and_a_taken_name_gets_a_suffix(doors: Doors[Rosters]) -> None:
    async with doors() as rosters:
        team = await created(rosters)
        assert team.lead_agent_id == team.members[0].agent_id == "team-lead@roof"
        members = [await rosters.join(ROOF, newcomer(name)) for name in ("ann", "ann", "ann", LEAD_NAME)]
        names = [member.name for member in members]
        assert names[0] == "ann"
        assert len({*names, LEAD_NAME}) == 5
        assert all(name.startswith("ann-") for name in names[1:3])
        assert [member.agent_id for member in members] == [f"{name}@roof" for name in names]


@RULES.shows()
async def nobody_joins_under_a_name_of_the_runtime(doors: Doors[Rosters]) -> None:
    async with doors() as rosters:
        await created(rosters)
        for name in RESERVED:
            try:
                member = await rosters.join(ROOF, newcomer(name))
            except BadName:
                continue
            assert member.name not in RESERVED


@RULES.shows("TEAM-04")
async def colours_come_in_order_of_spawning_and_round_again(doors: Doors[Rosters]) -> None:
    async with doors() as rosters:
        team = await created(rosters)
        assert team.members[0].color is None
        colors = [(await rosters.join(ROOF, newcomer(f"agent-{n}"))).color for n in range(10)]
        assert colors == [*COLORS, *COLORS[:2]]


@RULES.shows("TEAM-06")
async def of_many_who_join_at_the_same_time_none_is_lost(doors: Doors[Rosters]) -> None:
    async with opened(doors, 4) as several:
        await created(several[0])
        joined = await together(*(several[n % 4].join(ROOF, newcomer()) for n in range(32)))
        members = (await found(several[0])).members
        assert len(members) == 33
        assert set(members[1:]) == set(joined)
        assert len({member.name for member in members}) == 33


@RULES.shows("TEAM-09")
async def a_team_named_by_a_uuid_is_read_and_its_prompts_are_whole(doors: Doors[Rosters]) -> None:
    uuid = "c93b690c-0000-4000-8000-d9451b749ac2"
    prompt = "line\n日本 \U0001f41f half \ud83d " + "x" * 50_000
    async with opened(doors, 2) as (rosters, others):
        await created(rosters, uuid)
        member = await rosters.join(TeamName(uuid), newcomer(prompt=prompt))
        there = (await found(others, TeamName(uuid))).member(member.name)
        assert there == member
        assert (there.prompt, there.tmux_pane_id, there.subscriptions) == (prompt, "in-process", ())


@RULES.shows()
async def a_change_touches_one_member_alone(doors: Doors[Rosters]) -> None:
    async with opened(doors, 2) as (rosters, others):
        await created(rosters)
        ann, bob = [await rosters.join(ROOF, newcomer(name)) for name in ("ann", "bob")]
        changed = await rosters.change(ROOF, ann.name, is_active=False, tmux_pane_id="%3")
        assert (changed.is_active, changed.tmux_pane_id, changed.prompt) == (False, "%3", ann.prompt)
        assert (await found(others)).members[1:] == (changed, bob)
        await refused(rosters.change(ROOF, AgentName("nobody"), is_active=True), RecordError)
        await refused(rosters.change(TeamName("none"), ANN, is_active=True), NoSuchTeam)


@RULES.shows()
async def what_makes_a_member_itself_is_never_changed(doors: Doors[Rosters]) -> None:
    async with doors() as rosters:
        await created(rosters)
        ann = await rosters.join(ROOF, newcomer())
        changes: tuple[dict[str, object], ...] = ({"agent_id": "bob@roof"}, {"joined_at": 1})
        for change in changes:
            said = await refused(rosters.change(ROOF, ANN, is_active=False, **change), RecordError)
            assert next(iter(change)) in said
        assert (await found(rosters)).members[1] == ann


@RULES.shows()
async def a_teammate_elsewhere_may_lead_a_team(doors: Doors[Rosters]) -> None:
    async with opened(doors, 2) as (rosters, others):
        team = await rosters.create(ROOF, lead=_LEAD, session="s-1", description=None, leader="bob@cellar")
        assert (team.lead_agent_id, team.lead_session_id) == ("bob@cellar", "s-1")
        assert [member.name for member in team.members] == [LEAD_NAME]
        assert await others.read(ROOF) == team


@RULES.shows("TEAM-05")
async def who_is_at_work_is_shown_for_many_at_once_and_strangers_are_passed_over(
    doors: Doors[Rosters],
) -> None:
    async with opened(doors, 2) as (rosters, others):
        await created(rosters)
        names = [(await rosters.join(ROOF, newcomer(name))).name for name in ("ann", "bob", "cyd")]
        await others.show_active(ROOF, {names[0]: False, names[2]: False, AgentName("nobody"): True})
        members = (await found(rosters)).members
        assert [member.name for member in members] == [LEAD_NAME, *names]
        assert [member.is_active for member in members] == [None, False, True, False]
        await refused(rosters.show_active(TeamName("none"), {ANN: True}), NoSuchTeam)


@RULES.shows()
async def who_leaves_is_gone(doors: Doors[Rosters]) -> None:
    async with opened(doors, 2) as (rosters, others):
        await created(rosters)
        await rosters.join(ROOF, newcomer())
        assert await rosters.leave(ROOF, ANN)
        assert not await rosters.leave(ROOF, ANN)
        assert [member.name for member in (await found(others)).members] == [LEAD_NAME]
        assert (await rosters.join(ROOF, newcomer())).name == "ann"


@RULES.shows()
async def a_team_is_deleted_only_when_nobody_is_at_work(doors: Doors[Rosters]) -> None:
    async with opened(doors, 2) as (rosters, others):
        await created(rosters)
        await rosters.join(ROOF, newcomer())
        assert "ann" in await refused(others.delete(ROOF), TeamBusy)
        assert len((await found(others)).members) == 2
        await rosters.change(ROOF, ANN, is_active=False)
        await others.delete(ROOF)
        assert await rosters.read(ROOF) is None
        assert list(await rosters.list()) == []
        assert (await created(rosters)).name == "roof"


@RULES.shows()
async def an_unknown_team_is_absent_and_cannot_be_joined(doors: Doors[Rosters]) -> None:
    async with doors() as rosters:
        assert await rosters.read(ROOF) is None
        assert list(await rosters.list()) == []
        assert "roof" in await refused(rosters.join(ROOF, newcomer()), NoSuchTeam)


@RULES.shows()
async def what_cannot_be_a_name_is_refused(doors: Doors[Rosters]) -> None:
    async with doors() as rosters:
        await created(rosters)
        for odd in ("", "../up", "a/b", ".", "-x", "x" * 65, "nul\0", "a b"):
            await refused(created(rosters, odd), BadName)
            await refused(rosters.join(ROOF, newcomer(odd)), BadName)
        assert list(await rosters.list()) == [ROOF]
        assert len((await found(rosters)).members) == 1
