"""The debug log: where it cannot be, that is said with its place."""

from __future__ import annotations

import pytest

from shoal.core.errors import StoreError
from shoal.core.ids import SessionId
from shoal.stores.files.debug import DebugLog


def test_a_log_that_cannot_be_written_is_named(home, clock):
    (home / "debug" / "s-1.txt").mkdir(parents=True)
    with pytest.raises(StoreError, match=r"s-1\.txt cannot be written"):
        DebugLog(home / "debug", SessionId("s-1"), clock)
