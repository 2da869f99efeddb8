from __future__ import annotations

import subprocess
import sys

import pytest

from shoal.core.events import RequestFailed, RequestSent, RequestSettled
from shoal.core.ids import LEAD, AgentId, RequestId
from shoal.core.usage import Spent, Usage
from shoal.stores.files.journal import FileJournal
from shoal.stores.files.ledger import usage_of

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
