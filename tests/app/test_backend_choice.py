"""The backend of members depends on attendance, the setting and the environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.app.agents.backend_launcher import choose_backend_type
from shoal.app.settings.settings import load_settings

INSIDE = {"TMUX": "/tmp/tmux-0/default,1,0"}
ITERM2 = {"TERM_PROGRAM": "iTerm.app", "ITERM_SESSION_ID": "w0t0p0:1"}


@pytest.mark.spec("BCK-01", "BCK-04")
@pytest.mark.parametrize(
    ("mode", "attended", "around", "place"),
    [
        ("auto", False, {}, "in-process"),
        ("auto", False, INSIDE, "in-process"),
        ("in-process", False, INSIDE, "in-process"),
        ("process", False, INSIDE, "process"),
        ("tmux", False, INSIDE, "process"),
        ("iterm2", False, ITERM2, "process"),
        ("auto", True, {}, "in-process"),
        ("auto", True, ITERM2, "in-process"),
        ("auto", True, INSIDE, "tmux"),
        ("in-process", True, INSIDE, "in-process"),
        ("process", True, INSIDE, "process"),
        ("tmux", True, {}, "tmux"),
        ("tmux", True, ITERM2, "tmux"),
        ("iterm2", True, INSIDE, "iterm2"),
        ("iterm2", True, ITERM2, "iterm2"),
    ],
)
def test_the_backend_depends_on_attendance_then_the_setting_then_the_environment(
    tmp_path: Path, mode: str, attended: bool, around: dict[str, str], place: str
) -> None:
    environ = {"HOME": str(tmp_path), "SHOAL_HOME": str(tmp_path / "home"), **around}
    given = json.dumps({"shoal": {"teammate_mode": mode}})
    settings = load_settings(cwd=tmp_path, environ=environ, given=given)
    assert choose_backend_type(settings, attended=attended, foreign=False) == place
    # A foreign program runs in a pane, attended or not.
    assert choose_backend_type(settings, attended=attended, foreign=True) == (
        "iterm2" if mode == "iterm2" else "tmux"
    )
