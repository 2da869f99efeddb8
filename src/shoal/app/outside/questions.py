"""Open questions of every run in a home, for answers from outside."""

from __future__ import annotations

from collections.abc import Iterator
from glob import escape
from pathlib import Path

from msgspec import Struct

from shoal.core.clock import Clock
from shoal.core.errors import StoreError
from shoal.core.ids import SessionId
from shoal.core.questions import Answer, MayRun, Question
from shoal.stores.files.locks import is_held
from shoal.stores.files.questions import Questions


class Row(Struct, frozen=True, kw_only=True):
    """Open question with its session and age."""

    session: SessionId
    question: Question
    seconds: int
    live: bool
    """True if the run that asked still waits; otherwise nobody receives an answer."""
    directory: Path


def open_rows(home: Path, clock: Clock) -> tuple[Row, ...]:
    """Return the open questions, the oldest first."""
    runs = (home / "shoal" / "runs").glob("*/questions")
    rows = [row for directory in runs for row in _of(home, directory, clock)]
    return tuple(sorted(rows, key=lambda row: -row.seconds))


def _of(home: Path, directory: Path, clock: Clock) -> Iterator[Row]:
    session = SessionId(directory.parent.name)
    live = is_held(home, session)
    store = Questions(directory)
    for question in store.open():
        seconds = max(0, (clock.now() - store.asked_at(question)) // 1000)
        yield Row(session=session, question=question, seconds=seconds, live=live, directory=directory)


def find_row(rows: tuple[Row, ...], start: str, home: Path) -> Row:
    """Return the question with this id or unique id prefix. Raises `StoreError`."""
    found = [row for row in rows if row.question.id.startswith(start)]
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(row.question.id for row in found)
        raise StoreError(f"{start!r} is the start of {len(found)} questions: {ids}.", path=home)
    raise StoreError(
        f"There is no open question {start!r}: it was answered, or withdrawn. `shoal ask` lists those open.",
        path=home,
    )


def find_cut_off(home: Path, start: str, clock: Clock) -> Row | None:
    """Return the only question with this id prefix that was interrupted by a dead process, if any."""
    found: list[Row] = []
    for path in (home / "shoal" / "runs").glob(f"*/questions/{escape(start)}*.json"):
        store, session = Questions(path.parent), SessionId(path.parent.parent.name)
        question = None if "." in path.stem else store.get(path.stem)
        if isinstance(question, MayRun) and store.was_cut_off(question):
            seconds = max(0, (clock.now() - store.asked_at(question)) // 1000)
            live = is_held(home, session)
            found.append(
                Row(session=session, question=question, seconds=seconds, live=live, directory=path.parent)
            )
    return found[0] if len(found) == 1 else None


def give_late(row: Row, answer: Answer) -> None:
    """Submit a late answer. Raises `StoreError` if the run has ended, for a no, and after an earlier yes."""
    if not row.live:
        raise nobody_hears(row.session, row.directory)
    Questions(row.directory).answer_late(row.question.id, answer)


def give(row: Row, answer: Answer) -> bool:
    """Submit an answer; return False if another came first. Raises `StoreError` if nobody waits for it."""
    if not row.live:
        raise nobody_hears(row.session, row.directory)
    return Questions(row.directory).answer(row.question.id, answer)


def nobody_hears(session: SessionId, directory: Path) -> StoreError:
    return StoreError(
        f"The run {session} that asked this has ended, so nobody would hear the answer. "
        f"Resume it with: shoal --resume {session}",
        path=directory,
    )
