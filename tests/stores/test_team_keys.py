"""The keys of teams on disk, and the signatures that inboxes keep."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.core.clock import SystemClock
from shoal.core.errors import StoreError
from shoal.core.ids import Ids
from shoal.core.mail import Mail
from shoal.core.names import LEAD_NAME
from shoal.core.roster import Newcomer
from shoal.core.signing import KEY_SIZE, Seal
from shoal.stores.files.keys import remove_key, team_key
from shoal.stores.files.mailboxes import FileMailboxes
from shoal.stores.files.rosters import FileRosters

AT = "2026-02-13T10:11:35.247Z"
MAKER = """
import sys
from pathlib import Path
from shoal.stores.files.keys import team_key
sys.stdin.readline()
print(team_key(Path(sys.argv[1]), "crew").hex())
"""


def test_a_key_is_for_this_user_alone_and_stays(home: Path) -> None:
    before = os.umask(0)
    try:
        key = team_key(home, "crew")
    finally:
        os.umask(before)
    assert len(key) == KEY_SIZE
    assert team_key(home, "crew") == key != team_key(home, "crew2")
    keys = home / "shoal" / "keys"
    assert stat.S_IMODE(keys.stat().st_mode) == 0o700
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in keys.iterdir()} == {
        "crew": 0o600,
        "crew2": 0o600,
    }


def test_what_a_killed_process_left_of_a_key_is_cleared_by_the_next(home: Path) -> None:
    key = team_key(home, "crew")
    (home / "shoal" / "keys" / ".crew.tmp.d68fba55").write_bytes(key)
    assert team_key(home, "crew") == key
    assert [path.name for path in (home / "shoal" / "keys").iterdir()] == ["crew"]


def test_processes_that_make_it_at_once_have_the_same_one(home: Path) -> None:
    makers = [
        subprocess.Popen(
            [sys.executable, "-c", MAKER, str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for maker in makers:
        assert maker.stdin is not None
        maker.stdin.write("go\n")
        maker.stdin.flush()
    keys = {maker.communicate(timeout=60)[0].strip() for maker in makers}
    assert keys == {team_key(home, "crew").hex()}


def test_a_key_that_is_none_or_a_link_is_refused(home: Path) -> None:
    team_key(home, "crew")
    path = home / "shoal" / "keys" / "crew"
    path.write_bytes(b"short")
    with pytest.raises(StoreError, match="Remove it"):
        team_key(home, "crew")
    path.unlink()
    (home / "mine").write_bytes(b"k" * KEY_SIZE)
    path.symlink_to(home / "mine")
    with pytest.raises(StoreError, match="link"):
        team_key(home, "crew")


async def test_the_key_goes_with_its_team_and_no_other_team_of_the_name_has_it(home: Path) -> None:
    rosters = FileRosters(home, clock=SystemClock())
    lead = Newcomer(name=LEAD_NAME, agent_type="lead", model="m", cwd="/", prompt="")

    async def created() -> str:
        return (await rosters.create("crew", lead=lead, session="s", description=None)).name

    team = await created()
    key = team_key(home, team)
    other = team_key(home, "crew2")
    left = home / "shoal" / "keys" / f".{team}.tmp.0000"
    left.write_bytes(key)  # by a process that died while it made it
    await rosters.delete(team)
    assert [path.name for path in (home / "shoal" / "keys").iterdir()] == ["crew2"]
    assert team_key(home, "crew2") == other
    # Another program removed the team and left what it does not know.
    again = team_key(home, await created())
    for place in ("teams", "tasks"):
        subprocess.run(["rm", "-r", str(home / place / "crew")], check=True)
    assert team_key(home, await created()) not in (key, again)


def test_to_remove_what_is_not_there_is_no_error(home: Path) -> None:
    remove_key(home, "crew")
    team_key(home, "crew")
    remove_key(home, "crew2")
    assert (home / "shoal" / "keys" / "crew").exists()


@pytest.mark.spec("USR-11", "HOM-05")
async def test_an_inbox_keeps_signatures_however_it_is_rewritten(home: Path) -> None:
    seal = Seal("t", team_key(home, "t"))
    boxes = FileMailboxes(home, "t", clock=SystemClock(), ids=Ids())
    await boxes.open("ann")
    odd = 'half \ud83d, two \ud83d\ude00, "quoted" ,"read":false, {[é'
    for number in range(100):  # more than the window holds: some wait behind it, some are archived
        mail = Mail(id=f"m{number}", sender="bob", text=f"{odd} {number}", timestamp=AT, summary="s")
        await boxes.post("ann", seal.sealed(mail, "ann"))
    path = home / "teams" / "t" / "inboxes" / "ann.json"
    # Another program writes its own entry, and ours as it understands them.
    entries = json.loads(path.read_text())
    path.write_text(
        json.dumps([*entries, {"from": "eve", "text": "hi", "timestamp": AT, "read": False}], indent=2)
    )
    taken: list[Mail] = []
    while batch := await boxes.take("ann"):
        taken += batch
        await boxes.mark("ann", [mail.id for mail in batch])
    history = await boxes.history("ann")
    await boxes.aclose()
    for found in (taken, history):
        verdicts = {mail.id: seal.verdict(mail, "ann") for mail in found if mail.sender == "bob"}
        assert verdicts == {f"m{number}": "verified" for number in range(100)}
        assert [seal.verdict(mail, "ann") for mail in found if mail.sender == "eve"] == ["unsigned"]
