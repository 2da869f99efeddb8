"""Settings: sources and their precedence, errors with file and line, and project restrictions."""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from git_repository import run_git
from shoal.app.doctor.claude_items import list_claude_items
from shoal.app.settings.settings import Settings, load_settings
from shoal.app.settings.settings_trust import forget_project_trust, save_project_trust_decision
from shoal.core.errors import SettingsError
from shoal.wire.json_line_numbers import find_json_key_line
from shoal.wire.settings_codec import ShoalSettings


class SettingsFiles:
    """Settings files of a home, a project and an administrator."""

    def __init__(self, top: Path) -> None:
        self.home = top / "home"
        self.cwd = top / "project"
        self.managed = top / "etc" / "managed-settings.json"
        self.files = {
            "managed": self.managed,
            "local": self.cwd / ".claude" / "settings.local.json",
            "project": self.cwd / ".claude" / "settings.json",
            "home": self.home / "settings.json",
        }

    def write(self, **contents: Any) -> None:
        for where, content in contents.items():
            path = self.files[where]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content if isinstance(content, str) else json.dumps(content, indent=2))

    def load(self, *, given: str | None = None, **environ: str) -> Settings:
        return load_settings(
            cwd=self.cwd,
            environ={"SHOAL_HOME": str(self.home), **environ},
            given=given,
            managed=(self.managed,),
        )

    def trust(self) -> None:
        save_project_trust_decision(self.load(), self.cwd, trusted=True)


@pytest.fixture
def settings_files(tmp_path: Path) -> SettingsFiles:
    return SettingsFiles(tmp_path)


def test_settings_without_configuration_are_the_defaults(settings_files: SettingsFiles):
    settings = settings_files.load()
    assert settings.own == ShoalSettings()
    assert settings.own.compact_at == 0.85
    assert settings.own.outage_patience >= 600
    assert (settings.models.main, settings.findings.warnings, settings.cleanup_period_days) == (None, (), 30)
    assert settings.permissions.entries.allow == ()
    assert (
        settings.find_setting_origin("shoal.compact_at") == settings.find_setting_origin("model") == "default"
    )


@pytest.mark.spec("HOM-01")
def test_the_home_is_the_first_of_three_candidates(tmp_path):
    def home(**environ: str) -> Path:
        return load_settings(cwd=tmp_path, environ=environ, managed=()).home

    both = {"CLAUDE_CONFIG_DIR": "/b", "HOME": "/c"}
    assert home(SHOAL_HOME="/a", **both) == Path("/a")
    assert home(SHOAL_HOME="", **both) == Path("/b")
    assert home(HOME="/c") == Path("/c/.claude")
    assert home(SHOAL_HOME="here", HOME="/c") == tmp_path / "here"
    assert home() == Path(pwd.getpwuid(os.getuid()).pw_dir) / ".claude"
    assert (
        load_settings(cwd=tmp_path, environ=both, managed=()).find_setting_origin("home")
        == "$CLAUDE_CONFIG_DIR"
    )


@pytest.mark.spec("CMP-003", "CMP-118")
def test_a_subdirectory_uses_the_local_file_of_its_repository_and_reports_the_shared_file(
    settings_files: SettingsFiles,
):
    settings_files.cwd.mkdir()
    run_git(settings_files.cwd, "init", "--quiet")
    settings_files.write(
        local={"permissions": {"deny": ["Bash(rm:*)"], "allow": ["Bash(make:*)"]}, "language": "French"},
        project={"permissions": {"deny": ["WebFetch"]}},
    )
    root, settings_files.cwd = settings_files.cwd, settings_files.cwd / "packages" / "web"
    (settings_files.cwd / ".claude").mkdir(parents=True)
    (settings_files.cwd / ".claude" / "settings.local.json").write_text('{"language": "Latin"}')
    settings = settings_files.load()
    assert [str(rule) for rule in settings.permissions.rules.deny] == ["Bash(rm:*)"]
    assert settings.permissions.rules.allow == ()
    assert settings.find_setting_origin("language").startswith(str(settings_files.cwd))
    (unused,) = settings.findings.unused_items
    assert str(unused) == (
        f"{settings_files.files['project']}: file: it applies only if you start Shoal in {root}."
    )
    listed = list_claude_items({"SHOAL_HOME": str(settings_files.home)}, settings_files.cwd).items
    assert [each.use for each in listed if each.item == "file"] == ["not used"]
    # One answer counts in the whole repository.
    settings_files.trust()
    assert [str(rule) for rule in settings_files.load().permissions.rules.allow] == ["Bash(make:*)"]
    settings_files.cwd = root
    settings = settings_files.load()
    assert [str(rule) for rule in settings.permissions.rules.allow] == ["Bash(make:*)"]
    assert settings.findings.unused_items == ()
    settings_files.cwd = root / "packages" / "web"
    forget_project_trust(settings_files.home, settings_files.cwd)
    assert settings_files.load().permissions.rules.allow == ()


