"""`shoal skills`, and slash commands in headless runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from reply_scripts import get_prompt_text
from shoal_process import MODEL, ShoalProgram
from stream_driver import STREAMS

from shoal.testing import messages_server
from skill_helpers import write_command, write_skill


async def test_a_slash_command_runs_headless(shoal: ShoalProgram, project: Path) -> None:
    write_command(
        project / ".claude" / "commands", "greet", "Greet $0 by !`echo nam`e.", description="Greets"
    )
    async with messages_server(["Hello."]) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "/greet Ann", "--model", MODEL)
    assert (ran.code, ran.text) == (0, "Hello.\n")
    assert "Greet Ann by " in get_prompt_text(server, -1)


async def test_an_unknown_slash_command_is_an_error_without_a_model_request(
    shoal: ShoalProgram, project: Path
) -> None:
    write_command(project / ".claude" / "commands", "greet", "Greet.")
    async with messages_server([]) as server:
        shoal.use_server(server)
        ran = await shoal("-p", "/gret Ann", "--model", MODEL, "--output-format", "json")
    assert ran.code == 1
    assert "There is no command '/gret'. Did you mean /greet?" in ran.err
    assert ran.result["is_error"]
    assert server.requests == []


async def test_slash_commands_in_a_stream_are_turns_and_an_unknown_one_leaves_the_others(
    shoal: ShoalProgram, project: Path
) -> None:
    write_command(
        project / ".claude" / "commands", "greet", "Greet $0.", description="Greets", argument_hint="[who]"
    )
    prompts = ("/greet Ann", "/nobody", "plain")
    lines: list[dict[str, Any]] = [
        {"type": "control_request", "request_id": "r", "request": {"subtype": "initialize"}},
        *({"type": "user", "message": {"role": "user", "content": text}} for text in prompts),
    ]
    async with messages_server(["one", "two"]) as server:
        shoal.use_server(server)
        stdin = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        ran = await shoal(*STREAMS, "--model", MODEL, stdin=stdin)
    results = [line for line in ran.lines if line["type"] == "result"]
    assert [line["is_error"] for line in results] == [False, True, False]
    assert "There is no command '/nobody'" in str(results[1])
    assert "Greet Ann." in get_prompt_text(server, 0)
    (answer,) = [line for line in ran.lines if line["type"] == "control_response"]
    offered = {"name": "greet", "description": "Greets", "argumentHint": "[who]"}
    assert answer["response"]["response"]["commands"] == [offered]
    assert next(line for line in ran.lines if line.get("subtype") == "init")["slash_commands"] == ["greet"]


async def test_skills_and_commands_are_listed_and_shown(
    shoal: ShoalProgram, project: Path, home: Path
) -> None:
    path = write_skill(home / "skills", "pdf", "Fill it.", allowed_tools="Read", license="MIT")
    typed = write_command(project / ".claude" / "commands", "go/far", "Go.", allowed_tools="Bash(ls:*)")
    ran = await shoal("skills", "ls", "--json")
    assert (ran.code, ran.err) == (0, "")
    listing = {each["name"]: each for each in json.loads(ran.out)}
    assert listing["pdf"]["source"] == {"kind": "user", "path": str(path)}
    assert (listing["pdf"]["trust"], listing["go:far"]["trust"]) == ("trusted", "unasked")
    lines = (await shoal("skills", "ls")).text.splitlines()
    assert lines[0].split() == ["NAME", "KIND", "FOR", "SOURCE", "DESCRIPTION"]
    assert lines[1].split() == ["pdf", "skill", "both", "user", "Knows", "pdf"]
    skill_page = await shoal("skills", "show", "/go:far")
    assert f"project, {typed}" in skill_page.text
    assert "Bash(ls:*)  (not trusted: see `shoal trust --show`)" in skill_page.text
    assert skill_page.text.endswith("\n\nGo.\n")
    skill_page = await shoal("skills", "show", "pdf", "--json")
    assert (json.loads(skill_page.out)["body"], json.loads(skill_page.out)["license"]) == ("Fill it.", "MIT")
    unknown = await shoal("skills", "show", "pdg")
    assert unknown.code == 2
    assert "Did you mean /pdf?" in unknown.err
    assert not (home / "shoal").exists()


async def test_an_empty_skill_list_prints_a_message(shoal: ShoalProgram) -> None:
    ran = await shoal("skills", "ls")
    assert (ran.code, ran.err) == (0, "")
    assert ran.text.startswith("There are no skills or commands here.")


async def test_skill_validation_names_file_line_and_field(
    shoal: ShoalProgram, project: Path, home: Path
) -> None:
    write_skill(home / "skills", "good")
    write_skill(project / ".claude" / "skills", "good")
    bad = write_skill(project / ".claude" / "skills", "bad", context="spoon")
    ran = await shoal("skills", "validate")
    assert ran.code == 1
    lines = ran.text.splitlines()
    assert lines[0].startswith(f"{bad}:4: context: expected fork")
    assert (
        f"{home}/skills/good/SKILL.md: good is not used because {project}/.claude/skills/good/SKILL.md"
        in lines[1]
    )
    assert lines[-1] == "1 skill, 0 commands, 1 problem, 0 warnings."
    ran = await shoal("skills", "validate", str(bad.parent), "--json")
    (problem,) = json.loads(ran.out)["problems"]
    assert (problem["path"], problem["line"], problem["field"]) == (str(bad), 4, "context")
    for path in (home / "skills", home / "skills" / "good", home / "skills" / "good" / "SKILL.md"):
        ran = await shoal("skills", "validate", str(path))
        assert (ran.code, ran.text) == (0, "1 skill, 0 commands, 0 problems, 0 warnings.\n")
    assert (await shoal("skills", "validate", "nowhere")).code == 2


async def test_trust_covers_allowed_tools_of_skills_and_can_be_revoked(
    shoal: ShoalProgram, project: Path
) -> None:
    path = write_skill(project / ".claude" / "skills", "toucher", allowed_tools="Bash(touch:*)")

    async def states() -> list[tuple[str, str]]:
        ran = await shoal("trust", "--show", "--json")
        return [(row["key"], row["trust"]) for row in json.loads(ran.out)["settings"]]

    key = "skill toucher: allowed-tools"
    assert await states() == [(key, "unasked")]
    trust_page = await shoal("trust")
    assert "Bash(touch:*)" in trust_page.text
    assert f"{path}:4" in trust_page.text
    assert await states() == [(key, "trusted")]
    path.write_text(path.read_text() + "more\n")
    assert await states() == [(key, "unasked")]
    await shoal("trust")
    await shoal("trust", "--revoke")
    assert await states() == [(key, "unasked")]


async def test_showing_a_skill_where_there_is_none_is_an_error(shoal: ShoalProgram) -> None:
    ran = await shoal("skills", "show", "pdf")
    assert ran.code == 2
    assert "There is no skill or command 'pdf'." in ran.err
    assert "SKILL.md" in (await shoal("skills", "ls")).text


@pytest.mark.spec("CMP-065", "CMP-066", "CMP-080")
@pytest.mark.parametrize(
    ("body", "shown"), [("Look at @db/a.sql now", "select 1"), ("Look into @db", "a.sql")]
)
async def test_a_file_in_a_command_brings_the_instructions_about_it(
    shoal: ShoalProgram, project: Path, body: str, shown: str
) -> None:
    texts = {
        ".claude/rules/sql.md": '---\npaths: "**/*.sql"\n---\nno joins',
        ".claude/commands/rev.md": body,
        "db/CLAUDE.md": "about the database",
        "db/a.sql": "select 1",
    }
    for name, text in texts.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    async with messages_server(["done"]) as server:
        shoal.use_server(server)
        await shoal("-p", "/rev", "--model", MODEL)
    sent = json.dumps(server.requests[0].body["messages"])
    assert shown in sent
    if body.endswith("now"):
        assert "no joins" in sent
        assert "about the database" in sent
