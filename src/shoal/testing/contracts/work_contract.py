"""Contract of the work that agents on other machines have sent to a session."""

from __future__ import annotations

from shoal.core.store import Store, WorkPart, WorkSummary
from shoal.testing.contracts.contract_rules import ContractRules, StoreOpener, open_store_handles
from shoal.testing.contracts.session_contract import FIRST, SECOND, create_used_session

RULES = ContractRules()
_BASE = "c" * 40


def make_part(number: int, *, agent: str = "ann", is_first: bool = False) -> WorkPart:
    return WorkPart(
        agent=agent,
        refs={"": f"{number:040x}", ".branches/fix/ä": f"{number + 1:040x}"},
        needed=(_BASE,),
        is_first=is_first,
        bundle=b"# v2 git bundle\n\0\xff\n" * number,
    )


def summarize(*parts: WorkPart) -> WorkSummary:
    last = parts[-1]
    sizes = [len(part.bundle) for part in parts]
    return WorkSummary(
        last=WorkPart(
            agent=last.agent, refs=last.refs, needed=last.needed, is_first=last.is_first, bundle=b""
        ),
        parts=len(parts),
        first_size=sizes[0],
        later_size=sum(sizes[1:]),
    )


@RULES.add_rule()
async def part_of_work_is_stored_when_append_returns(open_store: StoreOpener[Store]) -> None:
    async with open_store_handles(open_store, 2) as (store, other):
        work = create_used_session(store, FIRST).open_work()
        seen = other.find_session(FIRST).open_work()
        assert (seen.read_parts("ann"), seen.list_summaries()) == ((), {})
        parts = [make_part(number, is_first=number == 1) for number in range(1, 13)]
        for count, part in enumerate(parts, 1):
            work.append_part(part)
            assert seen.read_parts("ann") == tuple(parts[:count])
            assert seen.list_summaries() == {"ann": summarize(*parts[:count])}


@RULES.add_rule()
async def first_part_of_work_replaces_all_earlier_ones(open_store: StoreOpener[Store]) -> None:
    async with open_store_handles(open_store, 2) as (store, other):
        work = create_used_session(store, FIRST).open_work()
        for number in (1, 2, 3):
            work.append_part(make_part(number, is_first=number == 1))
        full, next_part = make_part(4, is_first=True), make_part(5)
        for part in (full, next_part):
            work.append_part(part)
        seen = other.find_session(FIRST).open_work()
        assert seen.read_parts("ann") == (full, next_part)
        assert seen.list_summaries() == {"ann": summarize(full, next_part)}


@RULES.add_rule()
async def part_of_work_that_is_stored_again_changes_nothing(open_store: StoreOpener[Store]) -> None:
    async with open_store_handles(open_store, 2) as (store, other):
        work = create_used_session(store, FIRST).open_work()
        parts = (make_part(1, is_first=True), make_part(2))
        for part in parts:
            work.append_part(part)
            other.find_session(FIRST).open_work().append_part(part)
        assert work.read_parts("ann") == parts


@RULES.add_rule()
async def work_of_agents_and_sessions_is_separate(open_store: StoreOpener[Store]) -> None:
    async with open_store() as store:
        names = ("ann", "ann.branches", "../ben", "n" * 300)
        work = create_used_session(store, FIRST).open_work()
        for number, agent in enumerate(names, 1):
            work.append_part(make_part(number, agent=agent, is_first=True))
        assert create_used_session(store, SECOND).open_work().list_summaries() == {}
        assert {*work.list_summaries()} == {*names}
        for number, agent in enumerate(names, 1):
            assert work.read_parts(agent) == (make_part(number, agent=agent, is_first=True),)
