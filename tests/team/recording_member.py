"""Entry point of a teammate's process that records in its directory which modules it has imported."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from shoal.app.session import member_main

RECORD = "late_imports.json"
"""Names of the modules that the process imported after the fork."""


def main(fd: int) -> None:
    shared = frozenset(sys.modules)
    try:
        member_main.main(fd)
    finally:
        Path(RECORD).write_text(json.dumps(sorted(set(sys.modules) - shared)))
