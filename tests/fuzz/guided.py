"""Fuzzes one target with atheris: `python -m tests.fuzz.guided_search TARGET FAULTS [FLAG …]`.

Each fault, by kind and location, is reported once, as a line of JSON in the file FAULTS; the search goes on.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .door import Door

ALTERED = 128
"""From this first byte on, the others choose how a valid document is altered; below, they are the input."""
LONGEST = 10.0
"""Seconds of CPU time; instrumented code is slower than usual."""


def main(atheris: Any, target: str, faults: Path, flags: list[str]) -> None:
    with atheris.instrument_imports(include=["shoal"]):
        from .doors import chosen
    doors = chosen(target)
    known: set[tuple[str, ...]] = set()

    def tried(door: Door, data: bytes) -> None:
        try:
            door.tried(data, seconds=LONGEST)
        except Exception as error:  # noqa: BLE001 - it is what is looked for
            place = _place(error)
            if (door.name, *place) not in known:
                known.add((door.name, *place))
                _tell(faults, door.name, place, data, error)

    altering = [_altering(door, tried) for door in doors]

    def search(data: bytes) -> None:
        number, alters = (data[0] % len(doors), data[0] >= ALTERED) if data else (0, False)
        if alters:
            altering[number](data[1:])
        else:
            tried(doors[number], data[1:])

    atheris.Setup([sys.argv[0], *flags], search)
    atheris.Fuzz()


def _altering(door: Door, tried: Callable[[Door, bytes], None]) -> Callable[[bytes], object]:
    """Use the bytes as choices: which document is altered, where and how."""
    from hypothesis import given

    from .inputs import for_documents

    @given(for_documents(door.seeds))
    def test(data: bytes) -> None:
        tried(door, data)

    search: Callable[[bytes], object] = test.hypothesis.fuzz_one_input
    return search


def _place(error: Exception) -> tuple[str, ...]:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/shoal/" in frame.filename] or frames
    return type(error).__name__, Path(own[-1].filename).name, str(own[-1].lineno)


def _tell(faults: Path, door: str, place: tuple[str, ...], data: bytes, error: Exception) -> None:
    told = {"door": door, "place": place, "input": repr(data), "error": repr(error)[:500]}
    with faults.open("a", encoding="utf-8") as file:
        file.write(json.dumps(told) + "\n")


def installed() -> Any:
    """Return the module, or exit with installation instructions."""
    try:
        import atheris  # type: ignore[import-not-found]
    except ImportError:
        sys.exit(f"atheris is not installed. Install it with:\n  {sys.executable} -m pip install atheris")
    return atheris


if __name__ == "__main__":
    main(installed(), sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
