"""`shoal trust`, and the notice of a headless run in an untrusted project."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shoal_process import MODEL, ShoalProgram

from shoal.core.conversation.messages import ToolUseBlock
from shoal.testing import messages_server


@pytest.fixture
def settings_file(project: Path) -> Path:
    file = project / ".claude" / "settings.json"
    file.parent.mkdir()
    allow = {"allow": ["Bash(touch:*)"], "deny": ["WebFetch"]}
    file.write_text(json.dumps({"permissions": allow, "env": {"THEIR_TOKEN": "t0ken"}}, indent=1))
    return file


async def test_settings_that_need_trust_are_shown_trusted_and_revoked(
    shoal: ShoalProgram, settings_file: Path
) -> None:
    async def list_states() -> list[tuple[str, str]]:
        ran = await shoal("trust", "--show", "--json")
        return [(row["key"], row["trust"]) for row in json.loads(ran.out)["settings"]]

    assert await list_states() == [("permissions.allow", "unasked"), ("env.THEIR_TOKEN", "unasked")]
    trust_page = await shoal("trust", "--show")
    assert "Bash(touch:*)" in trust_page.text
    assert f"{settings_file}:3" in trust_page.text
    assert "t0ken" not in trust_page.text
    ran = await shoal("trust")
    assert (ran.code, "Bash(touch:*)" in ran.text, "--revoke" in ran.text) == (0, True, True)
    assert await list_states() == [("permissions.allow", "trusted"), ("env.THEIR_TOKEN", "trusted")]
    assert (await shoal("trust", "--revoke")).code == 0
    assert await list_states() == [("permissions.allow", "unasked"), ("env.THEIR_TOKEN", "unasked")]
    assert (await shoal("trust", "--revoke", "--show")).code == 2


@pytest.mark.parametrize("flags", [(), ("--revoke",)])
async def test_the_json_flag_of_trust_works_only_with_show(
    shoal: ShoalProgram, settings_file: Path, home: Path, flags: tuple[str, ...]
) -> None:
    ran = await shoal("trust", "--json", *flags)
    assert (ran.code, ran.out) == (2, b"")
    assert "--json can only be used with --show" in ran.err
    assert not (home / "shoal" / "trust.json").exists()


async def test_settings_that_allow_nothing_need_no_trust(shoal: ShoalProgram, home: Path) -> None:
    ran = await shoal("trust")
    assert (ran.code, ran.err) == (0, "")
    assert "nothing to trust" in ran.text
    assert not (home / "shoal" / "trust.json").exists()


async def test_untrusted_rules_are_listed_as_ignored(shoal: ShoalProgram, settings_file: Path) -> None:
    row = {"behavior": "allow", "rule": "Bash(touch:*)", "source": f"{settings_file}:4"}
    listed = json.loads((await shoal("permissions", "ls", "--json")).out)
    assert [each["rule"] for each in listed["rules"]] == ["WebFetch"]
    assert listed["left_out"] == [row]
    explained = await shoal("permissions", "explain", "--json", "Bash", '{"command": "touch x"}')
    assert json.loads(explained.out)["decision"] == "ask"
    assert json.loads(explained.out)["left_out"] == [row]
    for command in (("ls",), ("explain", "Bash", '{"command": "touch x"}')):
        ran = await shoal("permissions", *command)
        assert "settings are not trusted" in ran.text
        assert f"{settings_file}:4" in ran.text
    await shoal("trust")
    ran = await shoal("permissions", "ls")
    assert "settings are not trusted" not in ran.text


async def test_a_headless_run_reports_untrusted_settings_and_continues_without_them(
    shoal: ShoalProgram, project: Path, settings_file: Path
) -> None:
    for trusted in (False, True):
        replies = [ToolUseBlock(id="a", name="Bash", input={"command": "touch made"}), "done"]
        async with messages_server(replies) as server:
            shoal.use_server(server)
            ran = await shoal("-p", "go", "--model", MODEL)
        assert (ran.code, ran.out.strip()) == (0, b"done")
        assert ("settings are not trusted" in ran.err) is not trusted
        assert ("settings are not trusted" in ran.err) is not trusted
        assert (project / "made").exists() is trusted
        await shoal("trust")
