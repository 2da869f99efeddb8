"""Settings that a teammate on another machine gets."""

from __future__ import annotations

import json
from pathlib import Path

from shoal.app.agents.backend_launcher import remove_secret_variables
from shoal.app.settings.settings import load_settings


def test_secrets_in_settings_of_the_command_line_stay_on_the_machine(tmp_path: Path) -> None:
    given = {
        "env": {"ANTHROPIC_API_KEY": "sk-1", "ANTHROPIC_BASE_URL": "http://127.0.0.1:1", "DEPLOY_TOKEN": "t"},
        "shoal": {"teammate_mode": "ray"},
    }
    expected = {"env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}, "shoal": {"teammate_mode": "ray"}}
    file = tmp_path / "given.json"
    file.write_text(json.dumps(given))
    for source in (json.dumps(given), str(file)):
        settings, withheld = remove_secret_variables(load_settings(cwd=tmp_path, given=source))
        assert json.loads(settings or "") == expected
        assert withheld == ("ANTHROPIC_API_KEY", "DEPLOY_TOKEN")


def test_settings_without_variables_are_sent_as_they_are(tmp_path: Path) -> None:
    settings, withheld = remove_secret_variables(load_settings(cwd=tmp_path, given='{"model": "haiku"}'))
    assert (json.loads(settings or ""), withheld) == ({"model": "haiku"}, ())
    assert remove_secret_variables(load_settings(cwd=tmp_path)) == (None, ())
