"""`python -m tests.fuzz [--seconds N] [--only TARGET] [--seed N]`: exit 1 where a fault was found.

Each target is searched by atheris, which looks for inputs that reach new code. A fault that is found becomes
a line of `test_fuzz_regressions.py`.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from .fuzz_targets import TARGETS, TARGETS_BY_NAME, FuzzTarget, select_targets
from .guided_search import FIRST_ALTERED, import_atheris
from .seed_documents import TOKENS

_LONGEST_INPUT = 2_000
_INPUT_TIMEOUT = 60
"""Seconds after which one input counts as endless."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--only", choices=[*TARGETS, *TARGETS_BY_NAME], metavar="TARGET", help="see --list")
    parser.add_argument("--seed", type=int, default=0, help="0 takes one by chance")
    parser.add_argument("--list", action="store_true", help="print the targets and their functions")
    given = parser.parse_args()
    if given.list:
        for group, doors in TARGETS.items():
            print_line(f"{group}: {', '.join(door.name for door in doors)}")
        return
    import_atheris()
    targets = [given.only] if given.only else list(TARGETS)
    faulty = [target for target in targets if search_target(target, given.seconds, given.seed)]
    sys.exit(bool(faulty))


def print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def search_target(target: str, seconds: int, seed: int) -> bool:
    """Search a target and print the result; return True if a fault was found."""
    with tempfile.TemporaryDirectory(prefix="shoal-fuzz-") as place:
        corpus, faults, artifacts = Path(place, "corpus"), Path(place, "faults"), Path(place, "artifacts")
        artifacts.mkdir()
        write_corpus(corpus, select_targets(target))
        words = Path(place, "words")
        words.write_text(
            "".join(f'"{_escape_token(token)}"\n' for token in TOKENS if token and len(token) < 100)
        )
        flags = {
            "max_total_time": seconds,
            "seed": seed,
            "max_len": _LONGEST_INPUT,
            "dict": words,
            "timeout": _INPUT_TIMEOUT,
            "report_slow_units": _INPUT_TIMEOUT,
            "rss_limit_mb": 4096,
            "print_final_stats": 1,
            "artifact_prefix": f"{artifacts}/",
        }
        command = [sys.executable, "-m", f"{__package__}.guided_search", target, str(faults), str(corpus)]
        command += [f"-{name}={value}" for name, value in flags.items()]
        ended = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        found = [json.loads(line) for line in faults.read_text().splitlines()] if faults.exists() else []
        crashes = sorted(artifacts.iterdir())
        reached = re.findall(r"cov: (\d+)", ended.stderr)
        executed = re.search(r"number_of_executed_units: (\d+)", ended.stderr)
        print_line(
            f"{target}: {executed[1] if executed else 'no'} executions in {seconds} s, "
            f"{reached[-1] if reached else 'no'} branches, {len(found) + len(crashes)} faults"
        )
        for fault in found:
            print_line(
                f"  {fault['door']}: {' '.join(fault['place'])}: {fault['error']}\n    {fault['input']}"
            )
        for crash in crashes:
            print_line(f"  the process ended, or did not end ({crash.name}): {crash.read_bytes()!r}")
        if ended.returncode and not crashes:
            print_line(ended.stderr[-2_000:])
        return bool(found or crashes or ended.returncode)


def write_corpus(corpus: Path, targets: tuple[FuzzTarget, ...]) -> None:
    """Write the seeds of all targets; the first byte of an input selects its target."""
    corpus.mkdir()
    chance = random.Random(1)
    for number, door in enumerate(targets):
        choices = next(first for first in range(FIRST_ALTERED, 256) if first % len(targets) == number)
        for size in (40, 200, 800):
            (corpus / f"{door.name}-choices-{size}").write_bytes(bytes([choices]) + chance.randbytes(size))
        for at, seed in enumerate(door.seeds):
            (corpus / f"{door.name}-{at}").write_bytes(bytes([number]) + seed)


def _escape_token(token: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in token)


if __name__ == "__main__":
    main()
