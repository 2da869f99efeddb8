"""Detection of providers that answer with another model than the requested one."""

from __future__ import annotations

import re

from shoal.core.events import Event, RequestFailed, RequestSent, RequestSettled
from shoal.core.ids import RequestId

_FORM = re.compile(r"(?:[-@]\d{4,8}(?:-\d\d-\d\d)?)?(?:-v\d+(?::\d+)?)?(?::latest)?")
"""Suffix that a provider adds to a model id: a snapshot date, a version, or `latest`."""


LOOKED_AT = frozenset((RequestSent, RequestFailed, RequestSettled))


class Answering:
    """Inspects every event of a session and reports each pair of models once."""

    def __init__(self) -> None:
        self._asked: dict[RequestId, str] = {}
        self._told: set[tuple[str, str]] = set()

    def look(self, event: Event) -> str | None:
        """Return a sentence for the user if the answer came from another model."""
        match event:
            case RequestSent(request=request, model=model):
                self._asked[request] = model
            case RequestFailed(request=request):
                self._asked.pop(request, None)
            case RequestSettled(request=request, model=answered):
                asked = self._asked.pop(request, answered)
                if not is_same_model(asked, answered) and (asked, answered) not in self._told:
                    self._told.add((asked, answered))
                    return f"Asked for the model {asked}, the provider answers as {answered}."
            case _:
                pass
        return None


def is_same_model(asked: str, answered: str) -> bool:
    """Return True if the answer's model id is the requested one, or a longer form of it."""
    if not answered or answered == asked:
        return True
    wanted = asked.removesuffix("-latest").removesuffix(":latest").lower()
    got = answered.lower()
    if "/" not in got:
        wanted = wanted.rpartition("/")[2]
    return got.startswith(wanted) and _FORM.fullmatch(got[len(wanted) :]) is not None
