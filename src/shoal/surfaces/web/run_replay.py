"""Replay of a run as frames, each with the changes of one step; together they give the end state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from shoal.app.run_access.run_handle import RunHandle
from shoal.app.run_view.run_view import RunView
from shoal.app.run_view.view_rows import ViewDelta
from shoal.stores.files.home.home_paths import open_state_file

_CHUNK = 1 << 20


def iter_replay_frames(run: RunHandle, most: int) -> Iterator[ViewDelta]:
    """Yield at most `most` frames, with about the same number of events in each."""
    # Checked before reading, as a follower of the run does.
    is_live, run_view = run.is_live, RunView()
    size = -(-max(1, _count_lines(run.journal_path)) // most)
    sent_offset = record_count = 0
    for record in run.read_journal():
        # Yielded when the next one begins: the last frame also contains the effect of a lost process.
        if record_count == size and most > 1:
            yield replace(run_view.get_delta_since(sent_offset), live=True)
            sent_offset, record_count, most = run_view.offset, 0, most - 1
        run_view.apply_record(record)
        record_count += 1
    if not is_live and not run_view.run.ended:
        run_view.mark_run_lost()
    yield replace(run_view.get_delta_since(sent_offset), live=is_live)


def _count_lines(path: Path) -> int:
    try:
        with open_state_file(path) as file:
            return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(_CHUNK), b""))
    except OSError:
        return 0