def test_the_process_environment_is_used_by_default(tmp_path, monkeypatch):
    monkeypatch.setenv("SHOAL_HOME", "/from/the/process")
    assert load_settings(cwd=tmp_path).home == Path("/from/the/process")


@pytest.mark.spec("CMP-003")
def test_the_strongest_source_wins_and_is_named(settings_files: SettingsFiles):
    sources = {
        where: {"shoal": {"compact_at": share}}
        for where, share in (("home", 0.1), ("project", 0.2), ("local", 0.3), ("managed", 0.5))
    }
    for where in ("home", "project", "local"):
        settings_files.write(**{where: sources[where]})
        settings = settings_files.load()
        assert settings.own.compact_at == sources[where]["shoal"]["compact_at"]
        assert settings.find_setting_origin("shoal.compact_at") == f"{settings_files.files[where]}:3"
    assert settings_files.load(given='{"shoal": {"compact_at": 0.4}}').own.compact_at == 0.4
    assert (
        settings_files.load(given='{"shoal": {"compact_at": 0.4}}').find_setting_origin("shoal.compact_at")
        == "--settings:1"
    )
    settings_files.write(managed=sources["managed"])
    assert settings_files.load(given='{"shoal": {"compact_at": 0.4}}').own.compact_at == 0.5


def test_the_user_sets_session_retention_and_a_project_cannot(settings_files: SettingsFiles):
    settings_files.write(home={"cleanupPeriodDays": 9}, project={"cleanupPeriodDays": 0})
    settings = settings_files.load()
    assert settings.cleanup_period_days == 9
    assert settings.find_setting_origin("cleanupPeriodDays") == f"{settings_files.files['home']}:2"
    assert any("how long to keep sessions" in warning for warning in settings.findings.warnings)
    assert settings_files.load(given='{"cleanupPeriodDays": 7}').cleanup_period_days == 7
    settings_files.write(managed={"cleanupPeriodDays": 3})
    assert settings_files.load(given='{"cleanupPeriodDays": 7}').cleanup_period_days == 3
    settings_files.write(home={}, project={}, managed={})
    assert (settings_files.load().cleanup_period_days, settings_files.load().findings.warnings) == (30, ())
    assert settings_files.load().find_setting_origin("cleanupPeriodDays") == "default"


@pytest.mark.spec("CMP-003")
def test_permission_lists_are_concatenated_and_mappings_merged(settings_files: SettingsFiles):
    settings_files.write(
        home={
            "permissions": {"allow": ["Read", "Bash(ls:*)"], "deny": ["WebFetch"], "defaultMode": "plan"},
            "env": {"A": "home", "B": "home", "N": 3, "T": True},
            "shoal": {"models": {"m": {"input": 1, "window": 10}, "n": {"output": 2}}, "aliases": {"x": "m"}},
        },
        project={
            "permissions": {"allow": ["Bash(make:*)", "Read"], "additionalDirectories": ["../lib"]},
            "env": {"A": "project"},
            "shoal": {"models": {"m": {"input": 3}}},
        },
        local={"permissions": {"ask": ["Bash"], "defaultMode": "acceptEdits", "disableSomething": 1}},
    )
    settings_files.trust()
    settings = settings_files.load()
    rules = settings.permissions.entries
    assert rules.allow == ("Bash(make:*)", "Read", "Bash(ls:*)")
    assert (rules.ask, rules.deny, rules.additional_directories) == (("Bash",), ("WebFetch",), ("../lib",))
    assert rules.default_mode == "acceptEdits"
    assert settings.env == {"A": "project", "B": "home", "N": "3", "T": "true"}
    assert (settings.own.models["m"].input, settings.own.models["m"].window) == (3, 10)
    assert settings.own.models["n"].output == 2
    assert settings.own.aliases == {"x": "m"}
    assert (
        settings.find_setting_origin("permissions.allow")
        == f"{settings_files.files['project']}:3, {settings_files.files['home']}:3"
    )
    assert settings.find_setting_origin("permissions.defaultMode") == f"{settings_files.files['local']}:6"
    assert settings.tool_environment["A"] == "project"
    assert settings.tool_environment["SHOAL_HOME"] == str(settings_files.home)


