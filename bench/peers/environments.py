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


class PeerLibrary(Struct, frozen=True, kw_only=True):
    name: str
    requirements: Sequence[str]
    """For pip: the lowest versions that the script was written for."""

    @property
    def script(self) -> Path:
        return Path(__file__).with_name(f"with_{self.name.replace('-', '_')}.py")


class PeerEnvironment(Struct, frozen=True, kw_only=True):
    peer: PeerLibrary
    python: Path
    missing: str = ""
    """Reason why the peer cannot be asked here."""


PEERS = (
    PeerLibrary(name="agno", requirements=("agno>=3.1", "openai>=3.40")),
    PeerLibrary(name="smolagents", requirements=("smolagents[openai]>=1.26",)),
    PeerLibrary(
        name="autogen",
        requirements=("autogen-core>=0.7.5", "autogen-agentchat>=0.7.5", "autogen-ext[openai]>=0.7.5"),
    ),
    PeerLibrary(
        name="langgraph",
        requirements=("langgraph>=1.2.20", "langchain>=1.4", "langchain-core>=1.7", "langchain-openai>=1.7"),
    ),
    PeerLibrary(name="pydantic-ai", requirements=("pydantic-ai-slim[openai]>=2.60",)),
    PeerLibrary(name="openai-agents", requirements=("openai-agents>=0.24",)),
)


def prepare_environments(
    peers: Sequence[PeerLibrary] = PEERS,
    *,
    create_missing: bool,
    print_progress: Callable[[str], None] = lambda _: None,
) -> list[PeerEnvironment]:
    """Return all environments, with a reason for each unusable one; create missing ones, two at a time."""
    with ThreadPoolExecutor(2) as workers:
        return list(
            workers.map(
                lambda peer: _prepare_environment(
                    peer, create_missing=create_missing, print_progress=print_progress
                ),
                peers,
            )
        )


def _prepare_environment(
    peer: PeerLibrary, *, create_missing: bool, print_progress: Callable[[str], None]
) -> PeerEnvironment:
    directory = ENVIRONMENTS / peer.name
    python = directory / "bin" / "python"
    if _read_stamp(directory) == compute_fingerprint(peer):
        return PeerEnvironment(peer=peer, python=python)
    if not create_missing:
        return PeerEnvironment(peer=peer, python=python, missing="there is no environment (--peers makes it)")
    print_progress(f"making an environment for {peer.name}: {', '.join(peer.requirements)}")
    reason = _create_environment(peer, directory, python)
    if not reason:
        (directory / "needs").write_text(compute_fingerprint(peer))
    return PeerEnvironment(peer=peer, python=python, missing=reason)


def _create_environment(peer: PeerLibrary, directory: Path, python: Path) -> str:
    """Create the environment; return the reason if that failed, else an empty string."""
    shutil.rmtree(directory, ignore_errors=True)
    # This Python's own pip fills it: one for each environment would take longer than some of the libraries.
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-input"]
    for argv in ([sys.executable, "-m", "venv", "--without-pip", str(directory)], [*pip, *peer.requirements]):
        try:
            result = subprocess.run(
                argv,
                check=False,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                env=_build_pip_environment(),
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"its environment could not be made: {error}"
        if result.returncode:
            return f"its environment could not be made: {_find_last_error(result.stderr or result.stdout)}"
    return ""


def _find_last_error(output: str) -> str:
    errors = [line for line in output.splitlines() if line.startswith("ERROR")]
    lines = errors or output.splitlines() or ["it did not say why"]
    return lines[-1].removeprefix("ERROR: ").strip()


def _build_pip_environment() -> dict[str, str]:
    """Return the environment variables for pip, without our Python path."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def compute_fingerprint(peer: PeerLibrary) -> str:
    # Another Python, or another place, needs another environment.
    description = json.dumps([*peer.requirements, sys.version, str(ENVIRONMENTS)])
    return hashlib.sha256(description.encode()).hexdigest()


def _read_stamp(directory: Path) -> str:
    try:
        return (directory / "needs").read_text()
    except OSError:
        return ""
