"""Contract of every roster store."""

from __future__ import annotations

from shoal.core.errors import InvalidName, TeamHasActiveMembers, TeamNotFound, TeamStoreError
from shoal.core.names import LEAD_NAME, RESERVED_NAMES, AgentName, TeamName
from shoal.core.teams.roster import MEMBER_COLORS, NewMember, TeamRoster
from shoal.core.teams.team_storage import RosterStore
from shoal.testing.contracts.contract_rules import (
    ContractRules,
    StoreOpener,
    expect_refusal,
    open_store_handles,
    run_calls_concurrently,
)

RULES = ContractRules()
ROOF = TeamName("roof")
ANN = AgentName("ann")
_LEAD = NewMember(name=LEAD_NAME, agent_type="team-lead", model="big", cwd="/project", prompt="")


def make_new_member(name: str = "ann", *, prompt: str = "Repair it.") -> NewMember:
    return NewMember(
        name=AgentName(name), agent_type="general-purpose", model="small", cwd="/project/x", prompt=prompt
    )


async def create_sample_team(rosters: RosterStore, name: str = "roof") -> TeamRoster:
    return await rosters.create_team(TeamName(name), lead=_LEAD, session="s-1", description="repairs roofs")


async def read_existing_team(rosters: RosterStore, team: TeamName = ROOF) -> TeamRoster:
    roster = await rosters.read_team_roster(team)
    assert roster is not None
    return roster


@RULES.add_rule("TEAM-01")
async def a_team_begins_with_its_lead(open_store: StoreOpener[RosterStore]) -> None:
    async with open_store_handles(open_store, 2) as (rosters, others):
        team = await create_sample_team(rosters)
        assert (team.name, team.description, team.lead_session_id) == ("roof", "repairs roofs", "s-1")
        assert [member.name for member in team.members] == [LEAD_NAME]
        assert await others.read_team_roster(ROOF) == team
        assert list(await others.list_teams()) == [ROOF]


@RULES.add_rule("TEAM-01")
async def taken_team_name_gets_a_free_one(open_store: StoreOpener[RosterStore]) -> None:
    async with open_store_handles(open_store, 3) as stores:
        teams = await run_calls_concurrently(*(create_sample_team(stores[n % 3]) for n in range(6)))
        names = {team.name for team in teams}
        assert len(names) == 6
        assert "roof" in names
        assert set(await stores[0].list_teams()) == names
        for team in teams:
            assert team.lead_agent_id == f"team-lead@{team.name}"


@RULES.add_rule("TEAM-02")
async def roster_entries_hold_protocol_fields(open_store: StoreOpener[RosterStore]) -> None:
    async with open_store_handles(open_store, 2) as (rosters, others):
        team = await create_sample_team(rosters)
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
        ann = await rosters.add_member(ROOF, make_new_member())
        assert (ann.agent_type, ann.model, ann.cwd) == ("general-purpose", "small", "/project/x")
        assert (ann.prompt, ann.color, ann.plan_mode_required) == ("Repair it.", "blue", False)
        assert (ann.backend_type, ann.is_active) == ("in-process", True)
        assert (await read_existing_team(others)).members == (lead, ann)


@RULES.add_rule("TEAM-03")
async def an_agent_s_id_names_it_and_its_team_and_a_taken_name_gets_a_suffix(
    open_store: StoreOpener[RosterStore],
) -> None:
    async with open_store() as rosters:
        team = await create_sample_team(rosters)
        assert team.lead_agent_id == team.members[0].agent_id == "team-lead@roof"
        members = [
            await rosters.add_member(ROOF, make_new_member(name)) for name in ("ann", "ann", "ann", LEAD_NAME)
        ]
        names = [member.name for member in members]
        assert names[0] == "ann"
        assert len({*names, LEAD_NAME}) == 5
        assert all(name.startswith("ann-") for name in names[1:3])
        assert [member.agent_id for member in members] == [f"{name}@roof" for name in names]


