"""Exit codes of the program, as its help and documentation state them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.core.events import TurnEndReason

OK = 0
ERROR = 1
USAGE = 2
LIMIT_REACHED = 3
STOPPED = 4
INTERRUPTED = 130
BROKEN_PIPE = 141
"""Exit code if the reader of the output has closed the pipe."""

_CODES_BY_REASON: dict[TurnEndReason, int] = {
    "done": OK,
    "max_turns": LIMIT_REACHED,
    "budget": LIMIT_REACHED,
    "deadline": STOPPED,
    "blocked": STOPPED,
    "interrupted": INTERRUPTED,
}

HELP_ROWS = (
    ("0", "done"),
    ("1", "an error, reported on stderr"),
    ("2", "usage error"),
    ("3", "the turn or budget limit was reached"),
    (
        "4",
        "the deadline passed; a hook stopped the run; agents were stopped early (for example, because they "
        "were in a loop); or teammates were down",
    ),
    ("129", "the terminal was closed (SIGHUP); the session can be resumed"),
    ("130", "interrupted by Ctrl-C; the session can be resumed"),
    ("141", "the program reading the output closed the pipe"),
    ("143", "terminated by SIGTERM; the session can be resumed"),
)


def get_turn_end_exit_code(reason: TurnEndReason) -> int:
    return _CODES_BY_REASON.get(reason, ERROR)


def exit_code_for_signal(number: int) -> int:
    return 128 + number
