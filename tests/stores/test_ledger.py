from __future__ import annotations

import subprocess
import sys

import pytest

from shoal.core.events import AgentStarted, RequestFailed, RequestSent, RequestSettled
from shoal.core.ids import LEAD, AgentId, RequestId
from shoal.core.usage import Spent, Usage
from shoal.stores.files.journal import FileJournal
from shoal.stores.files.ledger import Worker, usage_of

WORKER = AgentId("a1")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.jsonl"


def settled(agent, request, model, tokens, cost):
    usage = Usage(
        input_tokens=tokens,
        output_tokens=2 * tokens,
        cache_creation_input_tokens=3 * tokens,
        cache_read_input_tokens=4 * tokens,
    )
    return RequestSettled(
        agent=agent, request=RequestId(request), model=model, usage=usage, cost_usd=cost, duration_ms=1
    )


def sent(agent, request, model="m"):
    return RequestSent(agent=agent, request=RequestId(request), model=model)


def failed(agent, request, *, billed):
    return RequestFailed(agent=agent, request=RequestId(request), reason="cut off", billed=billed)


@pytest.mark.spec("USR-19")
def test_the_sums_per_agent_and_model_are_what_the_provider_reported(path, clock):
    journal = FileJournal(path, clock)
    for event in (
        sent(LEAD, "r1"),
        sent(WORKER, "r2"),
        settled(LEAD, "r1", "m", 10, 0.5),
        settled(WORKER, "r2", "m", 100, 0.25),
        sent(LEAD, "r3"),
        settled(LEAD, "r3", "m", 1, 0.5),
        sent(LEAD, "r4", "n"),
        settled(LEAD, "r4", "n", 1000, None),
    ):
        journal.append(event)
    ledger = usage_of(path)
    assert set(ledger.spent) == {(LEAD, "m"), (WORKER, "m"), (LEAD, "n")}
    assert ledger.spent[LEAD, "m"] == Spent(
        requests=2,
        usage=Usage(
            input_tokens=11,
            output_tokens=22,
            cache_creation_input_tokens=33,
            cache_read_input_tokens=44,
        ),
        usd=1.0,
    )
    assert ledger.spent[LEAD, "n"].unpriced == 1
    assert ledger.total.usage.input_tokens == 1111
    assert ledger.total.requests == 4
    assert ledger.unsettled == ()


def started(agent, kind, name, task, **more):
    facts = {"parent": LEAD, "call": "c", "depth": 1, "model": "m", "mode": "default", "cwd": "/"}
    return AgentStarted(agent=agent, kind=kind, name=name, description=task, background=True, **facts | more)


@pytest.mark.spec("USR-19")
def test_the_sums_by_agent_type_and_model_are_all_the_whole(path, clock):
    journal = FileJournal(path, clock)
    other = AgentId("a2")
    for event in (
        settled(LEAD, "r1", "m", 1, 0.5),
        started(WORKER, "Explore", "finder", "find the bug"),
        started(other, "Explore", "", "find another"),
        settled(WORKER, "r2", "m", 10, 0.25),
        settled(other, "r3", "n", 100, 0.25),
        started(WORKER, "Explore", "finder", "find the bug", resumed=True),
        settled(WORKER, "r4", "n", 1_000, None),
    ):
        journal.append(event)
    ledger = usage_of(path)
    for sums in (ledger.by_agent, ledger.by_kind, ledger.by_model):
        assert sum(sums.values(), Spent()) == ledger.total
    assert {kind: spent.usage.input_tokens for kind, spent in ledger.by_kind.items()} == {
        "lead": 1,
        "Explore": 1_110,
    }
    assert ledger.by_agent[WORKER].usage.input_tokens == 1_010
    assert ledger.by_model["n"].requests == 2
    assert ledger.worker(WORKER) == Worker(kind="Explore", name="finder", task="find the bug")
    assert len(ledger.workers) == 2


def test_a_failed_request_is_listed_only_if_it_may_have_cost_something(path, clock):
    journal = FileJournal(path, clock)
    for event in (
        sent(LEAD, "free"),
        failed(LEAD, "free", billed=False),
        sent(LEAD, "again"),
        failed(LEAD, "again", billed=True),
        sent(LEAD, "again"),
        settled(LEAD, "again", "m", 1, 0.0),
        sent(LEAD, "twice"),
        sent(LEAD, "twice"),
        settled(LEAD, "twice", "m", 1, 0.0),
    ):
        journal.append(event)
    unsettled = usage_of(path).unsettled
    assert [(u.request, u.model, u.reason) for u in unsettled] == [
        ("again", "m", "cut off"),
        ("twice", "m", "no answer is recorded"),
    ]


def test_no_journal_is_an_empty_ledger(path):
    assert usage_of(path).total == Spent()


CHILD = """
import sys
from pathlib import Path
from shoal.core.clock import SystemClock
from shoal.core.events import RequestSent, RequestSettled
from shoal.core.usage import Spent, Usage
from shoal.stores.files.journal import FileJournal
journal = FileJournal(Path(sys.argv[1]), SystemClock())
journal.append(RequestSent(agent="lead", request="r1", model="m"))
usage = Usage(input_tokens=5, output_tokens=6)
journal.append(
    RequestSettled(agent="lead", request="r1", model="m", usage=usage, cost_usd=0.1, duration_ms=1)
)
journal.append(RequestSent(agent="a1", request="r2", model="n"))
print("sent", flush=True)
sys.stdin.read()
"""


@pytest.mark.spec("USR-19")
def test_a_request_in_flight_when_the_process_is_killed_is_listed_as_unsettled(path):
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout.readline() == b"sent\n"
        child.kill()
    ledger = usage_of(path)
    assert ledger.total.usage == Usage(input_tokens=5, output_tokens=6)
    assert [(u.request, u.agent, u.model) for u in ledger.unsettled] == [("r2", "a1", "n")]
