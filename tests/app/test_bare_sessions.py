"""Sessions without the extensions of files, and with only some of them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from app_session_helpers import list_result_texts, run_prompt

from agent_scripts import call_tool
from shoal.app.options import Options
from shoal.app.session.session import Session
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import SettingsError
from shoal.models.scripted_model import ScriptedModel


class RecordedSession:
    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []
        self.results = ""
        self.servers: list[str] = []

    @property
    def prompt(self) -> str:
        request = self.requests[0]
        return request.system + "".join(message.text for message in request.messages)

    @property
    def tool_texts(self) -> str:
        return json.dumps([[tool.name, tool.description] for tool in self.requests[0].tools])


async def run_recorded(project: Path, *, prompt: str = "go", **options: Any) -> RecordedSession:
    """Run a turn that tries to write a file, and record what the model gets."""
    recorded = RecordedSession()

    def reply(request: ModelRequest) -> Any:
        recorded.requests.append(request)
        if len(recorded.requests) > 1:
            return "done"
        return call_tool("Write", file_path=str(project / "made"), content="x")

    model = ScriptedModel(reply)
    async with Session(Options(cwd=project, model=model, **options)) as session:
        await run_prompt(session, prompt)
        recorded.results = "\n".join(list_result_texts(session.agent.conversation.messages))
        recorded.servers = [status.name for status in session.runtime.servers.list_statuses()]
    return recorded


@pytest.fixture
def extended_project(project: Path, tmp_path: Path) -> Path:
    """Create a project and a home with one of each extension."""
    home = Path(os.environ["SHOAL_HOME"])
    hook = {"hooks": [{"type": "command", "command": f"touch {tmp_path}/hook-ran"}]}
    settings = {
        "hooks": {"UserPromptSubmit": [hook]},
        "mcpServers": {"mine": {"command": "false"}},
        "permissions": {"deny": ["Write"]},
        "outputStyle": "shanty",
    }
    (home / "output-styles").mkdir()
    (home / "output-styles/shanty.md").write_text("---\nname: shanty\n---\nSing every answer.\n")
    (home / "settings.json").write_text(json.dumps(settings))
    (home / "CLAUDE.md").write_text("Speak like a pilot.")
    (project / "CLAUDE.md").write_text("The lamp is green.")
    (project / "CLAUDE.local.md").write_text("The buoy is red.")
    for name in ("tides", "winds"):
        skill = home / "skills" / name
        skill.mkdir(parents=True)
        (skill / "SKILL.md").write_text(
            f"---\nname: {name}\ndescription: Knows {name}.\n---\nBody of {name}.\n"
        )
    (home / "agents").mkdir()
    (home / "agents" / "keeper.md").write_text(
        "---\nname: keeper\ndescription: Keeps the light.\n---\nKeep it.\n"
    )
    return project


@pytest.mark.spec("CMP-097")
async def test_a_bare_session_uses_no_extension_but_every_permission_rule(
    extended_project: Path, tmp_path: Path
) -> None:
    usual = await run_recorded(extended_project)
    assert "Speak like a pilot." in usual.prompt
    assert "Sing every answer." in usual.prompt
    assert "Keeps the light." in usual.prompt + usual.tool_texts
    assert usual.servers == ["mine"]
    assert (tmp_path / "hook-ran").exists()
    (tmp_path / "hook-ran").unlink()
    bare = await run_recorded(extended_project, bare=True, skip_permissions=True)
    for text in (
        "Sing every answer.",
        "Speak like a pilot.",
        "The lamp is green.",
        "Keeps the light.",
        "Knows tides.",
    ):
        assert text not in bare.prompt + bare.tool_texts
    assert bare.servers == []
    assert not (tmp_path / "hook-ran").exists()
    assert not (extended_project / "made").exists()


@pytest.mark.spec("CMP-097")
async def test_skills_and_commands_can_be_disabled(extended_project: Path) -> None:
    assert "Knows tides." in (usual := await run_recorded(extended_project)).prompt + usual.tool_texts
    without = await run_recorded(extended_project, slash_commands=False)
    assert "Knows tides." not in without.prompt + without.tool_texts
    assert "Speak like a pilot." in without.prompt


async def test_only_the_named_skills_are_offered(extended_project: Path) -> None:
    named = await run_recorded(extended_project, skills=["winds"])
    assert "Knows winds." in named.prompt + named.tool_texts
    assert "Knows tides." not in named.prompt + named.tool_texts


@pytest.mark.parametrize(
    ("sources", "texts"),
    [
        ((), ()),
        (("user",), ("Speak like a pilot.",)),
        (("project",), ("The lamp is green.",)),
        (("local",), ("The buoy is red.",)),
    ],
)
async def test_instructions_come_only_from_the_named_sources(
    extended_project: Path, sources: tuple[str, ...], texts: tuple[str, ...]
) -> None:
    prompt = (await run_recorded(extended_project, setting_sources=sources)).prompt
    every = ("Speak like a pilot.", "The lamp is green.", "The buoy is red.")
    assert tuple(text for text in every if text in prompt) == texts


async def test_a_session_may_skip_permissions_later_only_if_it_was_allowed(project: Path) -> None:
    async with Session(Options(cwd=project, model=ScriptedModel(["done"]), allow_bypass=True)) as session:
        assert session.runtime.lead.permissions.mode == "default"
        session.set_mode("bypassPermissions")
        assert session.runtime.lead.permissions.mode == "bypassPermissions"
    async with Session(Options(cwd=project, model=ScriptedModel(["done"]))) as session:
        with pytest.raises(SettingsError):
            session.set_mode("bypassPermissions")
