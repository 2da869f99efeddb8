"""The simple commands of a command line: their words, and the programs that run them."""

from __future__ import annotations

import shlex
from pathlib import Path

from shoal.policy.shell.command_analysis import SimpleShellCommand, analyze_shell_command

CORPUS = Path(__file__).parents[1] / "corpus" / "command_parts.txt"


def describe_part(part: SimpleShellCommand) -> str:
    words = " ".join("?" if word is None else shlex.quote(word) for word in part.words or part.argv or ())
    runners = f"{'/'.join(part.via)}: " if part.via else ""
    return f"{runners}{words or '-'}{'' if part.argv is not None else ' !'}"


def describe_command(command: str) -> str:
    analysis = analyze_shell_command(command.replace("⏎", "\n"))
    described = [*map(describe_part, analysis.parts), *(["UNCLEAR"] if analysis.trouble else [])]
    return ("; ".join(described) or "nothing").replace("\n", "⏎")


def test_the_simple_commands_of_a_line_are_found_with_their_words() -> None:
    lines = [line for line in CORPUS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    expected = dict(line.split(" => ") for line in lines)
    assert len(expected) >= 300
    assert {command: describe_command(command) for command in expected} == expected
