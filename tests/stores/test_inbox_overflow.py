"""Mail that waits for space in its inbox: any sequence of moves, and a crash at each step of one."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.stores.files.access.directory_handle import DirectoryHandle
from shoal.stores.files.mailboxes.inbox_overflow import InboxOverflow

STEPS = ("read", "intent", "moved", "confirmed")
"""Steps of a move; the process dies after one of the first three."""


def make_line(number: int, padding: int) -> bytes:
    return json.dumps({"id": f"m{number}", "text": "x" * padding}).encode()


class OverflowModel:
    """An overflow, and lists of what must wait and what is in the inbox."""

    def __init__(self, directory: DirectoryHandle) -> None:
        self._directory = directory
        self.overflow = InboxOverflow(directory, "ann")
        self.waiting: list[bytes] = []
        self.inbox: list[bytes] = []
        self._posted = 0

    def append(self, *paddings: int) -> None:
        self.restore()
        lines = [make_line(self._posted + number, padding) for number, padding in enumerate(paddings)]
        self._posted += len(lines)
        self.overflow.append(lines)
        self.waiting += lines

    def restore(self) -> None:
        self.overflow.finish_interrupted_move([json.loads(line)["id"] for line in self.inbox])

    def move(self, max_lines: int, max_bytes: int, last_step: str) -> None:
        self.restore()
        batch = self.overflow.read_oldest_batch(max_lines, max_bytes)
        assert list(batch.lines) == self.waiting[: len(batch.lines)]
        assert len(batch.lines) <= max_lines
        assert len(batch.lines) <= 1 or sum(map(len, batch.lines)) <= max_bytes
        following = self.waiting[len(batch.lines) :]
        if following and len(batch.lines) < max_lines:
            assert batch.lines
            assert sum(map(len, batch.lines)) + len(following[0]) > max_bytes
        if batch.lines and last_step != "read":
            self.overflow.record_move_intent(batch, json.loads(batch.lines[0])["id"])
            assert self.overflow.is_move_interrupted
            if last_step != "intent":
                self.inbox += batch.lines
                self.waiting = following
            if last_step == "confirmed":
                self.overflow.confirm_batch_moved(batch)
        if last_step != "confirmed":
            self.overflow = InboxOverflow(self._directory, "ann")
            self.restore()
        assert not self.overflow.is_move_interrupted

    def check(self) -> None:
        for overflow in (self.overflow, InboxOverflow(self._directory, "ann")):
            assert overflow.read_waiting_lines() == self.waiting
            assert overflow.has_waiting_lines() is bool(self.waiting)


@pytest.mark.parametrize("size", [0, 70_000])
@pytest.mark.parametrize("max_lines", [1, 2, 3])
@pytest.mark.parametrize("step", STEPS)
def test_a_move_that_ends_at_any_step_loses_and_repeats_nothing(
    tmp_path: Path, step: str, max_lines: int, size: int
) -> None:
    with DirectoryHandle.open_root(tmp_path) as directory:
        model = OverflowModel(directory)
        model.append(size, size, size)
        for last_step in (step, "confirmed", step):
            model.move(max_lines, 1_000_000, last_step)
            model.check()
        model.append(0)
        model.check()


APPENDS = st.lists(st.sampled_from([0, 5, 70_000]), max_size=4).map(tuple)
MOVES = st.tuples(st.integers(0, 3), st.sampled_from([0, 60, 200, 200_000]), st.sampled_from(STEPS))


@settings(max_examples=40, deadline=None)
@given(st.lists(APPENDS | MOVES, max_size=10))
def test_every_message_is_moved_once_and_in_order(steps: list[tuple[int | str, ...]]) -> None:
    with tempfile.TemporaryDirectory() as path, DirectoryHandle.open_root(Path(path)) as directory:
        model = OverflowModel(directory)
        for step in steps:
            if step and step[-1] in STEPS:
                model.move(*step)  # type: ignore[arg-type]
            else:
                model.append(*step)  # type: ignore[arg-type]
            model.check()


@pytest.fixture
def directory(tmp_path: Path):
    with DirectoryHandle.open_root(tmp_path) as handle:
        yield handle


@pytest.mark.parametrize(
    "state",
    [b"", b"1 2", b"a b c d", b"0 5 5 -", b"{inode} -1 -1 -", b"{inode} 999999 999999 -", b"{inode} 1 x -"],
)
def test_a_damaged_position_hides_no_message(
    directory: DirectoryHandle, tmp_path: Path, state: bytes
) -> None:
    InboxOverflow(directory, "ann").append([b'{"id": "m1"}'])
    inode = (tmp_path / "ann.jsonl").stat().st_ino
    (tmp_path / "ann.state").write_bytes(state.replace(b"{inode}", str(inode).encode()))
    overflow = InboxOverflow(directory, "ann")
    overflow.finish_interrupted_move([])
    assert overflow.read_waiting_lines() == [b'{"id": "m1"}']
    assert overflow.has_waiting_lines()
    assert overflow.read_oldest_batch(5, 500).lines == (b'{"id": "m1"}',)


def test_a_torn_last_line_is_not_moved(directory: DirectoryHandle, tmp_path: Path) -> None:
    overflow = InboxOverflow(directory, "ann")
    overflow.append([b'{"id": "m1"}'])
    with (tmp_path / "ann.jsonl").open("ab") as file:
        file.write(b'{"id": "m')
    overflow.finish_interrupted_move([])
    batch = overflow.read_oldest_batch(5, 500)
    assert batch.lines == (b'{"id": "m1"}',)
    overflow.confirm_batch_moved(batch)
    assert not overflow.has_waiting_lines()
    assert (tmp_path / "ann.jsonl").stat().st_size == 0


def test_a_long_file_shrinks_once_most_of_it_was_moved(directory: DirectoryHandle, tmp_path: Path) -> None:
    model = OverflowModel(directory)
    model.append(*[1 << 20] * 10)
    sizes = []
    for _ in range(3):
        model.move(2, 1 << 30, "confirmed")
        model.check()
        sizes.append((tmp_path / "ann.jsonl").stat().st_size >> 20)
    assert sizes == [10, 10, 4]


def test_nothing_waits_without_a_file(directory: DirectoryHandle) -> None:
    overflow = InboxOverflow(directory, "ann")
    overflow.finish_interrupted_move([])
    assert not overflow.has_waiting_lines()
    assert not overflow.is_move_interrupted
    assert overflow.read_waiting_lines() == []
    assert overflow.read_oldest_batch(5, 500).lines == ()
