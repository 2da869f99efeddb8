"""The key of a team at work: no tool of its agents gets it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cast import all_turns, use
from shoal.core.messages import result_text
from troupe import home, member, opened, results, troupe

CREATE = use("TeamCreate", team_name="crew")


async def told(tmp_path: Path, *calls: Any, **shoal: Any) -> list[str]:
    """What a lead and a teammate hear who may do everything; the teammate makes the calls."""
    heard: list[str] = []

    def listen(request: Any) -> str:
        heard.extend(result_text(each) for each in results(request.messages))
        return "done"

    model = troupe(lead=[CREATE, member("ann"), "wait", "end"], ann=[list(calls), listen])
    async with opened(tmp_path, model, settings=json.dumps({"shoal": shoal})) as session:
        await all_turns(session)
        assert len((home() / "shoal" / "keys" / "crew").read_bytes()) == 32
    assert len(heard) == len(calls)
    return heard


@pytest.mark.spec("USR-11")
async def test_no_file_tool_and_no_command_that_names_it_gets_the_key_of_a_team(tmp_path: Path) -> None:
    key = home() / "shoal" / "keys" / "crew"
    (tmp_path / "link").symlink_to(key.parent)
    heard = await told(
        tmp_path,
        use("Read", "r1", file_path=str(key)),
        use("Read", "r2", file_path="link/crew"),
        use("Write", "w1", file_path=str(key), content="x" * 32),
        use("Grep", "g1", pattern=".", path=str(key)),
        use("Bash", "b1", command=f"cat {key}"),
        use("Grep", "g2", pattern="", path=str(home() / "shoal"), output_mode="files_with_matches"),
        use("Glob", "l1", pattern="**/crew", path=str(home())),
        sandbox={"enabled": False},
    )
    assert all("keys of Shoal itself, which no tool may reach" in each for each in heard[:5]), heard
    assert not any("keys/crew" in each for each in heard[5:]), heard
    assert any("journal.jsonl" in each for each in heard[5:]), "the search did look there"


@pytest.mark.spec("USR-11")
@pytest.mark.needs("bwrap")
async def test_no_command_in_a_sandbox_gets_it_however_it_is_named(tmp_path: Path) -> None:
    look = f"cd {home()} && ls; cat s*/k*/* | wc -c; find . -name crew -path '*k[e]ys*' | wc -l"
    (heard,) = await told(tmp_path, use("Bash", "b1", command=look), sandbox={"enabled": True})
    assert "teams" in heard, heard
    assert [line.strip() for line in heard.splitlines() if line.strip().isdigit()] == ["0", "0"], heard
