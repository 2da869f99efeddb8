"""The list of the files of an exported run tells which of them are missing or damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.core.errors import StateFileError
from shoal.core.ids import SessionId
from shoal.stores.files.home.exported_files import EXPORT_LIST, ExportWriter, check_exported_files

SESSION = SessionId("s-1")
RUN = "shoal/runs/s-1"
TRANSCRIPT, JOURNAL = "projects/-p/s-1.jsonl", f"{RUN}/journal.jsonl"
RESULT, QUESTION = f"{RUN}/results/r.txt", f"{RUN}/questions/q.json"
ANSWER, LATE = f"{RUN}/questions/q.answer.json", f"{RUN}/questions/q.late.json"
TASK, ARCHIVE = "tasks/roof/1.json", "shoal/teams/roof/archive/ann.jsonl"
FILES = (TRANSCRIPT, JOURNAL, RESULT, QUESTION, ANSWER, LATE, TASK, ARCHIVE)
LATER_LINE = b"later\n"


@pytest.fixture
def exported_run(home: Path) -> Path:
    """A home with an exported run; the transcript was written after the list."""
    files = ExportWriter(home)
    for name in FILES[1:]:
        files.write(home / name, f"content of {name}\n".encode())
    transcript = home / TRANSCRIPT
    files.note(transcript, b"a line\n")
    files.write_list(home / RUN)
    transcript.parent.mkdir(parents=True)
    transcript.write_bytes(b"a line\n")
    return home


def list_problems(home: Path) -> str:
    """Return the error of the check; an empty text if there is none."""
    try:
        check_exported_files(home, SESSION)
    except StateFileError as error:
        return str(error)
    return ""


def test_a_complete_export_and_a_run_that_was_never_exported_have_no_problems(exported_run: Path) -> None:
    assert list_problems(exported_run) == ""
    (exported_run / RUN / EXPORT_LIST).unlink()
    (exported_run / RESULT).unlink()
    assert list_problems(exported_run) == ""


@pytest.mark.parametrize("is_resumed", [False, True])
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (None, "{name} is missing"),
        (lambda content: content[:-3], "{name} has {short} of its {size} bytes"),
        (lambda content: b"X" + content[1:], "{name} has other content than the file that was exported"),
    ],
)
def test_a_damaged_file_is_named_unless_a_resumed_session_may_have_changed_it(
    exported_run: Path, name: str, damage, problem: str, is_resumed: bool
) -> None:
    content = (exported_run / name).read_bytes()
    if damage is None:
        (exported_run / name).unlink()
    else:
        (exported_run / name).write_bytes(damage(content))
    if is_resumed:
        grown = exported_run / (JOURNAL if name == TRANSCRIPT else TRANSCRIPT)
        grown.write_bytes(grown.read_bytes() + LATER_LINE)
    may_change = name in (ANSWER, LATE, TASK, ARCHIVE)
    expected = problem.format(name=name, size=len(content), short=len(content) - 3)
    found = list_problems(exported_run)
    assert (expected in found) is not (is_resumed and may_change)
    assert bool(found) is not (is_resumed and may_change)


@pytest.mark.parametrize("name", FILES)
def test_only_conversations_and_journals_may_have_grown(exported_run: Path, name: str) -> None:
    (exported_run / name).write_bytes((exported_run / name).read_bytes() + LATER_LINE)
    assert (list_problems(exported_run) == "") is (name in (TRANSCRIPT, JOURNAL))


def test_all_problems_are_named_at_once(exported_run: Path) -> None:
    for name in (RESULT, TASK):
        (exported_run / name).unlink()
    problems = f"{RESULT} is missing; {TASK} is missing. Export the session again."
    with pytest.raises(StateFileError, match="so nothing was imported") as error:
        check_exported_files(exported_run, SESSION)
    assert problems in str(error.value)
    assert error.value.path == exported_run / RUN / EXPORT_LIST


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"files": {"a": 1}}', b"\xff"])
def test_a_damaged_list_is_reported_with_its_path(exported_run: Path, content: bytes) -> None:
    (exported_run / RUN / EXPORT_LIST).write_bytes(content)
    with pytest.raises(StateFileError, match="The list of exported files") as error:
        check_exported_files(exported_run, SESSION)
    assert error.value.path == exported_run / RUN / EXPORT_LIST
