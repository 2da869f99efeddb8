"""The command corpora of these tests, and the simplest engine that could use an analysis."""

from __future__ import annotations

from pathlib import Path

from shoal.policy.shell.command_analysis import ShellCommandAnalysis, SimpleShellCommand

_DIRECTORY = Path(__file__).parents[1] / "policy/corpus"
_CHARACTER_MAP = str.maketrans({"⏎": "\n", "␍": "\r", "␀": "\0", "⇥": "\t", "␛": "\x1b", "⍽": "\xa0"})


def load_harmless() -> list[str]:
    return [command for _, command in _load_lines("harmless.txt")]


def load_bypasses() -> list[tuple[tuple[str, ...], str]]:
    """Return each attempt with the rules that are in force for it."""
    return _load_lines("bypass.txt")


def load_evasions() -> list[tuple[tuple[str, ...], str]]:
    """Return each attempt with the rules that forbid it."""
    return _load_lines("evasion.txt")


def load_outside_reads(secret: Path) -> list[str]:
    return [command.replace("SECRET", str(secret)) for _, command in _load_lines("outside_reads.txt")]


def load_protected_writes(secret: Path) -> list[str]:
    return [command.replace("SECRET", str(secret)) for _, command in _load_lines("protected_writes.txt")]


def _load_lines(name: str) -> list[tuple[tuple[str, ...], str]]:
    rules: tuple[str, ...] = ()
    found: list[tuple[tuple[str, ...], str]] = []
    for line in (_DIRECTORY / name).read_text(encoding="utf-8").split("\n"):
        if line.startswith(("allow:", "deny:")):
            rules = tuple(rule for rule in line.partition(":")[2].strip().split(", ") if rule)
        elif line and not line.startswith("#"):
            found.append((rules, line.translate(_CHARACTER_MAP)))
    return found


def runs_without_asking(analysis: ShellCommandAnalysis, rules: tuple[str, ...] = ()) -> bool:
    return analysis.trouble is None and all(
        not part.writes and (part.read_only or _is_covered(part, rules)) for part in analysis.parts
    )


def _is_covered(part: SimpleShellCommand, rules: tuple[str, ...]) -> bool:
    for rule in rules:
        pattern = rule.removeprefix("Bash(").removesuffix(")")
        words = tuple(pattern.removesuffix(":*").split())
        if part.argv is not None and (
            part.argv[: len(words)] == words if pattern.endswith(":*") else part.argv == words
        ):
            return True
    return False
