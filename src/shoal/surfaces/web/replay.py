"""A run cut into steps, each with what changed in it: all of them together are its end state."""

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
    """At most so many, with about as many events in each."""
    # Asked before reading, as one who follows the run does.
    live, picture = run.is_live, Picture()
    size = -(-max(1, _lines(run.journal)) // most)
    told = heard = 0
    for recorded in read_journal(run.journal):
        # Told when the next one begins: the last step also tells what the end of the process means.
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
