from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.app.settings.settings import Settings, load_settings
from shoal.app.settings.trust import answer
from shoal.core.errors import SettingsError
from shoal.wire.json_lines import line_of
from shoal.wire.settings import Own


class Place:
    """A home, a project and a managed file, and a hand to write settings there."""

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
        answer(self.load(), self.cwd, trusted=True)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_nothing_configured_gives_the_defaults(place: Place):
    settings = place.load()
    assert settings.own == Own()
    assert settings.own.compact_at == 0.85
    assert settings.own.outage_patience >= 600
    assert (settings.model, settings.warnings, settings.cleanup_period_days) == (None, (), 30)
    assert settings.permissions.allow == ()
    assert settings.origin("shoal.compact_at") == settings.origin("model") == "default"


@pytest.mark.spec("HOM-01")
def test_the_home_is_the_first_of_three_places(tmp_path):
    def home(**environ: str) -> Path:
        return load_settings(cwd=tmp_path, environ=environ, managed=()).home

    both = {"CLAUDE_CONFIG_DIR": "/b", "HOME": "/c"}
    assert home(SHOAL_HOME="/a", **both) == Path("/a")
    assert home(SHOAL_HOME="", **both) == Path("/b")
    assert home(HOME="/c") == Path("/c/.claude")
    assert home(SHOAL_HOME="here", HOME="/c") == tmp_path / "here"
    assert home() == Path.home() / ".claude"
    assert load_settings(cwd=tmp_path, environ=both, managed=()).origin("home") == "$CLAUDE_CONFIG_DIR"


def test_the_process_environment_is_the_default(tmp_path, monkeypatch):
    monkeypatch.setenv("SHOAL_HOME", "/from/the/process")
    assert load_settings(cwd=tmp_path).home == Path("/from/the/process")


def test_the_strongest_source_wins_and_says_so(place: Place):
    sources = {
        where: {"shoal": {"compact_at": share}}
        for where, share in (("home", 0.1), ("project", 0.2), ("local", 0.3), ("managed", 0.5))
    }
    for where in ("home", "project", "local"):
        place.write(**{where: sources[where]})
        settings = place.load()
        assert settings.own.compact_at == sources[where]["shoal"]["compact_at"]
        assert settings.origin("shoal.compact_at") == f"{place.files[where]}:3"
    assert place.load(given='{"shoal": {"compact_at": 0.4}}').own.compact_at == 0.4
    assert place.load(given='{"shoal": {"compact_at": 0.4}}').origin("shoal.compact_at") == "--settings:1"
    place.write(managed=sources["managed"])
    assert place.load(given='{"shoal": {"compact_at": 0.4}}').own.compact_at == 0.5


def test_how_long_sessions_are_kept_is_the_person_s_to_say_and_no_project_s(place: Place):
    place.write(home={"cleanupPeriodDays": 9}, project={"cleanupPeriodDays": 0})
    settings = place.load()
    assert settings.cleanup_period_days == 9
    assert settings.origin("cleanupPeriodDays") == f"{place.files['home']}:2"
    assert any("how long sessions are kept" in warning for warning in settings.warnings)
    assert place.load(given='{"cleanupPeriodDays": 7}').cleanup_period_days == 7
    place.write(managed={"cleanupPeriodDays": 3})
    assert place.load(given='{"cleanupPeriodDays": 7}').cleanup_period_days == 3
    place.write(home={}, project={}, managed={})
    assert (place.load().cleanup_period_days, place.load().warnings) == (30, ())
    assert place.load().origin("cleanupPeriodDays") == "default"


