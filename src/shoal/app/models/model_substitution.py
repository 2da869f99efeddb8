"""Detection of providers that answer with another model than the requested one."""

from __future__ import annotations

import re

from shoal.core.events import Event, ModelRequestFailed, ModelRequestSent, ModelRequestSettled
from shoal.core.ids import RequestId

_ID_SUFFIX = re.compile(r"(?:[-@]\d{4,8}(?:-\d\d-\d\d)?)?(?:-v\d+(?::\d+)?)?(?::latest)?")
"""Suffix that a provider adds to a model id: a snapshot date, a version, or `latest`."""


OBSERVED_EVENTS = frozenset((ModelRequestSent, ModelRequestFailed, ModelRequestSettled))


class ModelSubstitutionDetector:
    """Inspects every event of a session and reports each pair of models once."""

    def __init__(self) -> None:
        self._requested: dict[RequestId, str] = {}
        self._reported: set[tuple[str, str]] = set()

    def describe_substitution(self, event: Event) -> str | None:
        """Return a sentence for the user if the answer came from another model."""
        match event:
            case ModelRequestSent(request=request, model=model):
                self._requested[request] = model
            case ModelRequestFailed(request=request):
                self._requested.pop(request, None)
            case ModelRequestSettled(request=request, model=answered):
                requested = self._requested.pop(request, answered)
                if not is_same_model(requested, answered) and (requested, answered) not in self._reported:
                    self._reported.add((requested, answered))
                    return f"Asked for the model {requested}, the provider answers as {answered}."
            case _:
                pass
        return None


def is_same_model(requested: str, answered: str) -> bool:
    """Return True if the answer's model id is the requested one, or a longer form of it."""
    if not answered or answered == requested:
        return True
    expected = requested.removesuffix("-latest").removesuffix(":latest").lower()
    actual = answered.lower()
    if "/" not in actual:
        expected = expected.rpartition("/")[2]
    return actual.startswith(expected) and _ID_SUFFIX.fullmatch(actual[len(expected) :]) is not None
