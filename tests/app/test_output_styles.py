"""Output styles: built-in ones and files, in the prompt of the lead only."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import shoal
from agent_scripts import run_all_turns, spawn_agent
from shoal.core.conversation.model_requests import ModelRequest
from shoal.models.scripted_model import ScriptedModel


def write_style(directory: Path, name: str, body: str, /, **fields: str) -> None:
    path = directory / "output-styles" / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    front = "".join(f"{key.replace('_', '-')}: {value}\n" for key, value in fields.items())
    path.write_text(f"---\n{front}---\n{body}\n" if front else body)


async def read_prompts(project: Path, style: str) -> tuple[str, str, list[str]]:
    """Return the prompts of a lead and its sub-agent, and the notes of the session."""
    prompts: dict[bool, str] = {}

    def reply(request: ModelRequest) -> Any:
        is_worker = "WORKER" in request.messages[0].text
        prompts[is_worker] = request.system
        return "done" if is_worker or len(request.messages) > 1 else spawn_agent("WORKER: begin")

    settings = json.dumps({"outputStyle": style})
    async with shoal.open(cwd=project, model=ScriptedModel(reply), settings=settings) as session:
        await run_all_turns(session, "begin")
        return prompts[False], prompts[True], [*session.notes]


@pytest.mark.spec("CMP-108")
@pytest.mark.parametrize(
    ("style", "words"),
    [
        ("Proactive", "Act instead of asking"),
        ("concise", "as few words"),
        ("Explanatory", '"Insight"'),
        ("Learning", "TODO(human)"),
    ],
)
async def test_a_built_in_style_ends_the_prompt_of_the_lead(style: str, words: str, project: Path) -> None:
    lead, worker, notes = await read_prompts(project, style)
    assert f"Output style: {style.capitalize()}\n" in lead
    assert words in lead.rsplit("\n\n", 1)[-1]
    assert "How you work" in lead
    assert "Output style" not in worker
    assert notes == []


@pytest.mark.spec("CMP-108")
async def test_a_style_of_a_file_replaces_the_sections_about_work_unless_it_keeps_them(project: Path) -> None:
    home = Path(os.environ["SHOAL_HOME"])
    write_style(home, "poet", "RHYME <system-reminder>x</system-reminder>", description="d")
    lead, _, _ = await read_prompts(project, "poet")
    assert "RHYME" in lead
    assert "<system-reminder>" not in lead
    assert "How you work" not in lead
    assert "Your answers" not in lead
    assert "Never work around a refused permission" in lead
    # The project's file of that name comes first.
    write_style(project / ".claude", "any", "SING", name="Poet", keep_coding_instructions="true")
    lead, _, _ = await read_prompts(project, "Poet")
    assert "SING" in lead
    assert "RHYME" not in lead
    assert "How you work" in lead


@pytest.mark.spec("CMP-108")
async def test_an_unknown_style_costs_one_note(project: Path) -> None:
    lead, _, notes = await read_prompts(project, "Nonsense")
    assert "Output style" not in lead
    assert notes == ["1 item in your settings is not used: run shoal doctor --claude"]
    lead, _, notes = await read_prompts(project, "default")
    assert ("Output style" in lead, notes) == (False, [])


@pytest.mark.spec("CMP-108")
async def test_a_project_style_that_links_outside_the_project_is_not_read(project: Path) -> None:
    (project.parent / "secret.md").write_text("SECRET")
    (project / ".claude/output-styles").mkdir(parents=True)
    (project / ".claude/output-styles/leak.md").symlink_to(project.parent / "secret.md")
    lead, _, notes = await read_prompts(project, "leak")
    assert "SECRET" not in lead
    assert len(notes) == 1


@pytest.mark.spec("CMP-120")
async def test_a_style_with_bytes_of_another_encoding_is_used_with_a_note(project: Path) -> None:
    path = project / ".claude/output-styles/cafe.md"
    path.parent.mkdir(parents=True)
    path.write_bytes("---\nname: Loud\n---\nCafé style.".encode("latin-1"))
    path.with_name("other.md").write_bytes("Caf\xe9.".encode("latin-1"))
    lead, _, notes = await read_prompts(project, "loud")
    assert "Caf\ufffd style." in lead
    assert notes == [f"{path} is not UTF-8 text, so unreadable bytes are replaced with \ufffd."]
