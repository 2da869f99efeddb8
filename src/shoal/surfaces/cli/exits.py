"""The exit codes of the program, as its help and documentation state them."""

from __future__ import annotations

from shoal.core.events import EndReason

OK = 0
ERROR = 1
USAGE = 2
LIMIT = 3
STOPPED = 4
INTERRUPTED = 130
READER_GONE = 141
"""As a program ends whose output nobody reads any more."""

_BY_REASON: dict[EndReason, int] = {
    "done": OK,
    "max_turns": LIMIT,
    "budget": LIMIT,
    "deadline": STOPPED,
    "interrupted": INTERRUPTED,
}

IN_HELP = """\
Exit codes: 0 done · 1 error · 2 wrong usage · 3 turn or budget limit reached · 4 stopped by the deadline ·
130 interrupted · 143 ended by a signal."""


def of_reason(reason: EndReason) -> int:
    return _BY_REASON.get(reason, ERROR)


def of_signal(number: int) -> int:
    return 128 + number
