"""The model of a sub-agent: precedence of its sources, and the meaning of aliases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.app.models.child_model import choose_subagent_model
from shoal.app.settings.settings import load_settings
from shoal.models.catalogue import resolve_model
from shoal.models.scripted_model import SCRIPTED_CARD


def choose_model(
    tmp_path: Path,
    parent: str,
    *,
    call: str | None = None,
    definition: str | None = None,
    aliases: dict[str, str] | None = None,
    **environ: str,
) -> str | None:
    settings = load_settings(
        cwd=tmp_path,
        environ={"HOME": str(tmp_path), **environ},
        given=json.dumps({"shoal": {"aliases": aliases or {}}}),
        managed=(),
    )
    return choose_subagent_model(settings, resolve_model(parent).card, call=call, definition=definition)


@pytest.mark.spec("DEF-06")
def test_the_environment_overrides_the_call_and_the_call_overrides_the_definition(tmp_path: Path):
    parent = "claude-opus-5-5"
    both = {"call": "gpt-5.5", "definition": "claude-haiku-5-5"}
    assert choose_model(tmp_path, parent, definition="claude-haiku-5-5") == "claude-haiku-5-5"
    assert choose_model(tmp_path, parent, **both) == "gpt-5.5"
    theirs = {"CLAUDE_CODE_SUBAGENT_MODEL": "claude-sonnet-5"}
    assert choose_model(tmp_path, parent, **both, **theirs) == "claude-sonnet-5"
    assert choose_model(tmp_path, parent, **both, **theirs, SHOAL_SUBAGENT_MODEL="ollama:x") == "ollama:x"
    assert choose_model(tmp_path, parent) is None
    assert choose_model(tmp_path, parent, call="inherit", definition="claude-haiku-5-5") is None


@pytest.mark.spec("DEF-06")
@pytest.mark.parametrize(
    ("parent", "alias", "model"),
    [
        ("claude-sonnet-4-5-20250929", "sonnet", None),
        ("claude-sonnet-4-5", "haiku", "anthropic:haiku"),
        ("openai:gpt-6.1-sol", "sonnet", None),
        ("openai:gpt-6-sol", "opus", "openai:opus"),
        ("openrouter:anthropic/claude-opus-4.8", "opus", None),
        ("openrouter:anthropic/claude-opus-4.8", "haiku", "openrouter:haiku"),
        ("claude-sonnet-4-5", "claude-sonnet-4-5", None),
        ("claude-sonnet-4-5", "anthropic:claude-sonnet-4-5", None),
        ("claude-sonnet-4-5", "claude-sonnet-5", "claude-sonnet-5"),
    ],
)
def test_an_alias_of_the_parents_family_is_its_model_and_others_use_its_provider(
    tmp_path: Path, parent: str, alias: str, model: str | None
):
    assert choose_model(tmp_path, parent, definition=alias) == model


@pytest.mark.spec("AGT-14")
@pytest.mark.parametrize("parent", ["ollama:qwen3:8b", "openai:my-own-model"])
def test_an_alias_unknown_to_a_custom_server_is_the_parents_model(tmp_path: Path, parent: str):
    assert choose_model(tmp_path, parent, definition="haiku") is None
    assert (
        choose_model(tmp_path, parent, definition="haiku", aliases={"haiku": "ollama:qwen3:1b"})
        == "ollama:qwen3:1b"
    )


def test_sub_agents_of_a_scripted_model_are_scripted(tmp_path: Path):
    settings = load_settings(cwd=tmp_path, environ={"HOME": str(tmp_path)}, managed=())
    assert choose_subagent_model(settings, SCRIPTED_CARD, call=None, definition="haiku") is None


@pytest.mark.spec("AGT-14")
def test_a_user_defined_alias_resolves_to_the_users_model(tmp_path: Path):
    own = {"sonnet": "claude-sonnet-4-5", "mine": "opus", "same": "sonnet"}
    assert choose_model(tmp_path, "claude-sonnet-5-5", call="sonnet", aliases=own) == "claude-sonnet-4-5"
    assert choose_model(tmp_path, "claude-opus-4-8", call="mine", aliases=own) is None
    assert choose_model(tmp_path, "claude-sonnet-5-5", call="mine", aliases=own) == "anthropic:opus"


def test_project_settings_cannot_choose_the_model_of_sub_agents(tmp_path: Path):
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text('{"env": {"SHOAL_SUBAGENT_MODEL": "x"}}')
    environ = {"SHOAL_HOME": str(tmp_path / "home")}
    assert load_settings(cwd=tmp_path, environ=environ, managed=()).models.subagents is None
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "settings.json").write_text('{"env": {"SHOAL_SUBAGENT_MODEL": "y"}}')
    assert load_settings(cwd=tmp_path, environ=environ, managed=()).models.subagents == "y"
