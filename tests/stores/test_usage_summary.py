from __future__ import annotations

import subprocess
import sys

import pytest

from shoal.core.budgets.usage import Usage, UsageAndCostTotals
from shoal.core.events import AgentStarted, ModelRequestFailed, ModelRequestSent, ModelRequestSettled
from shoal.core.ids import LEAD_ID, AgentId, RequestId
from shoal.stores.files.sessions.file_journal import FileJournal
from shoal.stores.files.sessions.usage_summary import SpendingAgent, summarize_journal_usage

WORKER = AgentId("a1")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.jsonl"


def make_settled_request(agent, request, model, tokens, cost):
    usage = Usage(
        input_tokens=tokens,
        output_tokens=2 * tokens,
        cache_creation_input_tokens=3 * tokens,
        cache_read_input_tokens=4 * tokens,
    )
    return ModelRequestSettled(
        agent=agent, request=RequestId(request), model=model, usage=usage, cost_usd=cost, duration_ms=1
    )


def make_sent_request(agent, request, model="m"):
    return ModelRequestSent(agent=agent, request=RequestId(request), model=model)


def make_failed_request(agent, request, *, billed):
    return ModelRequestFailed(agent=agent, request=RequestId(request), reason="cut off", billed=billed)


@pytest.mark.spec("USR-19")
def test_totals_per_agent_and_model_match_the_reported_usage(path, clock):
    journal = FileJournal(path, clock)
    for event in (
        make_sent_request(LEAD_ID, "r1"),
        make_sent_request(WORKER, "r2"),
        make_settled_request(LEAD_ID, "r1", "m", 10, 0.5),
        make_settled_request(WORKER, "r2", "m", 100, 0.25),
        make_sent_request(LEAD_ID, "r3"),
        make_settled_request(LEAD_ID, "r3", "m", 1, 0.5),
        make_sent_request(LEAD_ID, "r4", "n"),
        make_settled_request(LEAD_ID, "r4", "n", 1000, None),
    ):
        journal.append(event)
    summary = summarize_journal_usage(path)
    assert set(summary.spent) == {(LEAD_ID, "m"), (WORKER, "m"), (LEAD_ID, "n")}
    assert summary.spent[LEAD_ID, "m"] == UsageAndCostTotals(
        requests=2,
        usage=Usage(
            input_tokens=11,
            output_tokens=22,
            cache_creation_input_tokens=33,
            cache_read_input_tokens=44,
        ),
        usd=1.0,
    )
    assert summary.spent[LEAD_ID, "n"].unpriced == 1
    assert summary.total.usage.input_tokens == 1111
    assert summary.total.requests == 4
    assert summary.unsettled == ()


def make_agent_start(agent, kind, name, task, **more):
    facts = {"parent": LEAD_ID, "call": "c", "depth": 1, "model": "m", "mode": "default", "cwd": "/"}
    return AgentStarted(agent=agent, kind=kind, name=name, description=task, background=True, **facts | more)


@pytest.mark.spec("USR-19")
def test_totals_by_agent_type_and_model_each_add_up_to_the_total(path, clock):
    journal = FileJournal(path, clock)
    other = AgentId("a2")
    for event in (
        make_settled_request(LEAD_ID, "r1", "m", 1, 0.5),
        make_agent_start(WORKER, "Explore", "finder", "find the bug"),
        make_agent_start(other, "Explore", "", "find another"),
        make_settled_request(WORKER, "r2", "m", 10, 0.25),
        make_settled_request(other, "r3", "n", 100, 0.25),
        make_agent_start(WORKER, "Explore", "finder", "find the bug", resumed=True),
        make_settled_request(WORKER, "r4", "n", 1_000, None),
    ):
        journal.append(event)
    summary = summarize_journal_usage(path)
    for sums in (summary.by_agent, summary.by_agent_kind, summary.by_model):
        assert sum(sums.values(), UsageAndCostTotals()) == summary.total
    assert {kind: spent.usage.input_tokens for kind, spent in summary.by_agent_kind.items()} == {
        "lead": 1,
        "Explore": 1_110,
    }
    assert summary.by_agent[WORKER].usage.input_tokens == 1_010
    assert summary.by_model["n"].requests == 2
    assert summary.get_agent(WORKER) == SpendingAgent(kind="Explore", name="finder", task="find the bug")
    assert len(summary.agents) == 2


