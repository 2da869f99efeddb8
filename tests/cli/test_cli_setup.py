"""`shoal setup`: a key is tested, stored for one user, and never shown."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from shoal_process import ShoalProgram

from shoal.app.models.provider_setup import ProviderSetup
from shoal.app.settings.settings import Settings, load_settings
from shoal.core.errors import SettingsError
from shoal.testing import chat_server, make_tool_call, messages_server
from shoal.testing.mock_replies import make_unauthorized_fault

KEY = "sk-ant-a-secret-of-1234567890abcdef"
OTHER = "sk-another-secret-of-1234567890abcdef"
GOOD = ["ready", make_tool_call("report", number=7)]
NOBODY = {"OLLAMA_HOST": "127.0.0.1:9"}


def get_credentials_path(home: Path) -> Path:
    return home / "shoal" / "credentials.json"


def load_home_settings(home: Path, **env: str) -> Settings:
    return load_settings(cwd=home, environ={"SHOAL_HOME": str(home), **env}, managed=())


async def test_a_key_from_stdin_is_tested_and_stored_privately(shoal: ShoalProgram, home: Path) -> None:
    (home / "settings.json").write_text('{\n    "theirs": [1],\n    "shoal": {"max_turns": 9}\n}\n')
    async with messages_server([GOOD, "Hello."]) as server:
        flags = ("--provider", "anthropic", "--key-stdin", "--base-url", server.url)
        ran = await shoal("setup", *flags, "--model", "haiku", stdin=f"{KEY}\n".encode(), **NOBODY)
        assert ran.code == 0, ran.err
        assert server.requests[0].headers["x-api-key"] == KEY
        again = await shoal("-p", "Hi.", **NOBODY)
        assert (again.code, again.text) == (0, "Hello.\n")
        assert server.requests[1].headers["x-api-key"] == KEY
        assert server.requests[1].body["model"] == "claude-haiku-5-5"
    assert "answers" in ran.text
    assert "calls tools" in ran.text
    assert KEY not in ran.text + ran.err
    assert stat.S_IMODE(get_credentials_path(home).stat().st_mode) == 0o600
    assert stat.S_IMODE(get_credentials_path(home).parent.stat().st_mode) == 0o700
    credentials = json.loads((home / "settings.json").read_text())
    assert credentials == {"theirs": [1], "shoal": {"max_turns": 9, "model": "anthropic:haiku"}}


async def test_a_rejected_key_is_not_stored(shoal: ShoalProgram, home: Path) -> None:
    async with messages_server([make_unauthorized_fault()]) as server:
        flags = ("--provider", "anthropic", "--key-stdin", "--base-url", server.url)
        ran = await shoal("setup", *flags, stdin=KEY.encode(), **NOBODY)
    assert ran.code == 1
    assert "did not accept the key" in ran.err
    assert "Nothing was stored." in ran.text
    assert KEY not in ran.text + ran.err
    assert not get_credentials_path(home).exists()


async def test_a_custom_server_needs_no_key_and_lists_its_models(shoal: ShoalProgram, home: Path) -> None:
    async with chat_server([GOOD], models=("tiny", "big")) as server:
        ran = await shoal("setup", "--provider", "server", "--base-url", f"{server.url}/v1", **NOBODY)
    assert ran.code == 0, ran.err
    assert "authorization" not in server.requests[0].headers
    settings = load_home_settings(home)
    assert settings.access.openai_base_url == f"{server.url}/v1"
    assert settings.models.main == "openai:tiny"
    assert settings.find_setting_origin("openai_base_url") == str(get_credentials_path(home))


async def test_setup_without_a_terminal_names_the_missing_flags(shoal: ShoalProgram) -> None:
    ran = await shoal("setup", **NOBODY)
    assert ran.code == 2
    assert "--provider" in ran.err
    ran = await shoal("setup", "--provider", "openai", "--key-stdin", stdin=b"", **NOBODY)
    assert ran.code == 1
    assert "no key for openai" in ran.err


async def test_a_stored_key_can_be_removed_with_its_default_model(shoal: ShoalProgram, home: Path) -> None:
    for provider, key in (("anthropic", KEY), ("openai", OTHER)):
        ran = await shoal("setup", "--provider", provider, "--key-stdin", "--no-test", stdin=key.encode())
        assert ran.code == 0, ran.err
    assert load_home_settings(home).models.main == "openai:sonnet"
    assert (await shoal("setup", "--remove", "openai")).code == 0
    settings = load_home_settings(home)
    assert (settings.models.main, settings.access.openai_api_key) == (None, None)
    assert settings.access.anthropic_api_key == KEY
    await shoal("setup", "--remove", "anthropic")
    assert not get_credentials_path(home).exists()
    assert "Nothing is stored" in (await shoal("setup", "--remove", "anthropic")).text


async def test_doctor_and_settings_mention_a_stored_key_without_showing_it(
    shoal: ShoalProgram, home: Path
) -> None:
    await shoal("setup", "--provider", "anthropic", "--key-stdin", "--no-test", stdin=KEY.encode())
    for words in (("doctor",), ("config", "show", "--origin"), ("config", "show", "--json")):
        ran = await shoal(*words, **NOBODY)
        assert str(get_credentials_path(home)) in ran.text, words
        assert KEY not in ran.text + ran.err


def write_credentials(home: Path, **providers: dict[str, str]) -> None:
    get_credentials_path(home).parent.mkdir(parents=True, exist_ok=True)
    get_credentials_path(home).write_text(json.dumps(providers))


def test_the_environment_takes_precedence_over_stored_keys(home: Path) -> None:
    write_credentials(home, openai={"OPENAI_API_KEY": KEY})
    assert load_home_settings(home).access.openai_api_key == KEY
    assert load_home_settings(home, OPENAI_API_KEY=OTHER).access.openai_api_key == OTHER


def test_a_stored_key_is_not_sent_to_an_address_set_elsewhere(home: Path) -> None:
    write_credentials(home, openai={"OPENAI_API_KEY": KEY})
    elsewhere = load_home_settings(home, OPENAI_BASE_URL="http://elsewhere:1/v1")
    assert elsewhere.access.openai_api_key is None
    write_credentials(home, openai={"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "http://mine:1/v1"})
    assert load_home_settings(home, OPENAI_API_KEY=OTHER).access.openai_base_url is None


def test_stored_keys_are_always_redacted(home: Path) -> None:
    write_credentials(home, openai={"OPENAI_API_KEY": "unshapely4but6secret8key"})
    for env in ({}, {"OPENAI_API_KEY": OTHER}):
        assert "unshapely" not in load_home_settings(home, **env).secret_redactor.redact_text(
            "see unshapely4but6secret8key!"
        )
    assert "OPENAI_API_KEY" not in load_home_settings(home).tool_environment


def test_an_invalid_credentials_file_is_a_warning_without_its_content(home: Path) -> None:
    for text in (
        f'{{"openai": {{"OPENAI_API_KEY": "{KEY}"',
        f'["{KEY}"]',
        '{"openai": {"OPENAI_API_KEY": 7}}',
    ):
        get_credentials_path(home).parent.mkdir(parents=True, exist_ok=True)
        get_credentials_path(home).write_text(text)
        (warning,) = load_home_settings(home).findings.warnings
        assert str(get_credentials_path(home)) in warning
        assert KEY not in warning


def test_a_variable_of_another_provider_is_not_taken_from_the_file(home: Path) -> None:
    write_credentials(home, openrouter={"OPENAI_BASE_URL": "http://evil:1", "PATH": "/evil"})
    settings = load_home_settings(home)
    assert settings.access.openai_base_url is None
    assert "PATH" not in settings.tool_environment


@pytest.mark.parametrize(
    "wish",
    [
        ProviderSetup(choice="openai", key="sk-one sk-two"),
        ProviderSetup(choice="openai", key="sk-one\nsk-two"),
        ProviderSetup(choice="server", key="k"),
        ProviderSetup(choice="server", base_url="localhost:8000"),
        ProviderSetup(choice="openrouter", key="k", base_url="http://x"),
    ],
    ids=str,
)
def test_invalid_setup_arguments_are_refused_without_repeating_the_key(wish: ProviderSetup) -> None:
    with pytest.raises(SettingsError) as refused:
        _ = wish.variables
    assert "sk-" not in str(refused.value)
    assert "sk-" not in repr(wish)
