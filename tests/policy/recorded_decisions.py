"""Decisions on the documented calls, and on the same calls under other settings, with their reasons.

The documentation promises only that a dangerous call is not allowed. These records show what else a change
of the analysis alters. SHOAL_UPDATE_SNAPSHOTS=1 writes them again; read the difference before you commit it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import shorten

import msgspec
from documented_cases import DocumentedCase, create_case_engine, iter_documented_cases
from permission_helpers import decide_call, name_decision

from shoal.policy.permission_engine import PermissionEngine

UPDATE_RECORD = bool(os.environ.get("SHOAL_UPDATE_SNAPSHOTS"))
RECORD = Path(__file__).parent / "corpus" / "decisions.json"
CORPORA = (
    "independent.txt",
    "independent_again.txt",
    *(f"fresh_{number}.txt" for number in range(1, 29)),
    "similar_commands.txt",
)
GROUPS = 6
"""The corpora are decided in so many tests."""
_OTHER_SETTINGS = (
    "mode=default ; allow=Bash",
    "mode=acceptEdits ; deny=Edit(src/**) Bash(git push:*)",
    "mode=bypassPermissions ; deny=Bash(touch:*) Bash(rm:*) ; ask=Bash(git:*)",
    "mode=default",
    "mode=bypassPermissions ; deny=Read(.env) Read(secrets/**) Edit(docs/**)",
    "mode=dontAsk ; allow=Bash(git:*) Bash(npm:*) Bash(python3:*) Read(src/**)",
    "mode=plan ; allow=Bash(make:*)",
)
_MAX_LENGTH = 80
_CHANGING_PLACES = re.compile(r"/proc/self/|/dev/fd/|\$HOME/x/\.\.")
"""Paths that lead somewhere else in each run; so do those of the project."""


class RecordedDecisions(msgspec.Struct, forbid_unknown_fields=True):
    """What was decided for each case of a corpus, in order."""

    outcomes: dict[str, str] = {}
    """Decision and reason by key."""
    corpora: dict[str, list[str]] = {}
    """Lines of keys by corpus."""

    def list_outcomes(self, corpus: str) -> list[str]:
        keys = " ".join(self.corpora[corpus]).split()
        return [self.outcomes[key] for key in keys]

    def set_outcomes(self, corpus: str, outcomes: list[str]) -> None:
        keys = [_compute_key(each) for each in outcomes]
        self.outcomes |= dict(zip(keys, outcomes, strict=True))
        self.corpora[corpus] = [" ".join(keys[start : start + 16]) for start in range(0, len(keys), 16)]


def load_record() -> RecordedDecisions:
    if not RECORD.exists():
        return RecordedDecisions()
    return msgspec.json.decode(RECORD.read_bytes(), type=RecordedDecisions)


def save_record(record: RecordedDecisions) -> None:
    used = set(" ".join(line for lines in record.corpora.values() for line in lines).split())
    record.outcomes = {key: each for key, each in record.outcomes.items() if key in used}
    text = json.dumps(msgspec.to_builtins(record), ensure_ascii=False, indent=0, sort_keys=True)
    RECORD.write_text(f"{text}\n", encoding="utf-8")


def list_corpora(group: int) -> tuple[str, ...]:
    return CORPORA[group::GROUPS]


def iter_outcomes(corpus: str, project: Path) -> Iterator[tuple[DocumentedCase, str]]:
    """Decide the calls of a corpus, each under its own settings and under others."""
    engines: dict[str, PermissionEngine] = {}
    for number, case in enumerate(iter_documented_cases(corpus, project)):
        for setting in (case.setting, _OTHER_SETTINGS[number % len(_OTHER_SETTINGS)]):
            if setting not in engines:
                engines[setting] = create_case_engine(project, setting)
            placed = case._replace(setting=setting)
            yield placed, _describe_decision(engines[setting], placed, project)


def _describe_decision(engine: PermissionEngine, case: DocumentedCase, project: Path) -> str:
    decision = decide_call(engine, case.tool, **case.arguments)
    given = json.dumps(case.arguments)
    if str(project.parent) in given or _CHANGING_PLACES.search(given):
        return name_decision(decision)
    reason = getattr(decision, "reason", "")
    command = str(case.arguments.get("command", ""))
    for text, shown in ((command, "COMMAND"), (str(project.parent), "PARENT"), (str(Path.home()), "HOME")):
        reason = reason.replace(text, shown) if text else reason
    words = [name_decision(decision), getattr(decision, "rule", "") or "", reason]
    return shorten(" ".join(words), _MAX_LENGTH, placeholder=" …")


def _compute_key(outcome: str) -> str:
    return hashlib.sha256(outcome.encode()).hexdigest()[:8]
