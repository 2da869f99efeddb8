"""Fixtures of the backend tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from shoal.backends.guarded_processes import GuardedProcessLauncher
from shoal.core.clock import SystemClock


@pytest.fixture
async def processes() -> AsyncIterator[GuardedProcessLauncher]:
    guarded = GuardedProcessLauncher(SystemClock())
    yield guarded
    await guarded.aclose()