@RULES.add_rule()
async def reserved_names_cannot_join_a_team(open_store: StoreOpener[RosterStore]) -> None:
    async with open_store() as rosters:
        await create_sample_team(rosters)
        for name in RESERVED_NAMES:
            try:
                member = await rosters.add_member(ROOF, make_new_member(name))
            except InvalidName:
                continue
            assert member.name not in RESERVED_NAMES


@RULES.add_rule("TEAM-03")
async def names_that_differ_only_in_case_get_a_suffix(open_store: StoreOpener[RosterStore]) -> None:
    async with open_store() as rosters:
        await create_sample_team(rosters)
        names = [
            (await rosters.add_member(ROOF, make_new_member(name))).name
            for name in ("Team-Lead", "ann", "Ann", "ＡＮＮ", "USER")
        ]
        assert names == ["Team-Lead-2", "ann", "Ann-2", "ANN-3", "USER-2"]


@RULES.add_rule("TEAM-04")
async def member_colors_cycle_in_spawn_order(open_store: StoreOpener[RosterStore]) -> None:
    async with open_store() as rosters:
        team = await create_sample_team(rosters)
        assert team.members[0].color is None
        colors = [(await rosters.add_member(ROOF, make_new_member(f"agent-{n}"))).color for n in range(10)]
        assert colors == [*MEMBER_COLORS, *MEMBER_COLORS[:2]]


@RULES.add_rule("TEAM-06")
async def concurrent_joins_lose_no_member(open_store: StoreOpener[RosterStore]) -> None:
    async with open_store_handles(open_store, 4) as stores:
        await create_sample_team(stores[0])
        new_members = await run_calls_concurrently(
            *(stores[n % 4].add_member(ROOF, make_new_member()) for n in range(32))
        )
        members = (await read_existing_team(stores[0])).members
        assert len(members) == 33
        assert set(members[1:]) == set(new_members)
        assert len({member.name for member in members}) == 33
        # Members that were added through the store are not those of another program.
        assert await stores[0].list_members_of_other_programs(ROOF) == frozenset()


@RULES.add_rule("TEAM-09")
async def a_team_named_by_a_uuid_is_read_and_its_prompts_are_whole(
    open_store: StoreOpener[RosterStore],
) -> None:
    uuid = "c93b690c-0000-4000-8000-d9451b749ac2"
    prompt = "line\n日本 \U0001f41f half \ud83d " + "x" * 50_000
    async with open_store_handles(open_store, 2) as (rosters, others):
        await create_sample_team(rosters, uuid)
        member = await rosters.add_member(TeamName(uuid), make_new_member(prompt=prompt))
        found_member = (await read_existing_team(others, TeamName(uuid))).find_member(member.name)
        assert found_member == member
        assert (found_member.prompt, found_member.tmux_pane_id, found_member.subscriptions) == (
            prompt,
            "in-process",
            (),
        )


@RULES.add_rule()
async def member_update_changes_one_member_only(open_store: StoreOpener[RosterStore]) -> None:
    async with open_store_handles(open_store, 2) as (rosters, others):
        await create_sample_team(rosters)
        ann, bob = [await rosters.add_member(ROOF, make_new_member(name)) for name in ("ann", "bob")]
        changed = await rosters.update_member(ROOF, ann.name, is_active=False, tmux_pane_id="%3")
        assert (changed.is_active, changed.tmux_pane_id, changed.prompt) == (False, "%3", ann.prompt)
        assert (await read_existing_team(others)).members[1:] == (changed, bob)
        await expect_refusal(rosters.update_member(ROOF, AgentName("nobody"), is_active=True), TeamStoreError)
        await expect_refusal(rosters.update_member(TeamName("none"), ANN, is_active=True), TeamNotFound)


