"""Choice between the plain and the full-screen terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from shoal.surfaces.terminal.text_styles import is_live_terminal
from shoal.surfaces.terminal.user_messages import print_user_message


def should_use_plain_terminal(
    cwd: Path, settings: str | None = None, sources: Sequence[str] | None = None
) -> bool:
    # The full screen is drawn on stderr.
    if not (is_live_terminal(sys.stdout) and sys.stderr.isatty()):
        return True
    from shoal.app.settings.settings import load_settings

    if load_settings(cwd=cwd.resolve(), given=settings, sources=sources).own.plain:
        return True
    if find_spec("textual") is None:
        print_user_message(
            "The full-screen terminal is not installed, so Shoal uses the plain one. Install it: pip install "
            "'shoal[tui]'"
        )
        return True
    return False