def test_a_failed_request_is_listed_only_if_it_may_have_cost_something(path, clock):
    journal = FileJournal(path, clock)
    for event in (
        make_sent_request(LEAD_ID, "free"),
        make_failed_request(LEAD_ID, "free", billed=False),
        make_sent_request(LEAD_ID, "again"),
        make_failed_request(LEAD_ID, "again", billed=True),
        make_failed_request(LEAD_ID, "never sent", billed=True),
        make_sent_request(LEAD_ID, "again"),
        make_settled_request(LEAD_ID, "again", "m", 1, 0.0),
        make_sent_request(LEAD_ID, "twice"),
        make_sent_request(LEAD_ID, "twice"),
        make_settled_request(LEAD_ID, "twice", "m", 1, 0.0),
    ):
        journal.append(event)
    unsettled = summarize_journal_usage(path).unsettled
    assert [(u.request, u.model, u.reason) for u in unsettled] == [
        ("again", "m", "cut off"),
        ("never sent", "", "cut off"),
        ("twice", "m", "no answer is recorded"),
    ]
    assert (unsettled[1].usd, unsettled[1].tokens) == (0.0, 0)


@pytest.mark.parametrize(
    ("estimated_usd", "estimated_tokens", "expected"),
    [(None, None, (0.5, 7)), (0.0, 0, (0.0, 0)), (0.25, None, (0.25, 7)), (None, 3, (0.5, 3))],
)
def test_a_failed_request_counts_with_its_estimate_or_else_its_reservation(
    path, clock, estimated_usd, estimated_tokens, expected
):
    journal = FileJournal(path, clock)
    request, estimate = RequestId("r"), {"estimated_usd": estimated_usd, "estimated_tokens": estimated_tokens}
    reservation = {"reserved_usd": 0.5, "reserved_tokens": 7}
    journal.append(ModelRequestSent(agent=WORKER, request=RequestId("open"), model="m", **reservation))
    journal.append(ModelRequestSent(agent=WORKER, request=request, model="m", **reservation))
    journal.append(
        ModelRequestFailed(agent=WORKER, request=request, reason="cut off", billed=True, **estimate)
    )
    failed, unanswered = summarize_journal_usage(path).unsettled
    assert (failed.usd, failed.tokens) == expected
    assert (unanswered.usd, unanswered.tokens, unanswered.at) == (0.5, 7, clock.time)


def test_a_missing_journal_gives_an_empty_summary(path):
    assert summarize_journal_usage(path).total == UsageAndCostTotals()


KILLED_SCRIPT = """
import sys
from pathlib import Path
from shoal.core.clock import SystemClock
from shoal.core.events import ModelRequestSent, ModelRequestSettled
from shoal.core.budgets.usage import UsageAndCostTotals, Usage
from shoal.stores.files.sessions.file_journal import FileJournal
journal = FileJournal(Path(sys.argv[1]), SystemClock())
journal.append(ModelRequestSent(agent="lead", request="r1", model="m"))
usage = Usage(input_tokens=5, output_tokens=6)
journal.append(
    ModelRequestSettled(agent="lead", request="r1", model="m", usage=usage, cost_usd=0.1, duration_ms=1)
)
journal.append(ModelRequestSent(agent="a1", request="r2", model="n"))
print("sent", flush=True)
sys.stdin.read()
"""


@pytest.mark.spec("USR-19")
def test_a_request_in_flight_when_the_process_is_killed_is_listed_as_unsettled(path):
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED_SCRIPT, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout.readline() == b"sent\n"
        child.kill()
    summary = summarize_journal_usage(path)
    assert summary.total.usage == Usage(input_tokens=5, output_tokens=6)
    assert [(u.request, u.agent, u.model) for u in summary.unsettled] == [("r2", "a1", "n")]
