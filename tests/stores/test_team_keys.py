"""Team keys on disk, and signatures of mail in inboxes."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from mail_helpers import TIMESTAMP, create_mailboxes, get_inbox_path, take_all_mail
from store_helpers import make_member

from shoal.core.clock import SystemClock
from shoal.core.names import LEAD_NAME
from shoal.core.teams.mail import MailMessage
from shoal.core.teams.mail_signatures import KEY_SIZE, MailSigner
from shoal.stores.files.teams.file_roster_store import FileRosterStore
from shoal.stores.files.teams.team_keys import load_or_create_team_mail_key, remove_team_mail_key

KEY_SCRIPT = """
import sys
from pathlib import Path
from shoal.stores.files.teams.team_keys import load_or_create_team_mail_key
sys.stdin.readline()
print(load_or_create_team_mail_key(Path(sys.argv[1]), "roof").hex())
"""


def test_a_team_key_is_private_and_stable(home: Path) -> None:
    before = os.umask(0)
    try:
        key = load_or_create_team_mail_key(home, "roof")
    finally:
        os.umask(before)
    assert len(key) == KEY_SIZE
    assert load_or_create_team_mail_key(home, "roof") == key != load_or_create_team_mail_key(home, "roof2")
    keys = home / "shoal" / "keys"
    assert stat.S_IMODE(keys.stat().st_mode) == 0o700
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in keys.iterdir()} == {
        "roof": 0o600,
        "roof2": 0o600,
    }


def test_a_temporary_key_file_of_a_killed_process_is_removed(home: Path) -> None:
    key = load_or_create_team_mail_key(home, "roof")
    (home / "shoal" / "keys" / ".roof.tmp.d68fba55").write_bytes(key)
    assert load_or_create_team_mail_key(home, "roof") == key
    assert [path.name for path in (home / "shoal" / "keys").iterdir()] == ["roof"]


def test_concurrent_processes_get_the_same_team_key(home: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", KEY_SCRIPT, str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    keys = {process.communicate(timeout=60)[0].strip() for process in processes}
    assert keys == {load_or_create_team_mail_key(home, "roof").hex()}


def test_an_invalid_or_linked_team_key_is_replaced_and_reported(home: Path) -> None:
    old_key = load_or_create_team_mail_key(home, "roof")
    path = home / "shoal" / "keys" / "roof"
    path.write_bytes(b"short")
    reports: list[str] = []
    new_key = load_or_create_team_mail_key(home, "roof", reports.append)
    assert len(new_key) == KEY_SIZE
    assert new_key != old_key
    path.unlink()
    (home / "mine").write_bytes(b"k" * KEY_SIZE)
    path.symlink_to(home / "mine")
    assert load_or_create_team_mail_key(home, "roof", reports.append) not in (new_key, b"k" * KEY_SIZE)
    assert not path.is_symlink()
    assert ["does not have 32 bytes" in reports[0], "it is a link" in reports[1]] == [True, True]


async def test_a_deleted_team_loses_its_key_and_a_new_team_of_that_name_gets_another(home: Path) -> None:
    rosters = FileRosterStore(home, clock=SystemClock())
    lead = make_member(LEAD_NAME)

    async def create_team() -> str:
        return (await rosters.create_team("roof", lead=lead, session="s", description=None)).name

    team = await create_team()
    key = load_or_create_team_mail_key(home, team)
    other = load_or_create_team_mail_key(home, "roof2")
    leftover = home / "shoal" / "keys" / f".{team}.tmp.0000"
    leftover.write_bytes(key)  # by a process that died while creating the key
    await rosters.delete_team(team)
    assert [path.name for path in (home / "shoal" / "keys").iterdir()] == ["roof2"]
    assert load_or_create_team_mail_key(home, "roof2") == other
    # Another program removed the team and left the files it does not know.
    second_key = load_or_create_team_mail_key(home, await create_team())
    for place in ("teams", "tasks"):
        subprocess.run(["rm", "-r", str(home / place / "roof")], check=True)
    assert load_or_create_team_mail_key(home, await create_team()) not in (key, second_key)


def test_removing_a_missing_key_is_not_an_error(home: Path) -> None:
    remove_team_mail_key(home, "roof")
    load_or_create_team_mail_key(home, "roof")
    remove_team_mail_key(home, "roof2")
    assert (home / "shoal" / "keys" / "roof").exists()


@pytest.mark.spec("USR-11", "HOM-05")
async def test_signatures_survive_every_rewrite_of_an_inbox(home: Path) -> None:
    signer = MailSigner("t", load_or_create_team_mail_key(home, "t"))
    boxes = create_mailboxes(home)
    await boxes.open_inbox("ann")
    unusual_text = 'half \ud83d, two \ud83d\ude00, "quoted" ,"read":false, {[é'
    for number in range(100):  # more than the inbox file holds: some overflow, some are archived
        mail = MailMessage(
            id=f"m{number}", sender="bob", text=f"{unusual_text} {number}", timestamp=TIMESTAMP, summary="s"
        )
        await boxes.post("ann", signer.sign_mail(mail, "ann"))
    path = get_inbox_path(home)
    # Another program writes its own entry, and ours as it understands them.
    entries = json.loads(path.read_text())
    path.write_text(
        json.dumps([*entries, {"from": "eve", "text": "hi", "timestamp": TIMESTAMP, "read": False}], indent=2)
    )
    taken = await take_all_mail(boxes)
    history = await boxes.read_history("ann")
    await boxes.aclose()
    for found in (taken, history):
        verdicts = {mail.id: signer.verify_mail(mail, "ann") for mail in found if mail.sender == "bob"}
        assert verdicts == {f"m{number}": "verified" for number in range(100)}
        assert [signer.verify_mail(mail, "ann") for mail in found if mail.sender == "eve"] == ["unsigned"]
