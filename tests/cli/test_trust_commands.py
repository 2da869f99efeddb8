"""`shoal trust`, and what a run without a terminal says in a project nobody trusted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shoal_process import MODEL, ShoalProgram

from shoal.core.messages import ToolUseBlock
from shoal.testing import messages_server


@pytest.fixture
def clone(project: Path) -> Path:
    file = project / ".claude" / "settings.json"
    file.parent.mkdir()
    allow = {"allow": ["Bash(touch:*)"], "deny": ["WebFetch"]}
    file.write_text(json.dumps({"permissions": allow, "env": {"THEIR_TOKEN": "t0ken"}}, indent=1))
    return file


async def test_what_would_be_allowed_is_shown_trusted_and_taken_back(
    shoal: ShoalProgram, clone: Path
) -> None:
    async def states() -> list[tuple[str, str]]:
        ran = await shoal("trust", "--show", "--json")
        return [(row["key"], row["trust"]) for row in json.loads(ran.out)["settings"]]

    assert await states() == [("permissions.allow", "unasked"), ("env.THEIR_TOKEN", "unasked")]
    shown = await shoal("trust", "--show")
    assert "Bash(touch:*)" in shown.text
    assert f"{clone}:3" in shown.text
    assert "t0ken" not in shown.text
    ran = await shoal("trust")
    assert (ran.code, "Bash(touch:*)" in ran.text, "--revoke" in ran.text) == (0, True, True)
    assert await states() == [("permissions.allow", "trusted"), ("env.THEIR_TOKEN", "trusted")]
    assert (await shoal("trust", "--revoke")).code == 0
    assert await states() == [("permissions.allow", "unasked"), ("env.THEIR_TOKEN", "unasked")]
    assert (await shoal("trust", "--revoke", "--show")).code == 2


@pytest.mark.parametrize("flags", [(), ("--revoke",)])
async def test_json_is_for_looking_alone(
    shoal: ShoalProgram, clone: Path, home: Path, flags: tuple[str, ...]
) -> None:
    ran = await shoal("trust", "--json", *flags)
    assert (ran.code, ran.out) == (2, b"")
    assert "--json goes with --show" in ran.err
    assert not (home / "shoal" / "trust.json").exists()


async def test_where_nothing_widens_there_is_nothing_to_trust(shoal: ShoalProgram, home: Path) -> None:
    ran = await shoal("trust")
    assert (ran.code, ran.err) == (0, "")
    assert "nothing to trust" in ran.text
    assert not (home / "shoal" / "trust.json").exists()


async def test_rules_that_do_not_count_are_listed_as_such(shoal: ShoalProgram, clone: Path) -> None:
    row = {"behavior": "allow", "rule": "Bash(touch:*)", "source": f"{clone}:4"}
    listed = json.loads((await shoal("permissions", "ls", "--json")).out)
    assert [each["rule"] for each in listed["rules"]] == ["WebFetch"]
    assert listed["left_out"] == [row]
    explained = await shoal("permissions", "explain", "--json", "Bash", '{"command": "touch x"}')
    assert json.loads(explained.out)["decision"] == "ask"
    assert json.loads(explained.out)["left_out"] == [row]
    for command in (("ls",), ("explain", "Bash", '{"command": "touch x"}')):
        ran = await shoal("permissions", *command)
        assert "nobody trusted" in ran.text
        assert f"{clone}:4" in ran.text
    await shoal("trust")
    ran = await shoal("permissions", "ls")
    assert "nobody trusted" not in ran.text


async def test_a_run_without_a_terminal_says_it_and_goes_on_without(
    shoal: ShoalProgram, project: Path, clone: Path
) -> None:
    for trusted in (False, True):
        mind = [ToolUseBlock(id="a", name="Bash", input={"command": "touch made"}), "done"]
        async with messages_server(mind) as server:
            shoal.use_server(server)
            ran = await shoal("-p", "go", "--model", MODEL)
        assert (ran.code, ran.out.strip()) == (0, b"done")
        assert ("settings are not trusted" in ran.err) is not trusted
        assert ("`shoal trust`" in ran.err) is not trusted
        assert (project / "made").exists() is trusted
        await shoal("trust")
