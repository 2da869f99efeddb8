"""No tool of an agent can read the key of its team."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_scripts import call_tool, run_all_turns
from shoal.core.conversation.messages import extract_tool_result_text
from team_scripts import find_tool_results, get_home, open_session, script_team, spawn_member

CREATE = call_tool("TeamCreate", team_name="crew")


async def collect_results(tmp_path: Path, *calls: Any, **shoal: Any) -> list[str]:
    """Run the calls as a member without permission checks and return their results."""
    results: list[str] = []

    def listen(request: Any) -> str:
        results.extend(extract_tool_result_text(each) for each in find_tool_results(request.messages))
        return "done"

    model = script_team(lead=[CREATE, spawn_member("ann"), "wait", "end"], ann=[list(calls), listen])
    async with open_session(tmp_path, model, settings=json.dumps({"shoal": shoal})) as session:
        await run_all_turns(session)
        assert len((get_home() / "shoal" / "keys" / "crew").read_bytes()) == 32
    assert len(results) == len(calls)
    return results


@pytest.mark.spec("USR-11")
async def test_no_file_tool_or_command_can_read_the_team_key(tmp_path: Path) -> None:
    key = get_home() / "shoal" / "keys" / "crew"
    (tmp_path / "link").symlink_to(key.parent)
    results = await collect_results(
        tmp_path,
        call_tool("Read", "r1", file_path=str(key)),
        call_tool("Read", "r2", file_path="link/crew"),
        call_tool("Write", "w1", file_path=str(key), content="x" * 32),
        call_tool("Grep", "g1", pattern=".", path=str(key)),
        call_tool("Bash", "b1", command=f"cat {key}"),
        call_tool("Grep", "g2", pattern="", path=str(get_home() / "shoal"), output_mode="files_with_matches"),
        call_tool("Glob", "l1", pattern="**/crew", path=str(get_home())),
        sandbox={"enabled": False},
    )
    assert all("Shoal's own keys, which no tool may access" in each for each in results[:5]), results
    assert not any("keys/crew" in each for each in results[5:]), results
    assert any("journal.jsonl" in each for each in results[5:]), "the search did look there"


@pytest.mark.spec("USR-11")
@pytest.mark.needs("bwrap")
async def test_no_sandboxed_command_can_read_the_team_key_by_any_path(tmp_path: Path) -> None:
    look = f"cd {get_home()} && ls; cat s*/k*/* | wc -c; find . -name crew -path '*k[e]ys*' | wc -l"
    (results,) = await collect_results(
        tmp_path, call_tool("Bash", "b1", command=look), sandbox={"enabled": True}
    )
    assert "teams" in results, results
    assert [line.strip() for line in results.splitlines() if line.strip().isdigit()] == ["0", "0"], results
