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
    from .fuzz_target import FuzzTarget

FIRST_ALTERED = 128
"""From this first byte on, the others choose how a valid document is altered; below, they are the input."""
TIMEOUT = 10.0
"""Seconds of CPU time; instrumented code is slower than usual."""


def main(atheris: Any, target: str, faults: Path, flags: list[str]) -> None:
    with atheris.instrument_imports(include=["shoal"]):
        from .fuzz_targets import select_targets
    doors = select_targets(target)
    known: set[tuple[str, ...]] = set()

    def try_target(target: FuzzTarget, data: bytes) -> None:
        try:
            target.try_input(data, timeout=TIMEOUT)
        except Exception as error:  # noqa: BLE001 - it is what is looked for
            place = _find_location(error)
            if (target.name, *place) not in known:
                known.add((target.name, *place))
                _report_fault(faults, target.name, place, data, error)

    altering = [_create_altered_search(door, try_target) for door in doors]

    def search_input(data: bytes) -> None:
        number, alters = (data[0] % len(doors), data[0] >= FIRST_ALTERED) if data else (0, False)
        if alters:
            altering[number](data[1:])
        else:
            try_target(doors[number], data[1:])

    atheris.Setup([sys.argv[0], *flags], search_input)
    atheris.Fuzz()


def _create_altered_search(
    target: FuzzTarget, try_target: Callable[[FuzzTarget, bytes], None]
) -> Callable[[bytes], object]:
    """Use the bytes as choices: which document is altered, where and how."""
    from hypothesis import given

    from .fuzz_inputs import inputs_for_documents

    @given(inputs_for_documents(target.seeds))
    def try_altered(data: bytes) -> None:
        try_target(target, data)

    search: Callable[[bytes], object] = try_altered.hypothesis.fuzz_one_input
    return search


def _find_location(error: Exception) -> tuple[str, ...]:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/shoal/" in frame.filename] or frames
    return type(error).__name__, Path(own[-1].filename).name, str(own[-1].lineno)


def _report_fault(
    faults: Path, target: str, location: tuple[str, ...], data: bytes, error: Exception
) -> None:
    told = {"door": target, "place": location, "input": repr(data), "error": repr(error)[:500]}
    with faults.open("a", encoding="utf-8") as file:
        file.write(json.dumps(told) + "\n")


def import_atheris() -> Any:
    """Return the module, or exit with installation instructions."""
    try:
        import atheris  # type: ignore[import-not-found]
    except ImportError:
        sys.exit(f"atheris is not installed. Install it with:\n  {sys.executable} -m pip install atheris")
    return atheris


if __name__ == "__main__":
    main(import_atheris(), sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
