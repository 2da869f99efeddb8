"""Contract of the questions of every store: the first answer wins, and it must fit the question."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256

from shoal.core.clock import SystemClock
from shoal.core.errors import StateFileError
from shoal.core.ids import LEAD_ID, SessionId
from shoal.core.permissions.questions import (
    RUN_ENDED_REASON,
    AllowAnswer,
    ChoiceAnswer,
    ChoiceQuestion,
    DenyAnswer,
    PermissionQuestion,
    PlanApprovalQuestion,
    PlanApprovedAnswer,
    Question,
)
from shoal.core.store import QuestionStore, Store
from shoal.testing.contracts.contract_rules import (
    WAKE_SECONDS,
    ContractRules,
    StoreOpener,
    expect_raised,
    open_store_handles,
)
from shoal.testing.contracts.session_contract import FIRST, SECOND, create_used_session

RULES = ContractRules()
_HOUR = 3_600_000
_NO = DenyAnswer(reason="no")
_ENDED = DenyAnswer(reason=RUN_ENDED_REASON, by="policy")


def make_question(question_id: str = "q-1", command: str = "ls") -> PermissionQuestion:
    return PermissionQuestion(
        id=question_id,
        agent=LEAD_ID,
        tool_use_id=f"call-{question_id}",
        tool="Bash",
        input={"command": command},
        reason="asks",
    )


@asynccontextmanager
async def open_question_handles(
    open_store: StoreOpener[Store],
) -> AsyncIterator[tuple[QuestionStore, QuestionStore]]:
    """Open the questions of one session twice, as the session and another process do."""
    async with open_store_handles(open_store, 2) as (store, other):
        session = create_used_session(store, FIRST)
        yield session.open_questions(), other.find_session(FIRST).open_questions()


@RULES.add_rule()
async def question_is_open_until_it_is_answered(open_store: StoreOpener[Store]) -> None:
    async with open_question_handles(open_store) as (questions, others):
        first, second = make_question(), make_question("q-2")
        assert others.list_open_questions() == ()
        for question in (first, second):
            questions.store_question(question)
        assert others.list_open_questions() == (first, second)
        assert others.get("q-1") == first
        assert questions.read_answer(first) is None
        assert others.answer("q-1", AllowAnswer(remember="session"))
        assert questions.list_open_questions() == (second,)
        assert questions.read_answer(first) == AllowAnswer(remember="session")


@RULES.add_rule()
async def open_questions_of_all_sessions_are_listed(open_store: StoreOpener[Store]) -> None:
    async with open_store_handles(open_store, 2) as (store, other):
        session, without_questions = (create_used_session(store, each) for each in (FIRST, SECOND))
        question = make_question()
        session.open_questions().store_question(question)
        assert list_open_questions(other) == {FIRST: ((question,), False)}
        session.acquire_lock()
        assert list_open_questions(other) == {FIRST: ((question,), True)}
        assert other.is_session_live(FIRST)
        assert not other.is_session_live(SECOND)
        session.release_lock()
        assert not other.is_session_live(FIRST)
        (asked,) = (each for each in other.list_session_questions() if each.session == FIRST)
        asked_at = asked.questions.get_asked_time(question)
        assert asked_at is None or abs(asked_at - SystemClock().now()) < _HOUR
        assert asked.questions.answer(question.id, AllowAnswer())
        assert list_open_questions(store) == {}
        assert without_questions.open_questions().list_open_questions() == ()


def list_open_questions(store: Store) -> dict[SessionId, tuple[tuple[Question, ...], bool]]:
    """List the open questions by session, and whether the session is live."""
    return {
        each.session: (found, each.is_live)
        for each in store.list_session_questions()
        if (found := each.questions.list_open_questions())
    }


@RULES.add_rule()
async def question_is_found_by_the_start_of_its_id(open_store: StoreOpener[Store]) -> None:
    async with open_question_handles(open_store) as (questions, others):
        answered, interrupted = make_question("q-1"), make_question("q-2")
        for question in (answered, interrupted, make_question("r-1")):
            questions.store_question(question)
        questions.settle_answer(answered, _NO)
        questions.settle_answer(interrupted, _ENDED)
        assert others.find_questions("q-") == (answered, interrupted)
        assert others.find_questions("q-2") == (interrupted,)
        assert others.find_questions("*") == ()
        assert not others.is_question_orphaned(answered)
        assert others.is_question_orphaned(interrupted)


@RULES.add_rule()
async def question_may_have_any_id(open_store: StoreOpener[Store]) -> None:
    # A random text, which no database can compress.
    long_id = "".join(sha256(bytes([number])).hexdigest() for number in range(128))
    async with open_question_handles(open_store) as (questions, others):
        for question_id in (long_id, long_id + "x", "a\0b", "a\ud800b", "a'b\"\\", "\u65e5\u672c"):
            question = make_question(question_id)
            questions.store_question(question)
            assert others.list_open_questions() == (question,)
            assert others.get(question_id) == question
            assert isinstance(others.get_asked_time(question), int | None)
            assert others.answer(question_id, _NO)
            assert questions.read_answer(question) == _NO


@RULES.add_rule()
async def first_answer_to_a_question_wins(open_store: StoreOpener[Store]) -> None:
    async with open_question_handles(open_store) as (questions, others):
        question = make_question()
        questions.store_question(question)
        assert others.answer("q-1", _NO)
        assert not questions.answer("q-1", AllowAnswer())
        assert questions.settle_answer(question, AllowAnswer()) == _NO
        assert others.read_answer(question) == _NO


@RULES.add_rule()
async def settled_answer_is_final_for_others(open_store: StoreOpener[Store]) -> None:
    async with open_question_handles(open_store) as (questions, others):
        question = make_question()
        questions.store_question(question)
        assert questions.settle_answer(question, AllowAnswer()) == AllowAnswer()
        assert not others.answer("q-1", _NO)


@RULES.add_rule()
async def answer_must_fit_its_question(open_store: StoreOpener[Store]) -> None:
    async with open_question_handles(open_store) as (questions, others):
        questions.store_question(make_question())
        questions.store_question(ChoiceQuestion(id="q-2", agent=LEAD_ID, choices=()))
        plan = PlanApprovalQuestion(id="q-3", agent=LEAD_ID, plan="do it", path="", digest="d1")
        questions.store_question(plan)
        for question_id, answer in (
            ("q-1", ChoiceAnswer(answers={})),
            ("q-2", AllowAnswer()),
            ("q-3", PlanApprovedAnswer(digest="another")),
        ):
            refusal = expect_raised(
                lambda question_id=question_id, answer=answer: others.answer(question_id, answer),  # type: ignore[misc]
                StateFileError,
            )
            assert question_id in refusal
        assert len(others.list_open_questions()) == 3
        assert others.answer("q-3", PlanApprovedAnswer(digest="d1"))


@RULES.add_rule()
async def answer_to_an_unknown_question_is_refused(open_store: StoreOpener[Store]) -> None:
    async with open_question_handles(open_store) as (questions, _):
        for give_answer in (questions.answer, questions.store_late_permission):
            refusal = expect_raised(lambda give=give_answer: give("q-9", AllowAnswer()), StateFileError)  # type: ignore[misc]
            assert "q-9" in refusal
        assert questions.get("q-9") is None


@RULES.add_rule()
async def question_under_a_used_id_has_no_answer(open_store: StoreOpener[Store]) -> None:
    async with open_question_handles(open_store) as (questions, others):
        first, second = make_question(), make_question(command="rm -r .")
        questions.store_question(first)
        questions.settle_answer(first, _ENDED)
        others.store_late_permission("q-1", AllowAnswer())
        questions.store_question(second)
        assert others.read_answer(second) is None
        questions.settle_answer(second, _ENDED)
        assert others.read_late_permission(second) is None


@RULES.add_rule()
async def late_permission_counts_once_for_a_dead_process(open_store: StoreOpener[Store]) -> None:
    async with open_question_handles(open_store) as (questions, others):
        question = make_question()
        questions.store_question(question)
        expect_raised(lambda: others.store_late_permission("q-1", AllowAnswer()), StateFileError)
        questions.settle_answer(question, _ENDED)
        assert questions.read_late_permission(question) is None
        expect_raised(lambda: others.store_late_permission("q-1", _NO), StateFileError)
        others.store_late_permission("q-1", AllowAnswer())
        assert questions.read_late_permission(question) == AllowAnswer()
        expect_raised(lambda: others.store_late_permission("q-1", AllowAnswer()), StateFileError)


@RULES.add_rule()
async def answer_from_elsewhere_wakes_the_watch(open_store: StoreOpener[Store]) -> None:
    async with open_question_handles(open_store) as (questions, others):
        questions.store_question(make_question())
        was_called = asyncio.Event()
        watch = questions.watch_answers(was_called.set)
        try:
            assert others.answer("q-1", AllowAnswer())
            async with asyncio.timeout(WAKE_SECONDS):
                await was_called.wait()
        finally:
            watch.close()
