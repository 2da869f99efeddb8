"""Another program that writes into an inbox: it knows the file and its lock, and has no key.

`python foreign_writer.py INBOX`; the entries to append are a JSON array on standard input.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

inbox = Path(sys.argv[1])
lock = inbox.with_name(inbox.name + ".lock")
entries = json.load(sys.stdin)
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
    there = json.loads(inbox.read_text()) if inbox.exists() else []
    inbox.write_text(json.dumps([*there, *entries], indent=2))
finally:
    lock.rmdir()
