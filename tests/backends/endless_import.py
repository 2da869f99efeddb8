"""Module whose import never ends; it first opens the pipe in PIPE, so that a test knows that it began."""

from __future__ import annotations

import os
import signal
from pathlib import Path

Path(os.environ["ENDLESS_IMPORT_PIPE"]).write_text("importing")
while True:
    signal.pause()
