"""The debug log on disk."""

from __future__ import annotations

import pytest

from shoal.core.errors import StateFileError
from shoal.core.ids import SessionId
from shoal.stores.files.sessions.debug_log import DebugLog


def test_a_debug_log_that_cannot_be_written_is_named_in_the_error(home, clock):
    (home / "debug" / "s-1.txt").mkdir(parents=True)
    with pytest.raises(StateFileError, match=r"Cannot write .*s-1\.txt"):
        DebugLog(home / "debug", SessionId("s-1"), clock)
