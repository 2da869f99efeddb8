"""Replay of a run as frames, each with the changes of one step; together they give the end state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from shoal.app.outside.watching import Run
from shoal.app.picture.picture import Picture
from shoal.app.picture.rows import Frame
from shoal.stores.files.journal import read_journal

_CHUNK = 1 << 20


def steps(run: Run, most: int) -> Iterator[Frame]:
    """Yield at most `most` frames, with about the same number of events in each."""
    # Checked before reading, as a follower of the run does.
    live, picture = run.is_live, Picture()
    size = -(-max(1, _lines(run.journal)) // most)
    told = heard = 0
    for recorded in read_journal(run.journal):
        # Yielded when the next one begins: the last frame also contains the effect of a lost process.
        if heard == size and most > 1:
            yield replace(picture.since(told), live=True)
            told, heard, most = picture.offset, 0, most - 1
        picture.record(recorded)
        heard += 1
    if not live and not picture.run.ended:
        picture.lost()
    yield replace(picture.since(told), live=live)


def _lines(path: Path) -> int:
    try:
        with path.open("rb") as file:
            return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(_CHUNK), b""))
    except OSError:
        return 0
