"""Records which functions of the package a run enters, in order."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import shoal

_PACKAGE = str(Path(shoal.__file__).parent) + "/"


class CallTrace:
    def __init__(self) -> None:
        self.steps: list[str] = []
        """`FILE:FUNCTION` of every call."""

    @contextmanager
    def record(self) -> Iterator[CallTrace]:
        sys.setprofile(self._record_call)
        threading.setprofile(self._record_call)
        try:
            yield self
        finally:
            threading.setprofile(None)
            sys.setprofile(None)

    def _record_call(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(_PACKAGE):
            file = code.co_filename.removeprefix(_PACKAGE)
            self.steps.append(f"{file}:{code.co_qualname.replace('<locals>.', '')}")

    def find_missing_step(self, walk: Iterable[str]) -> str:
        """Return the first step that was not entered after the one before it; empty if there is none."""
        calls = iter(self.steps)
        return next((step for step in walk if not any(call == step for call in calls)), "")