@RULES.add_rule()
async def member_identity_fields_cannot_change(open_store: StoreOpener[RosterStore]) -> None:
    async with open_store() as rosters:
        await create_sample_team(rosters)
        ann = await rosters.add_member(ROOF, make_new_member())
        changes: tuple[dict[str, object], ...] = ({"agent_id": "bob@roof"}, {"joined_at": 1})
        for change in changes:
            message = await expect_refusal(
                rosters.update_member(ROOF, ANN, is_active=False, **change), TeamStoreError
            )
            assert next(iter(change)) in message
        assert (await read_existing_team(rosters)).members[1] == ann


@RULES.add_rule()
async def member_of_another_team_may_lead(open_store: StoreOpener[RosterStore]) -> None:
    async with open_store_handles(open_store, 2) as (rosters, others):
        team = await rosters.create_team(
            ROOF, lead=_LEAD, session="s-1", description=None, leader="bob@cellar"
        )
        assert (team.lead_agent_id, team.lead_session_id) == ("bob@cellar", "s-1")
        assert [member.name for member in team.members] == [LEAD_NAME]
        assert await others.read_team_roster(ROOF) == team


@RULES.add_rule("TEAM-05")
async def active_flags_are_set_for_many_members(
    open_store: StoreOpener[RosterStore],
) -> None:
    async with open_store_handles(open_store, 2) as (rosters, others):
        await create_sample_team(rosters)
        names = [
            (await rosters.add_member(ROOF, make_new_member(name))).name for name in ("ann", "bob", "cyd")
        ]
        await others.set_active_members(ROOF, {names[0]: False, names[2]: False, AgentName("nobody"): True})
        members = (await read_existing_team(rosters)).members
        assert [member.name for member in members] == [LEAD_NAME, *names]
        assert [member.is_active for member in members] == [None, False, True, False]
        await expect_refusal(rosters.set_active_members(TeamName("none"), {ANN: True}), TeamNotFound)


@RULES.add_rule()
async def removed_member_is_gone(open_store: StoreOpener[RosterStore]) -> None:
    async with open_store_handles(open_store, 2) as (rosters, others):
        await create_sample_team(rosters)
        await rosters.add_member(ROOF, make_new_member())
        assert await rosters.remove_member(ROOF, ANN)
        assert not await rosters.remove_member(ROOF, ANN)
        assert [member.name for member in (await read_existing_team(others)).members] == [LEAD_NAME]
        assert (await rosters.add_member(ROOF, make_new_member())).name == "ann"


@RULES.add_rule()
async def team_with_active_member_is_not_deleted(open_store: StoreOpener[RosterStore]) -> None:
    async with open_store_handles(open_store, 2) as (rosters, others):
        await create_sample_team(rosters)
        await rosters.add_member(ROOF, make_new_member())
        assert "ann" in await expect_refusal(others.delete_team(ROOF), TeamHasActiveMembers)
        assert len((await read_existing_team(others)).members) == 2
        await rosters.update_member(ROOF, ANN, is_active=False)
        await others.delete_team(ROOF)
        assert await rosters.read_team_roster(ROOF) is None
        assert list(await rosters.list_teams()) == []
        assert (await create_sample_team(rosters)).name == "roof"


@RULES.add_rule()
async def an_unknown_team_is_absent_and_cannot_be_joined(open_store: StoreOpener[RosterStore]) -> None:
    async with open_store() as rosters:
        assert await rosters.read_team_roster(ROOF) is None
        assert list(await rosters.list_teams()) == []
        assert "roof" in await expect_refusal(rosters.add_member(ROOF, make_new_member()), TeamNotFound)


@RULES.add_rule()
async def invalid_team_or_member_name_is_refused(open_store: StoreOpener[RosterStore]) -> None:
    async with open_store() as rosters:
        await create_sample_team(rosters)
        for invalid_name in ("", "../up", "a/b", ".", "-x", "x" * 65, "nul\0", "a b"):
            await expect_refusal(create_sample_team(rosters, invalid_name), InvalidName)
            await expect_refusal(rosters.add_member(ROOF, make_new_member(invalid_name)), InvalidName)
        assert list(await rosters.list_teams()) == [ROOF]
        assert len((await read_existing_team(rosters)).members) == 1
