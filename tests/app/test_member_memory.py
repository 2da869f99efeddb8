"""Memory of members that share a process: it must not grow with the size of their team.

The members run in the process of the test, which plays their lead.
"""

from __future__ import annotations

import asyncio
import gc
import socket
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest

from agent_scripts import script_agents
from server_scripts import run_provider
from session_helpers import open_session
from shoal.app.agents.member_bootstrap import LeadPaths, MemberBootstrap, build_inherited_options
from shoal.app.options import Options
from shoal.app.session.member_main import run_member_session
from shoal.app.session.ray_member_main import _HostedMember
from shoal.app.session.session import Session
from shoal.backends import heap_trim
from shoal.backends.socket_channel import SocketChannel
from shoal.core.agents.subagents import SpawnRequest
from shoal.core.clock import SystemClock
from shoal.core.compact_event import CompactEvent
from shoal.core.ids import IdGenerator
from shoal.core.names import LEAD_NAME, AgentName, TeamName
from shoal.core.store import Store
from shoal.core.teams.mail_signatures import MailSigner
from shoal.core.teams.roster import NewMember, TeamRoster
from shoal.stores.postgres.database_client import DatabaseClient
from shoal.stores.postgres.postgres_store import PostgresStore
from shoal.team.channel.lead_channel import BudgetLimitSet
from shoal.team.mail.mail_sender import TeamMailPoster
from shoal.wire.member_channel_codec import (
    BudgetGrantDecidedMessage,
    BudgetReservationRequestedMessage,
    MemberReadyMessage,
    MemberStartRefusedMessage,
    MemberStateReportedMessage,
    MemberWorkSlotRequestedMessage,
    encode_member_channel_message,
    parse_message_from_member,
)
from team_scripts import get_home, send_message

pytestmark = pytest.mark.needs("postgres", "asyncpg")
CLOCK = SystemClock()
TEAM = TeamName("crew")
PATIENCE = 60
COUNT, OTHERS = 8, 50
ROLE = " ".join(["This instruction is long."] * 100)


class Member:
    """A member in this process, and its lead's end of the channel."""

    def __init__(self, bootstrap: MemberBootstrap) -> None:
        ends = socket.socketpair()
        self.lead, self._own = map(SocketChannel, ends)
        self.sessions: list[Session] = []
        self.is_idle = CompactEvent()
        self.is_ready = CompactEvent()
        self.counts = Counter[type]()
        """Objects of this process when the member is idle for the first time."""
        self._bootstrap = bootstrap

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(self._serve())
            await run_member_session(self._own, self._bootstrap, self.sessions.append)
            serving.cancel()
        self.lead.close()
        self._own.close()

    def end(self) -> None:
        for session in self.sessions:
            assert session.teams.member_host is not None
            session.teams.member_host.request_member_end("The test is over.")

    async def _serve(self) -> None:
        while (message := await self.lead.receive()) is not None:
            match parse_message_from_member(message):
                case MemberWorkSlotRequestedMessage(number=number):
                    self._grant(number)
                case BudgetReservationRequestedMessage(number=number):
                    self._grant(number)
                case MemberReadyMessage():
                    self.is_ready.set()
                case MemberStateReportedMessage(state="idle"):
                    self.is_idle.set()
                case MemberStartRefusedMessage(why=why):
                    pytest.fail(why)
                case _:
                    pass

    def _grant(self, number: int) -> None:
        self.lead.send(encode_member_channel_message(BudgetGrantDecidedMessage(number=number, tokens=1)))


def build_bootstrap(cwd: Path, store: Store, session: str, run: Path, name: AgentName) -> MemberBootstrap:
    opened = build_inherited_options(
        Options(skip_permissions=True, agents={"worker": {"description": "d", "prompt": ROLE}}),
        cwd=cwd,
        model="anthropic:claude-sonnet-4-5",
        mode="bypassPermissions",
        seed=None,
        store=store,
        trace="",
    )
    return MemberBootstrap(
        name=name,
        team=TEAM,
        order=SpawnRequest(prompt="Begin.", description="d", kind="worker", name=name, team=TEAM),
        mode=None,
        call="c",
        session=session,
        paths=LeadPaths(run=str(run)),
        rules=BudgetLimitSet(),
        answered=(),
        denied=(),
        opened=opened,
    )


def list_objects() -> list[object]:
    """Return all objects that do not live since the start of the tests."""
    gc.collect()
    found = {id(each): each for each in gc.get_objects()}
    new = list(found.values())
    while new:
        # Small objects are not tracked by the garbage collector.
        others = (
            each for each in gc.get_referents(*new) if not gc.is_tracked(each) and id(each) not in found
        )
        new = list({id(each): each for each in others}.values())
        found |= {id(each): each for each in new}
    return list(found.values())


