"""Prints which rules of docs/spec.md the last full test run showed, and by which tests.

Usage: python3 scripts/spec_table.py [--json] [--missing]
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RULES = ROOT / "docs" / "spec.md"
REPORT = ROOT / ".spec-report.json"

_ROW = re.compile(r"^\| ([A-Z]+-\d{2,3}) \| (.+) \|$")
_DEFERRED = re.compile(r"^- ([A-Z]+-\d{2,3}): (.+)$")


def read_rules(path: Path = RULES) -> dict[str, str]:
    """Return every rule's id and sentence, in the order of the document."""
    return _read_matches(_ROW, path)


def read_deferred(path: Path = RULES) -> dict[str, str]:
    """Return the rules that are deferred, with the reasons."""
    return _read_matches(_DEFERRED, path)


def _read_matches(pattern: re.Pattern[str], path: Path) -> dict[str, str]:
    lines = (pattern.match(line) for line in path.read_text(encoding="utf-8").splitlines())
    return {line[1]: line[2] for line in lines if line}


def read_report(path: Path = REPORT) -> dict[str, Any] | None:
    """Return the report of the last full run: `when`, counts, and for each rule the tests that showed it."""
    try:
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return report


def build_rows(
    rules: dict[str, str], report: dict[str, Any] | None, deferred: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    """Build the table; `deferred` maps a rule to the reason why it is not shown yet."""
    shown: dict[str, list[str]] = report["rules"] if report else {}
    reasons = deferred or {}
    return [
        {
            "id": rule,
            "shown": bool(shown.get(rule)),
            "tests": shown.get(rule, []),
            "later": None if shown.get(rule) else reasons.get(rule),
            "rule": sentence,
        }
        for rule, sentence in rules.items()
    ]


def format_table(table: list[dict[str, Any]], report: dict[str, Any] | None, *, missing: bool) -> str:
    lines = []
    for row in table:
        if row["shown"] and not missing:
            first, *others = (name.removeprefix("tests/") for name in row["tests"])
            lines.append(f"{row['id']:<8} shown      {first}")
            lines += [f"{'':<20}{other}" for other in others]
        elif row["later"]:
            lines.append(f"{row['id']:<8} later      {shorten_sentence(row['rule'])}")
            lines.append(f"{'':<20}Why: {row['later']}")
        elif not row["shown"]:
            lines.append(f"{row['id']:<8} not shown  {shorten_sentence(row['rule'])}")
    return "\n".join([*lines, "", format_counts(table), describe_report(report)])


def format_counts(table: list[dict[str, Any]]) -> str:
    shown = sum(row["shown"] for row in table)
    later = [row["id"] for row in table if row["later"]]
    deferred_text = f", {len(later)} left for later ({', '.join(later)})" if later else ""
    return f"{shown} of {len(table)} rules shown{deferred_text}, {len(table) - shown - len(later)} not shown."


def describe_report(report: dict[str, Any] | None) -> str:
    if report is None:
        return "There is no full test run yet. Run: make test-all"
    when = datetime.fromisoformat(report["when"]).astimezone()
    passed, failed = report["passed"], report["failed"]
    return f"From the full test run of {when:%Y-%m-%d %H:%M:%S %Z}: {passed} passed, {failed} failed."


def shorten_sentence(sentence: str, width: int = 90) -> str:
    return sentence if len(sentence) <= width else sentence[: width - 1].rstrip() + "…"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the whole table as JSON")
    parser.add_argument("--missing", action="store_true", help="list only the rules that are not shown")
    options = parser.parse_args(argv)
    report = read_report()
    table = build_rows(read_rules(), report, read_deferred())
    if options.json:
        when = report["when"] if report else None
        shown_rows = [row for row in table if not (options.missing and row["shown"])]
        print(json.dumps({"when": when, "rules": shown_rows}, indent=2, ensure_ascii=False))
    else:
        print(format_table(table, report, missing=options.missing))
    return 0


if __name__ == "__main__":
    # `make spec | head` ends quietly.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main(sys.argv[1:]))