def test_the_model_in_the_environment_overrides_the_files(settings_files: SettingsFiles):
    settings_files.write(home={"model": "from-home"})
    assert settings_files.load().models.main == "from-home"
    settings_files.write(project={"shoal": {"model": "own"}})
    assert (settings_files.load().models.main, settings_files.load().find_setting_origin("model")) == (
        "own",
        f"{settings_files.files['project']}:3",
    )
    settings = settings_files.load(ANTHROPIC_MODEL="a")
    assert (settings.models.main, settings.find_setting_origin("model")) == ("a", "$ANTHROPIC_MODEL")
    assert settings_files.load(ANTHROPIC_MODEL="a", SHOAL_MODEL="s").models.main == "s"


@pytest.mark.spec("CMP-006")
def test_api_keys_come_from_user_settings_or_the_environment(settings_files: SettingsFiles):
    settings_files.write(home={"env": {"ANTHROPIC_BASE_URL": "http://gateway", "OPENAI_API_KEY": ""}})
    settings = settings_files.load(
        ANTHROPIC_API_KEY="a", ANTHROPIC_BASE_URL="http://other", OPENAI_API_KEY="o", OPENAI_BASE_URL=""
    )
    access = settings.access
    assert (access.anthropic_api_key, access.anthropic_base_url) == ("a", "http://gateway")
    assert (access.openai_api_key, access.openai_base_url) == (None, None)
    assert settings.find_setting_origin("anthropic_api_key") == "$ANTHROPIC_API_KEY"
    assert settings.find_setting_origin("anthropic_base_url") == f"{settings_files.files['home']}:3"
    assert settings.find_setting_origin("openai_api_key") == f"{settings_files.files['home']}:4"


@pytest.mark.parametrize("where", ["project", "local"])
def test_a_project_cannot_redirect_requests(settings_files: SettingsFiles, where):
    hostile = {"env": {"ANTHROPIC_BASE_URL": "http://evil", "OPENAI_API_KEY": "theirs", "MARK": "x"}}
    settings_files.write(**{where: hostile})
    settings_files.trust()
    settings = settings_files.load(ANTHROPIC_API_KEY="mine")
    assert settings.access.anthropic_base_url is None
    assert settings.access.openai_api_key is None
    assert settings.find_setting_origin("anthropic_base_url") == "default"
    assert settings.env["MARK"] == "x"


def test_a_session_in_the_home_directory_itself_reads_its_settings_once(tmp_path):
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text('{"env": {"OPENAI_API_KEY": "k"}}')
    settings = load_settings(cwd=tmp_path, environ={"HOME": str(tmp_path)}, managed=())
    assert len(settings.documents) == 1
    assert settings.access.openai_api_key == "k"


def test_the_printed_settings_contain_no_secrets(settings_files: SettingsFiles):
    settings_files.write(home={"env": {"OPENAI_API_KEY": "sk-secret-file"}})
    settings = settings_files.load(ANTHROPIC_API_KEY="sk-secret-environment")
    shown = repr(settings) + repr(settings.access) + repr(settings.documents)
    assert "sk-secret" not in shown
    assert "anthropic_api_key" in shown