def test_permission_lists_are_joined_and_mappings_merged(place: Place):
    place.write(
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
    place.trust()
    settings = place.load()
    rules = settings.permissions
    assert rules.allow == ("Bash(make:*)", "Read", "Bash(ls:*)")
    assert (rules.ask, rules.deny, rules.additional_directories) == (("Bash",), ("WebFetch",), ("../lib",))
    assert rules.default_mode == "acceptEdits"
    assert settings.env == {"A": "project", "B": "home", "N": "3", "T": "true"}
    assert (settings.own.models["m"].input, settings.own.models["m"].window) == (3, 10)
    assert settings.own.models["n"].output == 2
    assert settings.own.aliases == {"x": "m"}
    assert settings.origin("permissions.allow") == f"{place.files['project']}:3, {place.files['home']}:3"
    assert settings.origin("permissions.defaultMode") == f"{place.files['local']}:6"
    assert settings.tool_environment["A"] == "project"
    assert settings.tool_environment["SHOAL_HOME"] == str(place.home)


def test_the_model_is_taken_from_the_environment_before_the_files(place: Place):
    place.write(home={"model": "from-home"})
    assert place.load().model == "from-home"
    place.write(project={"shoal": {"model": "own"}})
    assert (place.load().model, place.load().origin("model")) == ("own", f"{place.files['project']}:3")
    settings = place.load(ANTHROPIC_MODEL="a")
    assert (settings.model, settings.origin("model")) == ("a", "$ANTHROPIC_MODEL")
    assert place.load(ANTHROPIC_MODEL="a", SHOAL_MODEL="s").model == "s"


def test_keys_come_from_the_environment_or_the_persons_own_settings(place: Place):
    place.write(home={"env": {"ANTHROPIC_API_KEY": "from-home", "OPENAI_API_KEY": "o"}})
    settings = place.load(ANTHROPIC_API_KEY="from-environment", OLLAMA_HOST="h:1", OPENAI_BASE_URL="")
    access = settings.access
    assert access.anthropic_api_key == "from-environment"
    assert (access.openai_api_key, access.ollama_host, access.openai_base_url) == ("o", "h:1", None)
    assert settings.origin("anthropic_api_key") == "$ANTHROPIC_API_KEY"
    assert settings.origin("openai_api_key") == f"{place.files['home']}:4"


@pytest.mark.parametrize("where", ["project", "local"])
def test_a_project_cannot_send_requests_elsewhere(place: Place, where):
    hostile = {"env": {"ANTHROPIC_BASE_URL": "http://evil", "OPENAI_API_KEY": "theirs", "MARK": "x"}}
    place.write(**{where: hostile})
    place.trust()
    settings = place.load(ANTHROPIC_API_KEY="mine")
    assert settings.access.anthropic_base_url is None
    assert settings.access.openai_api_key is None
    assert settings.origin("anthropic_base_url") == "default"
    assert settings.env["MARK"] == "x"


def test_a_session_in_the_home_directory_itself_reads_its_settings_once(tmp_path):
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text('{"env": {"OPENAI_API_KEY": "k"}}')
    settings = load_settings(cwd=tmp_path, environ={"HOME": str(tmp_path)}, managed=())
    assert len(settings.documents) == 1
    assert settings.access.openai_api_key == "k"


def test_secrets_are_not_in_what_is_printed(place: Place):
    place.write(home={"env": {"OPENAI_API_KEY": "sk-secret-file"}})
    settings = place.load(ANTHROPIC_API_KEY="sk-secret-environment")
    shown = repr(settings) + repr(settings.access) + repr(settings.documents)
    assert "sk-secret" not in shown
    assert "anthropic_api_key" in shown


def test_foreign_keys_are_tolerated_and_own_unknown_ones_are_named(place: Place):
    place.write(
        project={
            "hooks": {"x": [1]},
            "statusLine": None,
            "shoal": {"compactat": 1, "zzz": 2, "durable": True},
        }
    )
    place.trust()
    settings = place.load()
    assert settings.own.durable
    near, far = settings.warnings
    assert near.startswith(f"{place.files['project']}:9: shoal.compactat")
    assert near.endswith("Is compact_at meant?")
    assert far.startswith(f"{place.files['project']}:10: shoal.zzz")
    assert far.endswith("is ignored.")


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ('{\n "shoal": {\n  "compact_at": "much"\n }\n}', 3, "shoal.compact_at"),
        ('{\n "shoal": {\n  "durable": true,\n  "compact_at": 1.5\n }\n}', 4, "shoal.compact_at"),
        ('{\n "shoal": []\n}', 2, "shoal"),
        ('{\n "permissions": {\n  "deny": [\n   "a",\n   5\n  ]\n }\n}', 5, "permissions.deny.1"),
        ('{"permissions": {"allow": "Read"}}', 1, "permissions.allow"),
        ('{"permissions": {"allow": ["Bash("]}}', 1, "permissions.allow: 'Bash(' is not a permission rule:"),
        ('{\n\n "permissions": {"defaultMode": "yolo"}}', 3, "permissions.defaultMode"),
        ('{\n "model": 5}', 2, "model"),
        ('{\n "env": {\n  "A": [1]}}', 2, "env"),
        ('{\n "cleanupPeriodDays": -1}', 2, "cleanupPeriodDays"),
        ('{\n "cleanupPeriodDays": 1.5}', 2, "cleanupPeriodDays"),
        ('{\n "cleanupPeriodDays": "never"}', 2, "cleanupPeriodDays"),
        ('{\n "shoal": {"outage_patience": 0}}', 2, "shoal.outage_patience"),
        ('{\n "x": "compact_at",\n "shoal": {"x": {"compact_at": 1},\n "compact_at": ""}}', 4, "compact_at"),
        ('{\n "a": 1\n "b"}', 3, "not valid JSON"),
        ("{\n", 2, "not valid JSON"),
        ("[1]", 1, "a JSON object"),
        ("[" * 100_000, 1, "not valid JSON"),
    ],
)
def test_a_mistake_is_named_with_file_line_and_key(place: Place, text, line, key):
    place.write(project=text)
    with pytest.raises(SettingsError) as caught:
        place.load()
    assert str(caught.value).startswith(f"{place.files['project']}:{line}: ")
    assert key in str(caught.value)
    assert (caught.value.path, caught.value.line) == (place.files["project"], line)


def test_settings_given_as_a_file_are_read_from_there(place: Place):
    place.cwd.mkdir()
    (place.cwd / "mine.json").write_text('\ufeff{"model": "given"}', encoding="utf-8")
    assert place.load(given="mine.json").model == "given"
    with pytest.raises(SettingsError, match=r"There is no settings file .*other\.json"):
        place.load(given="other.json")
    with pytest.raises(SettingsError, match="--settings:1: not valid JSON"):
        place.load(given='{"model"')


