"""Hostile names never become paths, and teams that request the same name stay separate."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from mail_helpers import create_mailboxes, make_mail
from store_helpers import make_member

from shoal.core.clock import SystemClock
from shoal.core.errors import InvalidName
from shoal.core.names import LEAD_NAME
from shoal.stores.files.teams.file_roster_store import FileRosterStore

PARTS = ("..", ".", "/", "\\", "\0", "\n", "~", "$(touch pwned)", "`touch pwned`", ";touch pwned;", "|", "*")
WHOLE = (
    *(
        "/etc/passwd",
        "../../outside",
        "..%2foutside",
        "a/../../outside",
        "C:\\outside",
        "-rf",
        "_x",
        ".hidden",
    ),
    *("a.json", "é", "日本", "con:", "a'b", 'a"b', "%s%n", "{x}", "<x>", "a/b", "./.", ".../...", "~root"),
    *("$HOME", "${HOME}", "@", "#", "!", "^", "=", "+", ",", ";", "(", ")", "[", "]", "", " ", "a b", "a\r"),
    *(
        "x" * 65,
        "x" * 5_000,
        "nul\0",
        "\u2025/outside",
        "．．／x",
        "a\u202eb",
        "\ud800",
        "\x1b[2J",
        "\ufeffx",
    ),
    *("../" * 200, "/" * 300),
)


def make_hostile_names() -> list[str]:
    made = itertools.product(PARTS, ("", "outside", "x"), PARTS, ("", "outside", "x"))
    return [*WHOLE, *("".join(pieces) for pieces in made)][:1_000]


def list_tree(root: Path) -> set[Path]:
    return {path.relative_to(root) for path in root.rglob("*")}


@pytest.mark.spec("USR-29", "HOM-04")
async def test_a_thousand_hostile_names_create_no_file_outside_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
):
    names = make_hostile_names()
    assert len(names) == 1_000
    home = tmp_path / "deep" / "home"
    monkeypatch.chdir(tmp_path)
    rosters = FileRosterStore(home, clock=SystemClock())
    await rosters.create_team("team", lead=make_member(LEAD_NAME), session="s", description=None)
    boxes = create_mailboxes(home, "team")
    refused = 0
    for name in names:
        calls = (
            boxes.open_inbox,
            lambda name: boxes.post(name, make_mail("m", ident="m")),
            boxes.take_unread,
            lambda name: boxes.mark_read(name, ["m"]),
            lambda name: rosters.add_member("team", make_member(name)),
            lambda name: rosters.create_team(
                name, lead=make_member(LEAD_NAME), session="s", description=None
            ),
            lambda name: create_mailboxes(home, name).open_inbox("ann"),
        )
        for call in calls:
            try:
                await call(name)
            except InvalidName:
                refused += 1
    await boxes.aclose()
    await rosters.aclose()
    assert refused > 6_000
    found = list_tree(tmp_path)
    assert {path for path in found if path.parts[:2] != ("deep", "home")} == {Path("deep")}
    # What only has blanks around it, or another form of a letter, is an ordinary name; nothing else is there.
    plain = re.compile(r"[A-Za-z0-9._-]+")
    assert [path for path in found if not all(plain.fullmatch(part) for part in path.parts)] == []
    assert not [path for path in found if "pwned" in path.name]
    record_property("measured", f"{len(names):,} hostile names, {refused:,} refused uses")


@pytest.mark.spec("USR-16")
async def test_twenty_teams_that_request_one_name_do_not_share_mail(home: Path):
    rosters = FileRosterStore(home, clock=SystemClock())

    async def run_team(number: int) -> tuple[str, bool]:
        team = await rosters.create_team(
            "team", lead=make_member(LEAD_NAME), session=f"s{number}", description=None
        )
        boxes = create_mailboxes(home, team.name)
        await boxes.open_inbox("ann")
        for n in range(20):
            await boxes.post("ann", make_mail(f"{number}-{n}", ident=f"{number}-{n}"))
            await boxes.post(LEAD_NAME, make_mail(f"lead {number}-{n}", ident=f"lead {number}-{n}"))
        got = [each.id for each in (*await boxes.take_unread("ann"), *await boxes.take_unread(LEAD_NAME))]
        await boxes.aclose()
        return team.name, got == [
            *(f"{number}-{n}" for n in range(20)),
            *(f"lead {number}-{n}" for n in range(20)),
        ]

    results = await asyncio.gather(*(run_team(number) for number in range(20)))
    await rosters.aclose()
    assert len({name for name, _ in results}) == 20
    assert all(own for _, own in results)