def test_foreign_keys_are_tolerated_and_unknown_shoal_keys_are_reported(settings_files: SettingsFiles):
    settings_files.write(
        project={
            "hooks": {"x": [1]},
            "statusLine": None,
            "shoal": {"compactat": 1, "zzz": 2, "durable": True},
        }
    )
    settings_files.trust()
    settings = settings_files.load()
    assert settings.own.durable
    near, far = settings.findings.warnings
    assert near.startswith(f"{settings_files.files['project']}:9: shoal.compactat")
    assert near.endswith("Did you mean compact_at?")
    assert far.startswith(f"{settings_files.files['project']}:10: shoal.zzz")
    assert far.endswith("is ignored.")


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ('{\n "shoal": {\n  "compact_at": "much"\n }\n}', 3, "shoal.compact_at"),
        ('{\n "shoal": {\n  "durable": true,\n  "compact_at": 1.5\n }\n}', 4, "shoal.compact_at"),
        ('{\n "shoal": []\n}', 2, "shoal"),
        ('{\n "permissions": {\n  "deny": [\n   "a",\n   5\n  ]\n }\n}', 5, "permissions.deny.1"),
        ('{"permissions": {"deny": "Read"}}', 1, "permissions.deny"),
        ('{"permissions": {"deny": ["Bash("]}}', 1, "permissions.deny: 'Bash(' is not a permission rule."),
        ('{\n\n "permissions": {"defaultMode": "plam"}}', 3, "permissions.defaultMode"),
        ('{\n "disabledMcpjsonServers": "a"}', 2, "disabledMcpjsonServers"),
        ('{\n "shoal": {"outage_patience": 0}}', 2, "shoal.outage_patience"),
        ('{\n "x": "compact_at",\n "shoal": {"x": {"compact_at": 1},\n "compact_at": ""}}', 4, "compact_at"),
        ('{\n "a": 1\n "b"}', 3, "not valid JSON"),
        ("{\n", 2, "not valid JSON"),
        ("[1]", 1, "a JSON object"),
        ("[" * 100_000, 1, "not valid JSON"),
    ],
)
def test_a_settings_error_is_reported_with_file_line_and_key(settings_files: SettingsFiles, text, line, key):
    settings_files.write(project=text)
    with pytest.raises(SettingsError) as caught:
        settings_files.load()
    assert str(caught.value).startswith(f"{settings_files.files['project']}:{line}: ")
    assert key in str(caught.value)
    assert (caught.value.path, caught.value.line) == (settings_files.files["project"], line)


def test_settings_given_as_a_path_are_read_from_the_file(settings_files: SettingsFiles):
    settings_files.cwd.mkdir()
    (settings_files.cwd / "mine.json").write_text('\ufeff{"model": "given"}', encoding="utf-8")
    assert settings_files.load(given="mine.json").models.main == "given"
    with pytest.raises(SettingsError, match=r"There is no settings file .*other\.json"):
        settings_files.load(given="other.json")
    with pytest.raises(SettingsError, match="--settings:1: not valid JSON"):
        settings_files.load(given='{"model"')


def test_an_unreadable_settings_file_is_an_error(settings_files: SettingsFiles):
    settings_files.files["home"].mkdir(parents=True)
    with pytest.raises(SettingsError, match=r"Cannot read the settings in .*home/settings\.json"):
        settings_files.load()
    settings_files.files["home"].rmdir()
    settings_files.files["home"].write_bytes(b'{"a": "\xff"}')
    with pytest.raises(SettingsError, match="not UTF-8"):
        settings_files.load()


def test_an_empty_settings_file_is_valid(settings_files: SettingsFiles):
    settings_files.write(home="", project=" \n")
    assert settings_files.load().own == ShoalSettings()


names = st.text(st.sampled_from('abc{}[]:,"\\'), max_size=4)
trees = st.recursive(
    st.none() | names | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(names, trees, min_size=1, max_size=4), st.data())
def test_the_line_of_any_key_is_found(tree, data):
    keys, value = [], tree
    while isinstance(value, dict) and value:
        keys.append(data.draw(st.sampled_from(sorted(value))))
        value = value[keys[-1]]
    marked = tree
    for key in keys[:-1]:
        marked = marked[key]
    marked[keys[-1]] = "here it is"
    text = json.dumps(tree, indent=1)
    lines = text.split("\n")
    expected = 1 + next(number for number, line in enumerate(lines) if "here it is" in line)
    assert find_json_key_line(text, keys) == expected


