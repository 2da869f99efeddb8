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
    list_trust_decisions,
    parse_trust_decision,
    remove_project_trust,
    update_trust_decisions,
)

_SENT_PROJECT = "lead"


class ProjectTrustFile:
    """Trust file, read without a lock because it is replaced atomically; changed under a lock."""

    def __init__(self, home: Path) -> None:
        self.path = home / "shoal" / "trust.json"

    def get_trust_decision(self, project: Path, file: str) -> TrustDecision | None:
        """Return the decision on a file, or None; raise `StateFileError` if the trust file is invalid.

        A worktree below `.claude/worktrees` without its own decision has that of its project, and a checkout
        of a project on another machine has that of its lead: a decision holds only for the content that the
        user saw.
        """
        try:
            content = self._read_content()
            decision = parse_trust_decision(content, _get_project_trust_key(project), file)
            if decision is None and (owner := find_project_of_worktree(project)) is not None:
                decision = parse_trust_decision(content, _get_project_trust_key(owner), file)
            if decision is None and (sent := self._find_sent_decisions(project)) is not None:
                decision = parse_trust_decision(_read_if_exists(sent), _SENT_PROJECT, file)
        except ValueError as error:
            raise self._build_invalid_file_error(error) from error
        return decision

    def list_project_decisions(self, project: Path) -> dict[str, TrustDecision]:
        """Return the decisions on the files of a project. Raises `StateFileError`."""
        try:
            return list_trust_decisions(self._read_content(), _get_project_trust_key(project))
        except ValueError as error:
            raise self._build_invalid_file_error(error) from error

    def _find_sent_decisions(self, project: Path) -> Path | None:
        """Return the file with the decisions of the lead if a project is in a checkout on another machine."""
        checkouts = Path(os.path.realpath(self.path.parent / "cluster" / "checkouts"))
        place = Path(os.path.realpath(project))
        if checkouts not in place.parents:
            return None
        return get_sent_trust_file(checkouts / place.relative_to(checkouts).parts[0])

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
        return _read_if_exists(self.path)

    def _build_invalid_file_error(self, error: ValueError) -> StateFileError:
        message = f"{self.path} is not valid ({error}). Fix it, or remove it and trust your projects again."
        return StateFileError(message, path=self.path)


def store_sent_decisions(checkout: Path, decisions: Mapping[str, TrustDecision]) -> None:
    """Store the lead's decisions next to a checkout on another machine. Raises `StateFileError`."""
    path = get_sent_trust_file(checkout)
    try:
        write_file_atomically(path, update_trust_decisions(b"", _SENT_PROJECT, decisions), durable=False)
    except OSError as error:
        raise StateFileError(f"Cannot write {path}: {error.strerror}.", path=path) from error


def get_sent_trust_file(checkout: Path) -> Path:
    """Return the file with the decisions that the lead has sent for a checkout on another machine."""
    return checkout.with_name(f".{checkout.name}.trust")


def _read_if_exists(path: Path) -> bytes:
    try:
        return read_state_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError as error:
        raise StateFileError(f"Cannot read {path}: {error.strerror}.", path=path) from error


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
