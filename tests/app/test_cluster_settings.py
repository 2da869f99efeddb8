"""Settings that a teammate on another machine gets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.app.agents.backend_launcher import (
    add_model_choice,
    add_restrictions,
    remove_secret_variables,
)
from shoal.app.hooks.hook_sources import list_machine_guards
from shoal.app.settings.settings import load_settings
from shoal.app.settings.settings_trust import save_project_trust_decision


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


def test_what_names_of_models_mean_on_the_machine_of_the_lead_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "settings.json").write_text(
        json.dumps(
            {
                "shoal": {
                    "aliases": {"small": "openai:mini"},
                    "models": {"openai:own": {"input": 1.5, "window": 100_000}},
                }
            }
        )
    )
    monkeypatch.setenv("SHOAL_HOME", str(home))
    for name, value in (
        ("SHOAL_SUBAGENT_MODEL", "small"),
        ("ANTHROPIC_API_KEY", "sk-1"),
        ("ANTHROPIC_DEFAULT_SONNET_MODEL", "claude-sonnet-4-5"),
    ):
        monkeypatch.setenv(name, value)
    given = {"env": {"A": "b"}, "shoal": {"teammate_mode": "ray"}}
    lead = load_settings(cwd=tmp_path)
    sent = add_model_choice(json.dumps(given), lead)
    assert "sk-1" not in (sent or "")
    # The other machine has none of these files and variables, but its own.
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "other"))
    monkeypatch.setenv("SHOAL_SUBAGENT_MODEL", "theirs")
    monkeypatch.delenv("ANTHROPIC_DEFAULT_SONNET_MODEL")
    there = load_settings(cwd=tmp_path, given=sent)
    assert there.models.subagents == "small"
    assert dict(there.model_aliases) == {"small": "openai:mini", "sonnet": "anthropic:claude-sonnet-4-5"}
    assert there.own.models == lead.own.models
    assert there.own.teammate_mode == "ray"
    assert there.env["A"] == "b"
    assert not there.findings.warnings


def test_settings_without_a_choice_of_models_are_sent_as_they_are(tmp_path: Path) -> None:
    assert add_model_choice(None, load_settings(cwd=tmp_path)) is None


def test_what_the_files_of_the_lead_forbid_or_ask_holds_on_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    own = {"deny": ["Bash(rm:*)", "Read(/keys/**)"], "ask": ["WebFetch"], "allow": ["Bash(make:*)"]}
    (home / "settings.json").write_text(json.dumps({"permissions": own}))
    monkeypatch.setenv("SHOAL_HOME", str(home))
    given = {"permissions": {"deny": ["Bash(dd:*)"], "defaultMode": "acceptEdits"}}
    sent = add_restrictions(json.dumps(given), load_settings(cwd=tmp_path, given=json.dumps(given)))
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "other"))
    there = load_settings(cwd=tmp_path, given=sent)
    rules = there.permissions.rules
    assert {str(rule) for rule in rules.deny} == {
        "Bash(dd:*)",
        "Bash(rm:*)",
        "Read(/keys/**)",
        f"Read(/{home}/keys/**)",
    }
    assert [str(rule) for rule in rules.ask] == ["WebFetch"]
    assert not rules.allow
    assert there.permissions.entries.default_mode == "acceptEdits"


def test_settings_without_restrictions_are_sent_as_they_are(tmp_path: Path) -> None:
    assert add_restrictions(None, load_settings(cwd=tmp_path)) is None


GUARD = {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "check"}]}]}}
REPORT = {"hooks": {"PostToolUse": [{"hooks": [{"type": "command", "command": "tell"}]}]}}


def test_hooks_that_decide_and_stay_on_this_machine_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    for path in (home, project / ".claude"):
        path.mkdir(parents=True)
    monkeypatch.setenv("SHOAL_HOME", str(home))

    def find_guards(own: dict, given: dict, *, sends_project: bool = True) -> list[str]:
        (home / "settings.json").write_text(json.dumps(own))
        settings = load_settings(cwd=project, given=json.dumps(given))
        return list_machine_guards(settings, sends_project=sends_project)

    assert find_guards({}, GUARD) == []
    assert find_guards(REPORT, REPORT) == []
    assert find_guards(GUARD, {}) == [f"{home}/settings.json:1"]
    assert find_guards({**GUARD, "disableAllHooks": True}, {}) == []
    (project / ".claude" / "settings.json").write_text(json.dumps(GUARD))
    save_project_trust_decision(load_settings(cwd=project), project, trusted=True)
    assert find_guards({}, {}) == []
    assert find_guards({}, {}, sends_project=False) == [f"{project}/.claude/settings.json:1"]
