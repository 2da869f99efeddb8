"""A fixed time zone and directory for every screen snapshot."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tui_scene import DeadHelm


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("NO_COLOR", raising=False)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def helm(tmp_path: Path) -> DeadHelm:
    return DeadHelm(tmp_path)


@pytest.fixture
def snapshots() -> Path:
    return Path(__file__).parent / "snapshots"
