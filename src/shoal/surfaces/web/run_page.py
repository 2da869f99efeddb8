"""A run as one self-contained HTML page: its frames, its conversations, and the program that shows them.

It needs no server and no network.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from pathlib import Path
from typing import Any

from shoal.app.run_access.conversation_path import find_agent_transcript_path
from shoal.app.run_access.run_handle import RunHandle
from shoal.app.run_view.run_view import build_run_view
from shoal.core.conversation.transcript_entries import (
    TranscriptCompactionMarker,
    TranscriptMessageEntry,
    TranscriptRewindMarker,
)
from shoal.core.ids import LEAD_ID, AgentId
from shoal.core.text.redaction import SecretRedactor
from shoal.stores.files.home.home_paths import read_state_file
from shoal.surfaces.web.entry_blocks import render_transcript_entry
from shoal.surfaces.web.run_replay import iter_replay_frames
from shoal.wire.json_codec import encode_json
from shoal.wire.transcript_codec import parse_transcript_line

MOST_FRAMES = 1_000

_PAGE = (
    '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta '
    'http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; script-src '
    "{script}; style-src {style}; base-uri 'none'; form-action 'none'\">\n<meta name=\"viewport\" "
    'content="width=device-width, initial-scale=1, viewport-fit=cover">\n<meta name="color-scheme" '
    'content="light dark">\n<meta name="referrer" content="no-referrer">\n<title>Shoal: {title}</title>\n'
    '<style>{css}</style>\n</head>\n<body>\n<div id="app"></div>\n<noscript>This page shows a Shoal run '
    'and needs JavaScript.</noscript>\n<script type="application/json" id="shoal-export">{data}</script>\n'
    "<script>{program}</script>\n</body>\n</html>\n"
)


def export_run_data(run: RunHandle) -> dict[str, Any]:
    """Return everything stored about a run as data: the run, its replay frames, and its transcripts."""
    run_view = build_run_view(run.read_journal())
    agents = [AgentId(row.id) for row in run_view.iter_agent_rows()] or [LEAD_ID]
    cwd = run_view.run.cwd
    entries_by_agent = {
        agent: _read_rendered_entries(find_agent_transcript_path(run, cwd, agent), agent) for agent in agents
    }
    return {
        "run": run_view.run,
        "frames": list(iter_replay_frames(run, MOST_FRAMES)),
        "transcripts": {agent: entries for agent, entries in entries_by_agent.items() if entries},
    }


def render_run_page(run: RunHandle, secrets: SecretRedactor) -> bytes:
    """Return the page; secrets are redacted, as in the journal."""
    run_export = export_run_data(run)
    static_directory = files("shoal.surfaces.web") / "static"
    css, program = ((static_directory / name).read_text("utf-8") for name in ("app.css", "app.js"))
    program = program.replace("</script", "<\\/script")
    # In JSON `<` occurs only inside strings, where it can be escaped; so nothing can end the element.
    data = secrets.redact_bytes(encode_json(run_export)).decode().replace("<", "\\u003c")
    title = secrets.redact_text(run_export["run"].prompt or run.session)
    return _PAGE.format(
        script=_hash_for_csp(program),
        style=_hash_for_csp(css),
        title=_escape_html(title[:80]),
        css=css,
        data=data,
        program=program,
    ).encode()


def _read_rendered_entries(path: Path, agent: AgentId) -> list[dict[str, Any]]:
    try:
        lines = read_state_file(path).split(b"\n")
    except OSError:
        return []
    rendered_entries = []
    for number, line in enumerate(lines):
        try:
            parsed_line = parse_transcript_line(line)
        except ValueError:
            continue
        subagent = "" if agent == LEAD_ID else agent
        if (
            isinstance(
                parsed_line.entry,
                TranscriptMessageEntry | TranscriptCompactionMarker | TranscriptRewindMarker,
            )
            and parsed_line.agent == subagent
        ):
            rendered_entries.append(render_transcript_entry(number, parsed_line.entry, whole=True))
    return rendered_entries


def _hash_for_csp(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _escape_html(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