def count_objects() -> Counter[type]:
    """Count the empty queues, the events with one, and the generators of random numbers."""
    kinds = (deque, asyncio.Event, Random)
    return Counter(type(each) for each in list_objects() if isinstance(each, kinds) and not is_used(each))


def is_used(found: object) -> bool:
    return isinstance(found, deque) and bool(found)


@asynccontextmanager
async def run_members(cwd: Path, database: str, others: int) -> AsyncIterator[list[Member]]:
    """Let members join a team with others one by one, and send a message; yield when they are idle."""
    ids, names = IdGenerator(None), [AgentName(f"m{number}") for number in range(COUNT)]
    with closing(PostgresStore(DatabaseClient(database), get_home())) as store:
        session_id = str(uuid4())
        session = store.create_session(session_id, cwd=str(cwd))
        session.acquire_lock()
        rosters = store.open_rosters(clock=CLOCK, report=print)
        await rosters.create_team(TEAM, lead=new_member(LEAD_NAME, cwd), session=session_id, description="")
        mailboxes = store.open_mailboxes(TEAM, clock=CLOCK, ids=ids, report=print)
        signer = MailSigner(TEAM, store.load_signing_key(TEAM))
        poster = TeamMailPoster(mailboxes, {}, clock=CLOCK, ids=ids, seal=signer)
        for number in range(others):
            await rosters.add_member(TEAM, new_member(AgentName(f"other{number}"), cwd))
        await mailboxes.open_inbox(LEAD_NAME)
        members: list[Member] = []
        async with asyncio.TaskGroup() as tasks, asyncio.timeout(PATIENCE):
            try:
                for name in names:
                    await rosters.add_member(TEAM, new_member(name, cwd))
                    await mailboxes.open_inbox(name)
                    members.append(Member(build_bootstrap(cwd, store, session_id, session.directory, name)))
                    tasks.create_task(members[-1].run())
                    await members[-1].is_ready.wait()
                    await poster.post_lead_prompt(name, "Begin.", "")
                    await members[-1].is_idle.wait()
                    members[-1].counts = count_objects()
                yield members
            finally:
                for member in members:
                    member.end()
        await mailboxes.aclose()


def new_member(name: AgentName, cwd: Path) -> NewMember:
    return NewMember(name=name, agent_type="worker", model="m", cwd=str(cwd), prompt="Begin.")


trims: list[int] = []


@pytest.fixture
async def members(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[Member]]:
    """Members of a large team that have sent a message and are idle."""
    script = [send_message("team-lead", "Hello."), "Done."]
    trims.clear()
    monkeypatch.setattr(heap_trim, "trim_heap", lambda: trims.append(1))
    async with run_provider(monkeypatch, **{f"m{number}": script for number in range(COUNT)}) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        async with run_members(tmp_path, database, OTHERS) as members:
            server.requests.clear()
            yield members


async def test_members_keep_one_roster_together_and_none_of_their_own(members: list[Member]) -> None:
    rosters = [each for each in list_objects() if isinstance(each, TeamRoster)]
    assert sum(len(each.members) > OTHERS for each in rosters) == 1
    # A member still sees the others.
    host = members[0].sessions[0].teams
    seen = {each.name for each in (*host.list_members(), *await host.list_external_members())}
    assert len(seen) == OTHERS + COUNT


async def test_each_member_keeps_its_prompt_once_and_all_share_their_definition(
    members: list[Member],
) -> None:
    prompts = [each for each in list_objects() if isinstance(each, str) and ROLE in each]
    assert len(prompts) == len(members) + 1


async def test_a_member_has_few_queues_and_no_random_numbers(members: list[Member]) -> None:
    """Each queue takes 700 bytes, and a generator of random numbers 2,500."""
    growth = members[-1].counts - members[1].counts
    assert growth[Random] == 0
    assert growth[asyncio.Event] < COUNT - 2
    assert growth[deque] <= 8 * (COUNT - 2)


async def test_members_share_the_environment_and_a_heap_trimmer(members: list[Member]) -> None:
    environments = [member.sessions[0].runtime.settings.environ for member in members]
    assert all(each is environments[0] for each in environments)
    assert len(trims) <= 1  # an earlier test may have trimmed the heap


async def test_objects_of_started_members_are_frozen_and_those_of_ended_ones_are_not(tmp_path: Path) -> None:
    heap = heap_trim.StartedObjects()
    hosted = [_HostedMember(heap) for _ in range(heap_trim.STARTS_PER_FREEZE)]
    gc.unfreeze()
    try:
        async with open_session(tmp_path, script_agents(lead=["x"])) as session:
            for member in hosted:
                member.watch_session(session)
            assert gc.get_freeze_count()
            for member in hosted:
                member.note_end()
            assert not gc.get_freeze_count()
    finally:
        gc.freeze()
