"""Another program that uses the same inboxes. It knows the published formats and locks, and nothing of Shoal.

`python foreign_program.py INBOX early|late|reader COUNT`: `early` writes in place and
gives no ids, `late` writes by rename and gives ids, `reader` consumes by removing, as a late owner does, and
prints what it got.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from pathlib import Path

inbox, behaviour, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
lock = inbox.with_name(inbox.name + ".lock")


def change_locked(change):
    deadline = time.monotonic() + 20
    while True:
        try:
            lock.mkdir()
            break
        except FileExistsError:
            if time.monotonic() > deadline:
                sys.exit("no lock")
            time.sleep(0.001)
    try:
        entries = json.loads(inbox.read_text())  # under the lock it is whole, or this fails
        changed = change(entries)
        if changed is not entries:
            write_inbox(json.dumps(changed, indent=2))
    finally:
        lock.rmdir()


def write_inbox(text):
    if behaviour == "early":
        with inbox.open("w") as file:
            half = len(text) // 2
            file.write(text[:half])
            file.flush()  # half a file is visible for a moment
            file.write(text[half:])
    else:
        new = inbox.with_name(f"{inbox.name}.tmp.{os.urandom(4).hex()}")
        new.write_text(text)
        new.replace(inbox)


def make_entry(number):
    made = {
        "from": behaviour,
        "text": f"{behaviour} {number}",
        "timestamp": "2026-02-13T10:11:35.247Z",
        "read": False,
    }
    if behaviour == "late":
        made |= {"msgV": 1, "msg_id": str(uuid.uuid4()), "type": "message", "extra": {"kept": [number]}}
    return made


if behaviour == "reader":
    got = []
    deadline = time.monotonic() + 30
    while len(got) < count and time.monotonic() < deadline:

        def consume(entries):
            got.extend(each["text"] for each in entries)
            return [] if entries else entries

        change_locked(consume)
        time.sleep(0.002)
    sys.stdout.write(json.dumps(got))
else:
    for number in range(count):
        change_locked(lambda entries, number=number: [*entries, make_entry(number)])
