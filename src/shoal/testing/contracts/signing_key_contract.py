"""Contract of the signing keys of every store."""

from __future__ import annotations

from shoal.core.clock import SystemClock
from shoal.core.names import TeamName
from shoal.core.store import Store
from shoal.core.teams.mail_signatures import KEY_SIZE
from shoal.testing.contracts.contract_rules import ContractRules, StoreOpener, open_store_handles
from shoal.testing.contracts.roster_contract import ROOF, create_sample_team

RULES = ContractRules()


@RULES.add_rule()
async def every_process_signs_with_the_same_key(open_store: StoreOpener[Store]) -> None:
    async with open_store_handles(open_store, 2) as (store, other):
        key = store.load_signing_key(ROOF)
        assert len(key) == KEY_SIZE
        assert other.load_signing_key(ROOF) == store.load_signing_key(ROOF) == key


@RULES.add_rule()
async def each_team_has_a_key_of_its_own(open_store: StoreOpener[Store]) -> None:
    async with open_store() as store:
        assert store.load_signing_key(ROOF) != store.load_signing_key(TeamName("cellar"))


@RULES.add_rule()
async def key_is_deleted_with_its_team(open_store: StoreOpener[Store]) -> None:
    async with open_store_handles(open_store, 2) as (store, other):
        rosters = store.open_rosters(clock=SystemClock(), report=lambda _: None)
        await create_sample_team(rosters)
        key = store.load_signing_key(ROOF)
        await rosters.delete_team(ROOF)
        assert other.load_signing_key(ROOF) != key
        await rosters.aclose()
