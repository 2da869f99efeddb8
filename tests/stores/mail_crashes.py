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
from shoal.core.ids import Ids
from shoal.core.mail import Mail
from shoal.core.names import AgentName, TeamName
from shoal.stores.files import inbox_file, overflow, renaming
from shoal.stores.files.mailboxes import FileMailboxes

# A small window, so that a short scenario fills it, overflows, moves up and archives; and mail that has moved
# up is cut from the overflow at once.
inbox_file.MOST_UNREAD, inbox_file.MOST_READ = 4, 2
overflow._WORTH_SHRINKING = 1
ANN = AgentName("ann")
CHANGES = ("write", "pwrite", "ftruncate", "rename", "unlink", "link", "mkdir", "rmdir", "utime")


def boxes(home: Path) -> FileMailboxes:
    return FileMailboxes(home, TeamName("t"), clock=SystemClock(), ids=Ids())


class Notes:
    """Records what an agent would have in its transcript, and what its senders were told. It does not die."""

    write = staticmethod(os.write)

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def add(self, kind: str, ident: str, text: str = "") -> None:
        self.write(self.fd, json.dumps([kind, ident, text]).encode() + b"\n")

    def all(self, kind: str) -> list[tuple[str, str]]:
        lines = [json.loads(line) for line in self.path.read_text().splitlines()]
        return [(ident, text) for found, ident, text in lines if found == kind]


def die_at(moment: int, *, half: bool) -> None:
    """Kill this process just before its n-th change; or, with `half`, in the middle of its n-th write."""
    counter = count(1)

    def deadly(call, is_write):
        def changed(*args, **how):
            # Half-done calls exist for writes alone: all others are the same as without `half`.
            if (is_write or not half) and next(counter) == moment:
                if half:
                    call(args[0], args[1][: len(args[1]) // 2], *args[2:], **how)
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **how)

        return changed

    for name in CHANGES:
        setattr(os, name, deadly(getattr(os, name), name in ("write", "pwrite")))
    renaming._renamed = deadly(renaming._renamed, False)


async def story(home: Path, notes: Path) -> None:
    """Post until the inbox overflows, add a foreign entry, take and mark; note each acknowledgement."""
    told = Notes(notes)
    mail = boxes(home)
    await mail.open(ANN)
    numbers = count()

    async def post(how_many: int) -> None:
        async def one(ident: str) -> None:
            sent = Mail(id=ident, sender=AgentName("bob"), text=f"text {ident}", timestamp="t")
            await mail.post(ANN, sent)
            told.add("acknowledged", ident)

        await asyncio.gather(*(one(f"m{next(numbers)}") for _ in range(how_many)))

    await post(2)
    await post(3)
    await receive(mail, told, 2)
    foreign_entry(home)
    told.add("acknowledged by text", "", "from elsewhere")
    await post(7)
    await receive(mail, told, 4)
    await post(1)
    while await receive(mail, told, 3):
        pass
    await post(1)
    await mail.aclose()


async def receive(mail: FileMailboxes, told: Notes, limit: int) -> bool:
    known = {ident for ident, _ in told.all("received")}
    batch = await mail.take(ANN, limit=limit)
    for each in batch:
        if each.id not in known:
            told.add("received", each.id, each.text)
    await mail.mark(ANN, [each.id for each in batch])
    return bool(batch)


def foreign_entry(home: Path) -> None:
    path = home / "teams" / "t" / "inboxes" / "ann.json"
    entries = json.loads(path.read_text())
    entries.append(
        {"from": "eve", "text": "from elsewhere", "timestamp": "t", "read": False, "own": {"x": 1}}
    )
    new = path.with_name("ann.json.tmp.00112233")
    new.write_text(json.dumps(entries, indent=1))
    new.replace(path)


async def faults_after(home: Path, notes: Path) -> list[str]:
    """Continue in a new process and return the faults."""
    since = time.monotonic()
    told, mail = Notes(notes), boxes(home)
    await mail.open(ANN)
    await mail.post(ANN, Mail(id="last", sender=AgentName("bob"), text="text last", timestamp="t"))
    if time.monotonic() - since > 5:
        return ["it took more than 5 s until the next one could write"]
    told.add("acknowledged", "last")
    json.loads((home / "teams" / "t" / "inboxes" / "ann.json").read_text())
    while await receive(mail, told, 64):
        pass
    received = told.all("received")
    ids, texts = [ident for ident, _ in received], [text for _, text in received]
    history = [each.id for each in await mail.history(ANN)]
    await mail.aclose()
    wrong = [f"lost: {ident}" for ident, _ in told.all("acknowledged") if ident not in ids]
    wrong += [f"lost: {text}" for _, text in told.all("acknowledged by text") if text not in texts]
    wrong += [f"doubled: {text}" for text in set(texts) if texts.count(text) > 1]
    wrong += [f"not in the history: {ident}" for ident in ids if history.count(ident) != 1]
    wrong += [f"in the history alone: {ident}" for ident in history if ident not in ids]
    own = [int(ident[1:]) for ident in ids if ident.startswith("m")]
    wrong += ["out of order"] if own != sorted(own) else []
    wrong += [f"left: {path}" for path in home.rglob("*.corrupt-*")]
    return wrong


def child(body) -> tuple[int, bytes]:
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

            def doomed(home=home, notes=notes, moment=moment, half=half):
                die_at(moment, half=half)
                asyncio.run(story(home, notes))

            status, _ = child(doomed)
            if status not in (-9, 0):
                wrong[str(home)] = [f"it ended with {status}"]
                break
            notes.touch()
            checked, answer = child(lambda home=home, notes=notes: asyncio.run(faults_after(home, notes)))
            found = json.loads(answer) if checked == 0 else ["the next one failed"]
            if found:
                wrong[home.name] = found
            if status == 0:
                break
            deaths += 1
    sys.stdout.write(json.dumps({"deaths": deaths, "wrong": wrong}))


main(Path(sys.argv[1]))