def test_only_the_user_can_turn_permission_questions_off(settings_files: SettingsFiles):
    skip = {"permissions": {"defaultMode": "bypassPermissions"}}
    settings_files.write(project=skip, local=skip)
    assert settings_files.load().permissions.entries.default_mode is None
    assert "only your own settings" in settings_files.load().findings.warnings[0]
    settings_files.write(home=skip)
    assert settings_files.load().permissions.entries.default_mode == "bypassPermissions"


@pytest.mark.spec("CMP-003", "CMP-014")
@pytest.mark.parametrize("own_mode", [None, "acceptEdits", "bypassPermissions"])
def test_a_project_that_asks_to_skip_permissions_keeps_the_mode_of_its_other_file(
    settings_files: SettingsFiles, own_mode: str | None
):
    skip, plan = ({"permissions": {"defaultMode": mode}} for mode in ("bypassPermissions", "plan"))
    own = {} if own_mode is None else {"permissions": {"defaultMode": own_mode}}
    settings_files.write(home=own, project=plan, local=skip)
    settings = settings_files.load()
    assert settings.permissions.entries.default_mode == "plan"
    assert settings.find_setting_origin("permissions.defaultMode").endswith("project/.claude/settings.json:3")
    assert "only your own settings" in settings.findings.warnings[0]


def test_the_standard_environment_variables_set_a_proxy(settings_files: SettingsFiles):
    settings = settings_files.load(HTTPS_PROXY="http://proxy:3128", NO_PROXY="internal.example,.corp")
    find_proxy = settings.proxies.find_proxy
    assert find_proxy("https://api.anthropic.com") == "http://proxy:3128"
    assert find_proxy("http://api.anthropic.com") is None
    assert find_proxy("https://a.internal.example/v1") is None
    assert find_proxy("https://x.corp") is None
    assert find_proxy("http://127.0.0.1:11434") is None
    assert settings_files.load(all_proxy="http://p").proxies.find_proxy("https://x.example") == "http://p"


@pytest.mark.spec("CMP-006")
def test_a_proxy_in_your_own_settings_replaces_that_of_the_shell(settings_files: SettingsFiles):
    settings_files.write(
        home={"env": {"HTTPS_PROXY": "http://company:1", "ALL_PROXY": ""}},
        project={"env": {"HTTPS_PROXY": "http://evil:1", "NO_PROXY": "*"}},
    )
    settings_files.trust()
    proxies = settings_files.load(https_proxy="http://shell:1", all_proxy="http://shell:2").proxies
    assert proxies.find_proxy("https://api.anthropic.com") == "http://company:1"
    assert proxies.find_proxy("http://api.anthropic.com") is None
    assert "company" not in repr(proxies)


LIMITS = {
    "max_budget_usd": 5,
    "max_total_tokens": 1_000_000,
    "max_requests": 200,
    "max_seconds": 600,
    "max_agents": 40,
    "max_concurrent": 10,
    "max_depth": 2,
    "fan_out_preview": None,
    "agent_limits": {"usd": 1, "seconds": 60},
    "agent_type_limits": {"Explore": {"tokens": 100_000, "requests": 9}},
}


def test_limits_are_read_for_the_run_for_agents_and_for_agent_types(settings_files: SettingsFiles):
    settings_files.write(home={"shoal": LIMITS})
    settings = settings_files.load()
    assert settings.findings.warnings == ()
    own = settings.own
    assert (own.max_total_tokens, own.max_requests, own.max_depth) == (1_000_000, 200, 2)
    assert (own.agent_limits.usd, own.agent_limits.tokens) == (1, None)
    assert own.agent_type_limits["Explore"].requests == 9
    assert own.fan_out_preview is None


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("max_total_tokens", 0, 3),
        ("max_requests", "many", 3),
        ("max_seconds", -1, 3),
        ("max_agents", 0, 3),
        ("max_concurrent", 0, 3),
        ("max_depth", -1, 3),
        ("fan_out_preview", 0, 3),
        ("agent_limits", {"usd": -1}, 4),
        ("agent_type_limits", {"Explore": {"tokens": "x"}}, None),
    ],
)
def test_an_invalid_limit_is_reported_with_its_line(settings_files: SettingsFiles, key, value, line):
    settings_files.write(home={"shoal": {key: value}})
    with pytest.raises(SettingsError, match=key) as caught:
        settings_files.load()
    assert line is None or caught.value.line == line
    assert str(settings_files.files["home"]) in str(caught.value)


