"""Open questions of all runs of a home, as another process lists and answers them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from shoal.app.run_access.pending_questions import (
    find_interrupted_question,
    find_pending_question,
    list_pending_questions,
    submit_late_answer,
    submit_question_answer,
)
from shoal.core.clock import SystemClock
from shoal.core.errors import StateFileError
from shoal.core.ids import LEAD_ID, SessionId
from shoal.core.permissions.questions import (
    RUN_ENDED_REASON,
    AllowAnswer,
    DenyAnswer,
    PermissionQuestion,
    PlanApprovalQuestion,
    Question,
)
from shoal.core.store import Store
from shoal.stores.files.file_store import FileStore
from shoal.stores.files.locks.pid_locks import SessionLock

LIVE, DEAD = (
    SessionId("11111111-0000-4000-8000-000000000001"),
    SessionId("22222222-0000-4000-8000-000000000002"),
)
CLOCK = SystemClock()


def make_question(name: str) -> PermissionQuestion:
    return PermissionQuestion(id=name, agent=LEAD_ID, tool_use_id="t", tool="Bash", input={}, reason="r")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A live run that asked two questions, and a dead one that asked one."""
    store = FileStore(tmp_path)
    with ExitStack() as locks:
        locks.callback(SessionLock(tmp_path, LIVE).release)
        SessionLock(tmp_path, DEAD).release()
        for session, name, age in ((LIVE, "qa1", 5), (LIVE, "qa2", 3600), (DEAD, "qb1", 60)):
            store.open_questions(session).store_question(make_question(name))
            path = next(tmp_path.rglob(f"{name}.json"))
            time = CLOCK.now() / 1000 - age - 0.5
            os.utime(path, (time, time))
        yield store


def test_open_questions_are_listed_with_their_age_the_oldest_first(store: Store, tmp_path: Path) -> None:
    found = list_pending_questions(store, CLOCK)
    assert [(each.session, each.question.id, each.live) for each in found] == [
        (LIVE, "qa2", True),
        (DEAD, "qb1", False),
        (LIVE, "qa1", True),
    ]
    assert [each.seconds for each in found if each.seconds is not None] == pytest.approx([3600, 60, 5], abs=4)
    path = next(tmp_path.rglob("qa1.json"))
    time = CLOCK.now() / 1000 + 1000
    os.utime(path, (time, time))
    assert list_pending_questions(store, CLOCK)[-1].seconds == 0, "a clock that was set back is not an age"


def test_a_question_is_found_by_its_id_or_a_unique_beginning(store: Store, tmp_path: Path) -> None:
    found = list_pending_questions(store, CLOCK)
    assert find_pending_question(found, "qb", tmp_path).question.id == "qb1"
    assert find_pending_question(found, "qa1", tmp_path).question.id == "qa1"
    with pytest.raises(StateFileError, match="2 questions have an id that starts with 'qa': qa2, qa1"):
        find_pending_question(found, "qa", tmp_path)
    with pytest.raises(StateFileError, match="no open question 'x'") as refused:
        find_pending_question(found, "x", tmp_path)
    assert refused.value.path == tmp_path


def test_the_first_answer_of_a_live_run_counts_and_a_dead_run_gets_none(store: Store, tmp_path: Path) -> None:
    found = list_pending_questions(store, CLOCK)
    live, dead = (find_pending_question(found, name, tmp_path) for name in ("qa1", "qb1"))
    assert submit_question_answer(live, AllowAnswer()) is True
    assert submit_question_answer(live, DenyAnswer(reason="no")) is False
    for submit in (submit_question_answer, submit_late_answer):
        with pytest.raises(StateFileError, match=f"shoal --resume {DEAD}") as refused:
            submit(dead, AllowAnswer())
        assert refused.value.path == dead.asked_by.directory
    assert [each.question.id for each in list_pending_questions(store, CLOCK)] == ["qa2", "qb1"]


def test_an_interrupted_question_is_found_if_it_is_the_only_one_and_its_process_died(
    store: Store, tmp_path: Path
) -> None:
    assert find_interrupted_question(store, "q", CLOCK) is None
    questions: dict[str, Question] = {
        "qb1": make_question("qb1"),
        "qc1": make_question("qc1"),
        "qp1": PlanApprovalQuestion(id="qp1", agent=LEAD_ID, plan="p", path="plan.md", digest=""),
    }
    ended = DenyAnswer(reason=RUN_ENDED_REASON, by="policy")
    asked = store.open_questions(LIVE)
    for name in ("qc1", "qp1"):
        asked.store_question(questions[name])
        asked.settle_answer(questions[name], ended)
    found = find_interrupted_question(store, "q", CLOCK)
    assert found is not None
    assert (found.question.id, found.live) == ("qc1", True)
    assert find_interrupted_question(store, "qp", CLOCK) is None, "only a permission can be given later"
    submit_late_answer(found, AllowAnswer())
    with pytest.raises(StateFileError, match="already allowed"):
        submit_late_answer(found, AllowAnswer())
    store.open_questions(DEAD).settle_answer(questions["qb1"], ended)
    assert find_interrupted_question(store, "q", CLOCK) is None, "there are two"
    again = find_interrupted_question(store, "qb", CLOCK)
    assert again is not None
    assert again.live is False
