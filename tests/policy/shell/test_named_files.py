"""Files that the words and redirections of a command name."""

from __future__ import annotations

from pathlib import Path

from shoal.policy.shell.command_analysis import UNKNOWN_PATH, analyze_shell_command

CORPUS = Path(__file__).parents[1] / "corpus" / "named_files.txt"


def describe_files(command: str) -> str:
    parts = analyze_shell_command(command).parts
    reads = dict.fromkeys(path for part in parts for path in part.reads)
    writes = dict.fromkeys(path for part in parts for path in part.writes)
    described = [
        f"{verb} {' '.join(paths)}".replace(UNKNOWN_PATH, "?")
        for verb, paths in (("reads", reads), ("writes", writes))
        if paths
    ]
    if not all(part.read_only for part in parts):
        described.append("more")
    return ", ".join(described) or "nothing"


def test_the_files_that_a_command_names_are_found() -> None:
    lines = [line for line in CORPUS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    expected = dict(line.split(" => ") for line in lines)
    assert len(expected) >= 200
    assert {command: describe_files(command) for command in expected} == expected