def test_a_misspelt_limit_is_reported(settings_files: SettingsFiles):
    settings_files.write(
        home={"shoal": {"agent_limits": {"dollars": 1}, "agent_type_limits": {"Plan": {"token": 1}}}}
    )
    warnings = " ".join(settings_files.load().findings.warnings)
    assert "shoal.agent_limits.dollars is not a setting" in warnings
    assert (
        "shoal.agent_type_limits.Plan.token is not a setting and is ignored. Did you mean tokens?" in warnings
    )


def test_only_the_first_of_thousands_of_unknown_keys_are_reported(settings_files: SettingsFiles):
    settings_files.write(home={"shoal": {f"key-{number}": 1 for number in range(3_000)}})
    warnings = [warning for warning in settings_files.load().findings.warnings if "ignored" in warning]
    assert "shoal.key-0 is not a setting" in warnings[0]
    assert len(warnings) == 21
    assert "2,980 more keys of shoal are not settings" in warnings[-1]


def test_misspelt_model_and_telemetry_keys_are_reported(settings_files: SettingsFiles):
    settings_files.write(home={"shoal": {"models": {"m": {"windows": 1}}, "telemetry": {"contents": True}}})
    warnings = " ".join(settings_files.load().findings.warnings)
    assert "shoal.models.m.windows is not a setting and is ignored. Did you mean window?" in warnings
    assert "shoal.telemetry.contents is not a setting and is ignored. Did you mean content?" in warnings


@pytest.mark.spec("USR-01")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_budget_usd", 500),
        ("max_total_tokens", 10**9),
        ("max_requests", 10**6),
        ("max_seconds", 10**6),
        ("max_agents", 1_000),
        ("max_concurrent", 1_000),
        ("max_depth", 9),
        ("fan_out_preview", None),
        ("fan_out_preview", 100),
        ("agent_limits", {"usd": 100}),
        ("agent_type_limits", {"Explore": {"tokens": 10**9}}),
    ],
)
def test_an_untrusted_project_cannot_raise_a_limit(settings_files: SettingsFiles, key, value):
    mine = {**LIMITS, "fan_out_preview": 3}
    settings_files.write(home={"shoal": mine}, project={"shoal": {key: value}})
    settings = settings_files.load()
    assert getattr(settings.own, key) == getattr(
        settings_files.load(given=json.dumps({"shoal": mine})).own, key
    )
    assert f"ignores the permissions they would grant (shoal.{key})" in settings.findings.warnings[0]


def test_a_project_can_lower_the_limits(settings_files: SettingsFiles):
    lower = {
        "max_budget_usd": 0.5,
        "max_agents": 2,
        "fan_out_preview": 2,
        "agent_limits": {"tokens": 5},
        "agent_type_limits": {"Plan": {"usd": 1}},
    }
    settings_files.write(home={"shoal": {**LIMITS, "fan_out_preview": 3}}, project={"shoal": lower})
    settings = settings_files.load()
    own = settings.own
    assert (own.max_budget_usd, own.max_agents, own.fan_out_preview) == (0.5, 2, 2)
    assert (own.agent_limits.usd, own.agent_limits.tokens) == (1, 5)
    assert set(own.agent_type_limits) == {"Explore", "Plan"}
    assert settings.findings.warnings == ()


def test_a_project_cannot_disable_the_preview_by_default(settings_files: SettingsFiles):
    settings_files.write(project={"shoal": {"fan_out_preview": None, "max_concurrent": 21}})
    assert (settings_files.load().own.fan_out_preview, settings_files.load().own.max_concurrent) == (8, 20)


def test_an_unknown_key_of_the_cluster_is_reported(tmp_path: Path) -> None:
    settings = load_settings(cwd=tmp_path, given='{"shoal": {"cluster": {"addr": "192.0.2.10:6379"}}}')
    (warning,) = settings.findings.warnings
    assert "shoal.cluster.addr is not a setting and is ignored. Did you mean address?" in warning
