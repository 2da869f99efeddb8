"""Names made to lead elsewhere: none becomes a path, and teams of one wanted name do not meet."""

from __future__ import annotations

import asyncio
import itertools
import re
from pathlib import Path

import pytest

from shoal.core.clock import SystemClock
from shoal.core.errors import BadName
from shoal.core.ids import Ids
from shoal.core.mail import Mail
from shoal.core.names import LEAD_NAME
from shoal.core.roster import Newcomer
from shoal.stores.files.mailboxes import FileMailboxes
from shoal.stores.files.rosters import FileRosters

AT = "2026-02-13T10:11:35.247Z"
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


def hostile() -> list[str]:
    made = itertools.product(PARTS, ("", "outside", "x"), PARTS, ("", "outside", "x"))
    return [*WHOLE, *("".join(pieces) for pieces in made)][:1_000]


def tree(root: Path) -> set[Path]:
    return {path.relative_to(root) for path in root.rglob("*")}


def mail(ident: str) -> Mail:
    return Mail(id=ident, sender="bob", text=ident, timestamp=AT)


def newcomer(name: str) -> Newcomer:
    return Newcomer(name=name, agent_type="t", model="m", cwd="/", prompt="p")


@pytest.mark.spec("USR-29", "HOM-04")
async def test_a_thousand_hostile_names_make_no_file_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    names = hostile()
    assert len(names) == 1_000
    home = tmp_path / "deep" / "home"
    monkeypatch.chdir(tmp_path)
    rosters = FileRosters(home, clock=SystemClock())
    await rosters.create("team", lead=newcomer(LEAD_NAME), session="s", description=None)
    boxes = FileMailboxes(home, "team", clock=SystemClock(), ids=Ids())
    refused = 0
    for name in names:
        calls = (
            boxes.open,
            lambda name: boxes.post(name, mail("m")),
            boxes.take,
            lambda name: boxes.mark(name, ["m"]),
            lambda name: rosters.join("team", newcomer(name)),
            lambda name: rosters.create(name, lead=newcomer(LEAD_NAME), session="s", description=None),
            lambda name: FileMailboxes(home, name, clock=SystemClock(), ids=Ids()).open("ann"),
        )
        for call in calls:
            try:
                await call(name)
            except BadName:
                refused += 1
    await boxes.aclose()
    await rosters.aclose()
    assert refused > 6_000
    found = tree(tmp_path)
    assert {path for path in found if path.parts[:2] != ("deep", "home")} == {Path("deep")}
    # What only has blanks around it, or another form of a letter, is an ordinary name; nothing else is there.
    plain = re.compile(r"[A-Za-z0-9._-]+")
    assert [path for path in found if not all(plain.fullmatch(part) for part in path.parts)] == []
    assert not [path for path in found if "pwned" in path.name]


@pytest.mark.spec("USR-16")
async def test_twenty_teams_of_one_wanted_name_get_no_message_of_another(home: Path):
    rosters = FileRosters(home, clock=SystemClock())

    async def play(number: int) -> tuple[str, bool]:
        team = await rosters.create("team", lead=newcomer(LEAD_NAME), session=f"s{number}", description=None)
        boxes = FileMailboxes(home, team.name, clock=SystemClock(), ids=Ids())
        await boxes.open("ann")
        for n in range(20):
            await boxes.post("ann", mail(f"{number}-{n}"))
            await boxes.post(LEAD_NAME, mail(f"lead {number}-{n}"))
        got = [each.id for each in (*await boxes.take("ann"), *await boxes.take(LEAD_NAME))]
        await boxes.aclose()
        return team.name, got == [
            *(f"{number}-{n}" for n in range(20)),
            *(f"lead {number}-{n}" for n in range(20)),
        ]

    played = await asyncio.gather(*(play(number) for number in range(20)))
    await rosters.aclose()
    assert len({name for name, _ in played}) == 20
    assert all(own for _, own in played)
