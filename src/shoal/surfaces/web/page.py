"""A run as one self-contained HTML page: its frames, its conversations, and the program that shows them.

It needs no server and no network.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from pathlib import Path
from typing import Any

from shoal.app.outside.conversations import conversation_path
from shoal.app.outside.watching import Run
from shoal.app.picture.picture import drawn
from shoal.core.entries import Compacted, Rewound, Said
from shoal.core.ids import LEAD, AgentId
from shoal.core.secrets import Secrets
from shoal.stores.files.journal import read_journal
from shoal.surfaces.web.blocks import entry_shown
from shoal.surfaces.web.replay import steps
from shoal.wire.content import dump
from shoal.wire.transcript import read_line

MOST_FRAMES = 1_000

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; script-src {script}; \
style-src {style}; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1, viewport-fit=cover">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>Shoal: {title}</title>
<style>{css}</style>
</head>
<body>
<div id="app"></div>
<noscript>This page shows a run of Shoal, and needs JavaScript for that.</noscript>
<script type="application/json" id="shoal-export">{data}</script>
<script>{program}</script>
</body>
</html>
"""


def exported(run: Run) -> dict[str, Any]:
    """Return everything stored about a run as data: the run, its replay frames, and its transcripts."""
    picture = drawn(read_journal(run.journal))
    agents = [AgentId(row.id) for row in picture.agents()] or [LEAD]
    cwd = picture.run.cwd
    said = {agent: _entries(conversation_path(run, cwd, agent), agent) for agent in agents}
    return {
        "run": picture.run,
        "frames": list(steps(run, MOST_FRAMES)),
        "transcripts": {agent: entries for agent, entries in said.items() if entries},
    }


def page(run: Run, secrets: Secrets) -> bytes:
    """Return the page; secrets are redacted, as in the journal."""
    found = exported(run)
    static = files("shoal.surfaces.web") / "static"
    css, program = ((static / name).read_text("utf-8") for name in ("app.css", "app.js"))
    program = program.replace("</script", "<\\/script")
    # In JSON `<` occurs only inside strings, where it can be escaped; so nothing can end the element.
    data = secrets.redacted_bytes(dump(found)).decode().replace("<", "\\u003c")
    title = found["run"].prompt or run.session
    return _PAGE.format(
        script=_hashed(program),
        style=_hashed(css),
        title=_text(title[:80]),
        css=css,
        data=data,
        program=program,
    ).encode()


def _entries(path: Path, agent: AgentId) -> list[dict[str, Any]]:
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError:
        return []
    shown = []
    for number, line in enumerate(lines):
        try:
            read = read_line(line)
        except ValueError:
            continue
        whose = "" if agent == LEAD else agent
        if isinstance(read.entry, Said | Compacted | Rewound) and read.agent == whose:
            shown.append(entry_shown(number, read.entry, whole=True))
    return shown


def _hashed(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
