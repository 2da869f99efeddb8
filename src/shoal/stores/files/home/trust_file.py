"""Trust decisions about project settings, in `shoal/trust.json` of the home."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from shoal.core.errors import StateFileError
from shoal.stores.files.home.home_paths import (
    read_state_file,
    write_file_atomically,
)
from shoal.stores.files.locks.flocks import lock_file_for_update
from shoal.wire.trust_codec import (
    TrustDecision,
    parse_trust_decision,
    remove_project_trust,
    update_trust_decisions,
)


class ProjectTrustFile:
    """Trust file, read without a lock because it is replaced atomically; changed under a lock."""

    def __init__(self, home: Path) -> None:
        self.path = home / "shoal" / "trust.json"

    def get_trust_decision(self, project: Path, file: str) -> TrustDecision | None:
        """Return the decision on a file, or None; raise `StateFileError` if the trust file is invalid.

        A worktree below `.claude/worktrees` without its own decision has that of its project: a decision
        holds only for the content that the user saw.
        """
        try:
            content = self._read_content()
            decision = parse_trust_decision(content, _get_project_trust_key(project), file)
            if decision is None and (owner := find_project_of_worktree(project)) is not None:
                decision = parse_trust_decision(content, _get_project_trust_key(owner), file)
        except ValueError as error:
            raise self._build_invalid_file_error(error) from error
        return decision

    def store_trust_decisions(self, project: Path, decisions: Mapping[str, TrustDecision | None]) -> None:
        """Store decisions on files of a project, None to remove one. Raises `StateFileError`."""
        with lock_file_for_update(self.path):
            try:
                content = update_trust_decisions(
                    self._read_content(), _get_project_trust_key(project), decisions
                )
            except ValueError as error:
                raise self._build_invalid_file_error(error) from error
            write_file_atomically(self.path, content, durable=True)

    def remove_project_decisions(self, project: Path) -> None:
        """Remove every decision on a project. Raises `StateFileError`."""
        with lock_file_for_update(self.path):
            try:
                content = remove_project_trust(self._read_content(), _get_project_trust_key(project))
            except ValueError as error:
                raise self._build_invalid_file_error(error) from error
            write_file_atomically(self.path, content, durable=True)

    def _read_content(self) -> bytes:
        try:
            return read_state_file(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return b""
        except OSError as error:
            raise StateFileError(f"Cannot read {self.path}: {error.strerror}.", path=self.path) from error

    def _build_invalid_file_error(self, error: ValueError) -> StateFileError:
        message = f"{self.path} is not valid ({error}). Fix it, or remove it and trust your projects again."
        return StateFileError(message, path=self.path)


def _get_project_trust_key(project: Path) -> str:
    """Return the real path; a path that is not valid text is stored as hex bytes."""
    real = os.path.realpath(project)
    try:
        real.encode()
    except UnicodeEncodeError:
        return f"bytes:{os.fsencode(real).hex()}"
    return real


def find_project_of_worktree(directory: Path) -> Path | None:
    """Return the project of a worktree below its `.claude/worktrees`; None for any other directory."""
    parents = Path(os.path.realpath(directory)).parents
    is_worktree = len(parents) > 2 and parents[0].name == "worktrees" and parents[1].name == ".claude"
    return parents[2] if is_worktree else None
