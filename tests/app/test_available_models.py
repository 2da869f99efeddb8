"""A managed list of available models limits what is sent, whatever the user lets a name mean."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from app_session_helpers import run_prompt

from shoal.app.options import Options
from shoal.app.run_view.agent_status import RunViewAgentsState
from shoal.app.session.session import Session
from shoal.app.settings import settings_files
from shoal.core.errors import UnknownModel
from shoal.core.events import Event
from shoal.core.ids import LEAD_ID
from shoal.testing import messages_server
from shoal.testing.servers import MockServer

OPUS = "claude-opus-5-5"


@pytest.fixture
def managed_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "managed-settings.json"
    monkeypatch.setattr(settings_files, "MANAGED_FILES", (path,))
    return path


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MockServer]:
    async with messages_server(lambda _: "done") as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-for-tests")
        yield server


def write_user_settings(**settings: Any) -> None:
    (Path(os.environ["SHOAL_HOME"]) / "settings.json").write_text(json.dumps(settings))


async def send_prompt(project: Path, server: MockServer, model: str | None) -> str:
    async with Session(Options(cwd=project, model=model)) as session:
        await run_prompt(session)
    return str(server.requests[-1].body["model"])


@pytest.mark.spec("CMP-063")
@pytest.mark.parametrize("name", ["haiku", "anthropic:haiku", "haiku[1m]"])
@pytest.mark.parametrize("source", ["shell", "user env", "shoal.aliases", "modelOverrides"])
async def test_a_user_cannot_let_an_available_name_mean_another_model(
    project: Path,
    server: MockServer,
    managed_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    name: str,
) -> None:
    managed_file.write_text('{"availableModels": ["sonnet", "haiku"]}')
    if source == "shell":
        monkeypatch.setenv("ANTHROPIC_DEFAULT_HAIKU_MODEL", OPUS)
    elif source == "user env":
        write_user_settings(env={"ANTHROPIC_DEFAULT_HAIKU_MODEL": OPUS})
    elif source == "shoal.aliases":
        write_user_settings(shoal={"aliases": {"haiku": f"anthropic:{OPUS}"}})
    else:
        write_user_settings(modelOverrides={"claude-haiku-5-5": OPUS})
    with pytest.raises(UnknownModel, match=rf"managed-settings.json:1: availableModels .*{OPUS}"):
        await send_prompt(project, server, name)
    assert not server.requests
    assert await send_prompt(project, server, "sonnet") == "claude-sonnet-5-5"


@pytest.mark.spec("CMP-063")
@pytest.mark.parametrize("names", [[], ["sonnet"]])
async def test_the_default_model_cannot_be_redefined_either(
    project: Path, server: MockServer, managed_file: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    managed_file.write_text(json.dumps({"availableModels": names}))
    assert await send_prompt(project, server, None) == "claude-sonnet-5-5"
    monkeypatch.setenv("ANTHROPIC_DEFAULT_SONNET_MODEL", OPUS)
    with pytest.raises(UnknownModel, match="availableModels"):
        await send_prompt(project, server, None)
    assert len(server.requests) == 1


@pytest.mark.spec("CMP-063")
async def test_a_managed_file_and_a_gateways_ids_give_names_their_meaning(
    project: Path, server: MockServer, managed_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"ANTHROPIC_DEFAULT_HAIKU_MODEL": "gateway-small"}
    managed_file.write_text(json.dumps({"availableModels": ["sonnet", "haiku"], "env": env}))
    write_user_settings(modelOverrides={"claude-sonnet-5-5": "arn:gateway/7"})
    assert await send_prompt(project, server, "haiku") == "gateway-small"
    assert await send_prompt(project, server, "sonnet") == "arn:gateway/7"
    managed_file.write_text('{"availableModels": ["haiku"]}')
    monkeypatch.setenv("ANTHROPIC_DEFAULT_HAIKU_MODEL", "claude-haiku-4-5")
    assert await send_prompt(project, server, "haiku") == "claude-haiku-4-5"


async def test_with_a_list_of_their_own_users_choose_what_a_name_means(
    project: Path, server: MockServer
) -> None:
    env = {"ANTHROPIC_DEFAULT_HAIKU_MODEL": "gateway-small"}
    write_user_settings(availableModels=["haiku"], env=env)
    assert await send_prompt(project, server, "haiku") == "gateway-small"


@pytest.mark.spec("CMP-063")
@pytest.mark.parametrize("source", ["settings", "option"])
async def test_opusplan_plans_with_sonnet_where_opus_is_not_available(
    project: Path, server: MockServer, managed_file: Path, source: str
) -> None:
    managed_file.write_text('{"availableModels": ["sonnet", "haiku"]}')
    write_user_settings(model="opusplan" if source == "settings" else "haiku")
    model = "opusplan" if source == "option" else None
    async with Session(Options(cwd=project, model=model, mode="plan")) as session:
        await run_prompt(session)
        notes = [note for note in session.notes if "opusplan" in note]
    assert [each.body["model"] for each in server.requests] == ["claude-sonnet-5-5"]
    assert len(notes) == 1
    assert "managed-settings.json:1: availableModels" in notes[0]


@pytest.mark.spec("CMP-063")
async def test_opusplan_is_named_if_neither_of_its_models_is_available(
    project: Path, server: MockServer, managed_file: Path
) -> None:
    managed_file.write_text('{"availableModels": ["haiku"]}')
    with pytest.raises(UnknownModel, match=r"^opusplan: .*availableModels"):
        await send_prompt(project, server, "opusplan")
    assert not server.requests


@pytest.mark.spec("CMP-051")
async def test_the_model_that_the_mode_selects_is_shown(project: Path, server: MockServer) -> None:
    shown: list[str] = []
    view = RunViewAgentsState()

    def record_event(event: Event) -> None:
        view.apply_event(event, 0.0)
        shown.append(view.all[LEAD_ID].model)

    async with Session(Options(cwd=project, model="opusplan", mode="plan")) as session:
        assert session.model_card.id == "claude-opus-5-5"
        session.subscribe(record_event)
        await run_prompt(session)
        assert {*shown} - {""} == {"claude-opus-5-5"}
        session.set_mode("acceptEdits")
        assert (shown[-1], session.model_card.id) == ("claude-sonnet-5-5",) * 2
        session.set_mode("plan")
        assert shown[-1] == "claude-opus-5-5"
        journal = session.runtime.store.directory / "journal.jsonl"
        assert '"model":"claude-opus-5-5"' in journal.read_text().splitlines()[0]
    assert [each.body["model"] for each in server.requests] == ["claude-opus-5-5"]