def test_a_file_that_cannot_be_read_is_an_error_not_a_default(place: Place):
    place.files["home"].mkdir(parents=True)
    with pytest.raises(SettingsError, match=r"home/settings\.json cannot be read"):
        place.load()
    place.files["home"].rmdir()
    place.files["home"].write_bytes(b'{"a": "\xff"}')
    with pytest.raises(SettingsError, match="not UTF-8"):
        place.load()


def test_an_empty_file_is_no_settings(place: Place):
    place.write(home="", project=" \n")
    assert place.load().own == Own()


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
    assert line_of(text, keys) == expected


def test_a_project_cannot_turn_the_asking_off_but_a_person_can(place: Place):
    skip = {"permissions": {"defaultMode": "bypassPermissions"}}
    place.write(project=skip, local=skip)
    assert place.load().permissions.default_mode is None
    assert "only your own settings" in place.load().warnings[0]
    place.write(home=skip)
    assert place.load().permissions.default_mode == "bypassPermissions"


def test_the_usual_variables_name_a_proxy(place: Place):
    settings = place.load(HTTPS_PROXY="http://proxy:3128", NO_PROXY="internal.example,.corp")
    assert settings.proxy_for("https://api.anthropic.com") == "http://proxy:3128"
    assert settings.proxy_for("http://api.anthropic.com") is None
    assert settings.proxy_for("https://a.internal.example/v1") is None
    assert settings.proxy_for("https://x.corp") is None
    assert settings.proxy_for("http://127.0.0.1:11434") is None
    assert place.load(all_proxy="http://p").proxy_for("https://x.example") == "http://p"


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


def test_limits_are_read_for_the_run_each_agent_and_each_type(place: Place):
    place.write(home={"shoal": LIMITS})
    settings = place.load()
    assert settings.warnings == ()
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
def test_a_limit_that_makes_no_sense_is_named_with_its_line(place: Place, key, value, line):
    place.write(home={"shoal": {key: value}})
    with pytest.raises(SettingsError, match=key) as caught:
        place.load()
    assert line is None or caught.value.line == line
    assert str(place.files["home"]) in str(caught.value)


def test_a_misspelt_limit_is_said(place: Place):
    place.write(home={"shoal": {"agent_limits": {"dollars": 1}, "agent_type_limits": {"Plan": {"token": 1}}}})
    told = " ".join(place.load().warnings)
    assert "shoal.agent_limits.dollars is not a setting" in told
    assert "shoal.agent_type_limits.Plan.token is not a setting and is ignored. Is tokens meant?" in told


def test_of_thousands_of_keys_that_are_no_settings_the_first_are_named(place: Place):
    place.write(home={"shoal": {f"key-{number}": 1 for number in range(3_000)}})
    told = [warning for warning in place.load().warnings if "ignored" in warning]
    assert "shoal.key-0 is not a setting" in told[0]
    assert len(told) == 21
    assert "2,980 more keys of shoal are not settings" in told[-1]


def test_a_misspelt_fact_about_a_model_and_a_misspelt_word_about_telemetry_are_said(place: Place):
    place.write(home={"shoal": {"models": {"m": {"windows": 1}}, "telemetry": {"contents": True}}})
    told = " ".join(place.load().warnings)
    assert "shoal.models.m.windows is not a setting and is ignored. Is window meant?" in told
    assert "shoal.telemetry.contents is not a setting and is ignored. Is content meant?" in told


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
def test_a_project_that_is_not_trusted_cannot_raise_a_limit(place: Place, key, value):
    mine = {**LIMITS, "fan_out_preview": 3}
    place.write(home={"shoal": mine}, project={"shoal": {key: value}})
    settings = place.load()
    assert getattr(settings.own, key) == getattr(place.load(given=json.dumps({"shoal": mine})).own, key)
    assert f"left out (shoal.{key})" in settings.warnings[0]


def test_a_project_can_lower_the_limits(place: Place):
    lower = {
        "max_budget_usd": 0.5,
        "max_agents": 2,
        "fan_out_preview": 2,
        "agent_limits": {"tokens": 5},
        "agent_type_limits": {"Plan": {"usd": 1}},
    }
    place.write(home={"shoal": {**LIMITS, "fan_out_preview": 3}}, project={"shoal": lower})
    settings = place.load()
    own = settings.own
    assert (own.max_budget_usd, own.max_agents, own.fan_out_preview) == (0.5, 2, 2)
    assert (own.agent_limits.usd, own.agent_limits.tokens) == (1, 5)
    assert set(own.agent_type_limits) == {"Explore", "Plan"}
    assert settings.warnings == ()


def test_a_project_cannot_turn_the_preview_off_where_nobody_set_it(place: Place):
    place.write(project={"shoal": {"fan_out_preview": None, "max_concurrent": 21}})
    assert (place.load().own.fan_out_preview, place.load().own.max_concurrent) == (8, 20)
