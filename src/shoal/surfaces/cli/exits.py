"""Exit codes of the program, as its help and documentation state them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.core.events import EndReason

OK = 0
ERROR = 1
USAGE = 2
LIMIT = 3
STOPPED = 4
INTERRUPTED = 130
READER_GONE = 141
"""Exit code of a program whose output nobody reads any more."""

_BY_REASON: dict[EndReason, int] = {
    "done": OK,
    "max_turns": LIMIT,
    "budget": LIMIT,
    "deadline": STOPPED,
    "blocked": STOPPED,
    "interrupted": INTERRUPTED,
}

IN_HELP = (
    ("0", "done"),
    ("1", "an error, told on stderr"),
    ("2", "wrong usage"),
    ("3", "the turn or budget limit is reached"),
    ("4", "the deadline passed, a hook stopped it, or agents were stopped before they were done"),
    ("130", "interrupted by Ctrl-C; 143 by SIGTERM; the session can be resumed"),
)


def of_reason(reason: EndReason) -> int:
    return _BY_REASON.get(reason, ERROR)


def of_signal(number: int) -> int:
    return 128 + number
