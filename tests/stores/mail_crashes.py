"""Runs one mail scenario, killed before every single change it makes to the disk, and in every write.

`python mail_crashes.py DIRECTORY` prints the number of deaths and the faults of each, as JSON. Forks are
cheap, and this process has neither threads nor an event loop: hundreds of deaths take seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from itertools import count
from pathlib import Path

from shoal.core.clock import SystemClock
from shoal.core.ids import IdGenerator
from shoal.core.names import AgentName, TeamName
from shoal.core.teams.mail import MailMessage
from shoal.stores.files.access import atomic_rename
from shoal.stores.files.mailboxes import inbox_file, inbox_overflow
from shoal.stores.files.mailboxes.file_mailbox_store import FileMailboxStore

# A small window, so that a short scenario fills it, overflows, moves up and archives; and mail that has moved
# up is cut from the overflow at once.
inbox_file.MAX_UNREAD, inbox_file.MAX_READ = 4, 2
inbox_overflow._SHRINK_THRESHOLD = 1
ANN = AgentName("ann")
CHANGING_CALLS = ("write", "pwrite", "ftruncate", "rename", "unlink", "link", "mkdir", "rmdir", "utime")


def open_mailboxes(home: Path) -> FileMailboxStore:
    return FileMailboxStore(home, TeamName("t"), clock=SystemClock(), ids=IdGenerator())


class DeliveryLog:
    """Records delivered mail and acknowledged posts. Its own writes are never killed."""

    write = staticmethod(os.write)

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def add_line(self, kind: str, ident: str, text: str = "") -> None:
        self.write(self.fd, json.dumps([kind, ident, text]).encode() + b"\n")

    def list_entries(self, kind: str) -> list[tuple[str, str]]:
        lines = [json.loads(line) for line in self.path.read_text().splitlines()]
        return [(ident, text) for found, ident, text in lines if found == kind]


def kill_at(moment: int, *, half: bool) -> None:
    """Kill this process just before its n-th change; or, with `half`, in the middle of its n-th write."""
    counter = count(1)

    def wrap_call(call, is_write):
        def call_or_die(*args, **how):
            # Half-done calls exist for writes alone: all others are the same as without `half`.
            if (is_write or not half) and next(counter) == moment:
                if half:
                    call(args[0], args[1][: len(args[1]) // 2], *args[2:], **how)
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **how)

        return call_or_die

    for name in CHANGING_CALLS:
        setattr(os, name, wrap_call(getattr(os, name), name in ("write", "pwrite")))
    atomic_rename._call_renameat2 = wrap_call(atomic_rename._call_renameat2, False)


async def run_scenario(home: Path, notes: Path) -> None:
    """Post until the inbox overflows, add foreign entries, take and mark; note each acknowledgement."""
    log = DeliveryLog(notes)
    mail = open_mailboxes(home)
    await mail.open_inbox(ANN)
    numbers = count()

    async def post_many(how_many: int) -> None:
        async def post_one(ident: str) -> None:
            sent = MailMessage(id=ident, sender=AgentName("bob"), text=f"text {ident}", timestamp="t")
            await mail.post(ANN, sent)
            log.add_line("acknowledged", ident)

        await asyncio.gather(*(post_one(f"m{next(numbers)}") for _ in range(how_many)))

    await post_many(2)
    await post_many(3)
    await receive_batch(mail, log, 2)
    add_foreign_entries(home, log, ["from elsewhere"])
    await post_many(7)
    await receive_batch(mail, log, 4)
    await post_many(1)
    # More than the inbox has room for.
    add_foreign_entries(home, log, [f"surplus {number}" for number in range(7)])
    while await receive_batch(mail, log, 3):
        pass
    await post_many(1)
    await mail.aclose()


async def receive_batch(mail: FileMailboxStore, log: DeliveryLog, limit: int) -> bool:
    known = {ident for ident, _ in log.list_entries("received")}
    batch = await mail.take_unread(ANN, limit=limit)
    for each in batch:
        if each.id not in known:
            log.add_line("received", each.id, each.text)
    await mail.mark_read(ANN, [each.id for each in batch])
    return bool(batch)


def add_foreign_entries(home: Path, log: DeliveryLog, texts: list[str]) -> None:
    path = home / "teams" / "t" / "inboxes" / "ann.json"
    entries = json.loads(path.read_text())
    for text in texts:
        entries.append({"from": "eve", "text": text, "timestamp": "t", "read": False, "own": {"x": 1}})
    new = path.with_name("ann.json.tmp.00112233")
    new.write_text(json.dumps(entries, indent=1))
    new.replace(path)
    for text in texts:
        log.add_line("acknowledged by text", "", text)


async def find_faults(home: Path, notes: Path) -> list[str]:
    """Continue in a new process and return the faults."""
    since = time.monotonic()
    log, mail = DeliveryLog(notes), open_mailboxes(home)
    await mail.open_inbox(ANN)
    await mail.post(ANN, MailMessage(id="last", sender=AgentName("bob"), text="text last", timestamp="t"))
    if time.monotonic() - since > 5:
        return ["it took more than 5 s until the next one could write"]
    log.add_line("acknowledged", "last")
    json.loads((home / "teams" / "t" / "inboxes" / "ann.json").read_text())
    while await receive_batch(mail, log, 64):
        pass
    received = log.list_entries("received")
    ids, texts = [ident for ident, _ in received], [text for _, text in received]
    history = [each.id for each in await mail.read_history(ANN)]
    await mail.aclose()
    wrong = [f"lost: {ident}" for ident, _ in log.list_entries("acknowledged") if ident not in ids]
    wrong += [f"lost: {text}" for _, text in log.list_entries("acknowledged by text") if text not in texts]
    wrong += [f"doubled: {text}" for text in set(texts) if texts.count(text) > 1]
    wrong += [f"not in the history: {ident}" for ident in ids if history.count(ident) != 1]
    wrong += [f"in the history alone: {ident}" for ident in history if ident not in ids]
    own = [int(ident[1:]) for ident in ids if ident.startswith("m")]
    wrong += ["out of order"] if own != sorted(own) else []
    surplus = [text for text in texts if text.startswith("surplus")]
    wrong += ["foreign mail out of order"] if surplus != sorted(surplus) else []
    wrong += [f"left: {path}" for path in home.rglob("*.corrupt-*")]
    return wrong


def run_in_fork(body) -> tuple[int, bytes]:
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(theirs, json.dumps(body()).encode())
            os._exit(0)
        finally:
            os._exit(1)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        answer = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), answer


def main(directory: Path) -> None:
    deaths, wrong = 0, {}
    for half in (False, True):
        for moment in count(1):
            home, notes = directory / f"{half}-{moment}", directory / f"{half}-{moment}.notes"

            def run_until_killed(home=home, notes=notes, moment=moment, half=half):
                kill_at(moment, half=half)
                asyncio.run(run_scenario(home, notes))

            status, _ = run_in_fork(run_until_killed)
            if status not in (-9, 0):
                wrong[str(home)] = [f"it ended with {status}"]
                break
            notes.touch()
            checked, answer = run_in_fork(
                lambda home=home, notes=notes: asyncio.run(find_faults(home, notes))
            )
            found = json.loads(answer) if checked == 0 else ["the next one failed"]
            if found:
                wrong[home.name] = found
            if status == 0:
                break
            deaths += 1
    sys.stdout.write(json.dumps({"deaths": deaths, "wrong": wrong}))


main(Path(sys.argv[1]))
