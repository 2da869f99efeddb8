"""Environments for the peers: one each under `.bench-envs`, created again when requirements change."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / ".bench-envs"
_SECONDS = 600


class Peer(Struct, frozen=True, kw_only=True):
    name: str
    needs: Sequence[str]
    """For pip: the lowest versions that the script was written for."""

    @property
    def script(self) -> Path:
        return Path(__file__).with_name(f"with_{self.name.replace('-', '_')}.py")


class Environment(Struct, frozen=True, kw_only=True):
    peer: Peer
    python: Path
    missing: str = ""
    """Reason why the peer cannot be asked here."""


PEERS = (
    Peer(name="agno", needs=("agno>=3.1", "openai>=3.40")),
    Peer(name="smolagents", needs=("smolagents[openai]>=1.26",)),
    Peer(
        name="autogen",
        needs=("autogen-core>=0.7.5", "autogen-agentchat>=0.7.5", "autogen-ext[openai]>=0.7.5"),
    ),
    Peer(
        name="langgraph",
        needs=("langgraph>=1.2.20", "langchain>=1.4", "langchain-core>=1.7", "langchain-openai>=1.7"),
    ),
    Peer(name="pydantic-ai", needs=("pydantic-ai-slim[openai]>=2.60",)),
    Peer(name="openai-agents", needs=("openai-agents>=0.24",)),
)


def ready(
    peers: Sequence[Peer] = PEERS, *, make: bool, say: Callable[[str], None] = lambda _: None
) -> list[Environment]:
    """Return all environments, with a reason for each unusable one; create missing ones, two at a time."""
    with ThreadPoolExecutor(2) as workers:
        return list(workers.map(lambda peer: _ready(peer, make=make, say=say), peers))


def _ready(peer: Peer, *, make: bool, say: Callable[[str], None]) -> Environment:
    place = ENVIRONMENTS / peer.name
    python = place / "bin" / "python"
    if _stamped(place) == fingerprint(peer):
        return Environment(peer=peer, python=python)
    if not make:
        return Environment(peer=peer, python=python, missing="there is no environment (--peers makes it)")
    say(f"making an environment for {peer.name}: {', '.join(peer.needs)}")
    reason = _made(peer, place, python)
    if not reason:
        (place / "needs").write_text(fingerprint(peer))
    return Environment(peer=peer, python=python, missing=reason)


def _made(peer: Peer, place: Path, python: Path) -> str:
    """Create the environment; return the reason if that failed, else an empty string."""
    shutil.rmtree(place, ignore_errors=True)
    # This Python's own pip fills it: one for each environment would take longer than some of the libraries.
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-input"]
    for argv in ([sys.executable, "-m", "venv", "--without-pip", str(place)], [*pip, *peer.needs]):
        try:
            ran = subprocess.run(
                argv, check=False, capture_output=True, text=True, timeout=_SECONDS, env=_plain()
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"its environment could not be made: {error}"
        if ran.returncode:
            return f"its environment could not be made: {_last_word(ran.stderr or ran.stdout)}"
    return ""


def _last_word(said: str) -> str:
    errors = [line for line in said.splitlines() if line.startswith("ERROR")]
    lines = errors or said.splitlines() or ["it did not say why"]
    return lines[-1].removeprefix("ERROR: ").strip()


def _plain() -> dict[str, str]:
    """Return the environment variables for pip, without our Python path."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def fingerprint(peer: Peer) -> str:
    # Another Python, or another place, needs another environment.
    told = json.dumps([*peer.needs, sys.version, str(ENVIRONMENTS)])
    return hashlib.sha256(told.encode()).hexdigest()


def _stamped(place: Path) -> str:
    try:
        return (place / "needs").read_text()
    except OSError:
        return ""
