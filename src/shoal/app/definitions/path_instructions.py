"""Instructions of subdirectories, and rules about some files: an agent gets them with a file that it uses."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from shoal.app.definitions.instructions import (
    InstructionExclusions,
    InstructionFile,
    InstructionReader,
    LoadedInstructionFiles,
    format_instruction_files,
)
from shoal.app.model_notices import format_session_notice
from shoal.app.settings.project_directories import iter_project_directories
from shoal.core.errors import WorkspaceError
from shoal.core.extensions.instruction_files import DeliveredInstructionFile
from shoal.core.ports import Workspace
from shoal.wire.notification_text import format_system_reminder


class UnreadableFileFilterSource(Protocol):
    def build_unreadable_file_filter(self, tool: str, top: str) -> Callable[[str], bool]: ...


class PathInstructionFactory(Struct, frozen=True, kw_only=True):
    """Instructions that the agents of a session share: the files of every prompt, and the rules."""

    project: Path
    home: Path
    loaded: LoadedInstructionFiles
    max_chars: int
    exclusions: InstructionExclusions

    def create_path_instructions(
        self, workspace: Workspace, permissions: UnreadableFileFilterSource
    ) -> AgentPathInstructions:
        return AgentPathInstructions(self, workspace, permissions)


class AgentPathInstructions:
    def __init__(
        self, shared: PathInstructionFactory, workspace: Workspace, permissions: UnreadableFileFilterSource
    ) -> None:
        self._shared = shared
        self._workspace = workspace
        self._permissions = permissions
        self._used_files: list[str] = []
        self._checked_directories: set[str] = set()
        self._delivered: set[Path] = set()
        self._rules = {rule.path: rule for rule in shared.loaded.rules}

    def add_used_file(self, path: str) -> None:
        self._used_files.append(path)

    def take_new_text(self) -> tuple[str, tuple[DeliveredInstructionFile, ...]]:
        if not self._used_files:
            return "", ()
        files: list[InstructionFile] = []
        used, self._used_files = self._used_files, []
        for path in used:
            try:
                file = os.path.realpath(self._workspace.resolve_path(path))
            except WorkspaceError:
                continue
            files += self._read_directories_of(file)
            files += self._read_rules_about(file)
        if not files:
            return "", ()
        text = format_session_notice("path_instructions", files=format_instruction_files(files))
        return format_system_reminder(text), tuple(map(describe_instruction_file, files))

    def forget_delivered(self) -> None:
        self._checked_directories.clear()
        self._delivered.clear()

    def copy_delivered(self, other: AgentPathInstructions) -> None:
        """Count everything as delivered that the agent whose conversation this one continues has received."""
        self._checked_directories |= other._checked_directories
        self._delivered |= other._delivered
        self._rules |= other._rules

    def _read_directories_of(self, file: str) -> tuple[InstructionFile, ...]:
        root = os.path.realpath(self._workspace.root)
        relative = Path(file).parent
        if not relative.is_relative_to(root):
            return ()
        reader: InstructionReader | None = None
        directory = Path(root)
        for name in relative.relative_to(root).parts:
            directory /= name
            if str(directory) not in self._checked_directories:
                self._checked_directories.add(str(directory))
                reader = reader or self._create_reader("nested_traversal")
                reader.read_directory(directory)
                reader.read_project_rules(directory)
        return () if reader is None else self._deliver_files(reader)

    def _read_rules_about(self, file: str) -> tuple[InstructionFile, ...]:
        rules = [rule for rule in self._rules.values() if rule.path not in self._delivered]
        if not rules:
            return ()
        reader = self._create_reader("path_glob_match")
        for rule in rules:
            if any(map(rule.matches_file, self._list_project_paths(file))):
                self._delivered.add(rule.path)
                reader.read_file_with_imports(rule.path, rule.owner)
        return self._deliver_files(reader)

    def _list_project_paths(self, file: str) -> list[str]:
        """Return the file and, for one in a worktree, the same file in the project."""
        root, project = os.path.realpath(self._workspace.root), os.path.realpath(self._shared.project)
        if root == project or not file.startswith(f"{root}/"):
            return [file]
        return [file, project + file.removeprefix(root)]

    def _create_reader(self, reason: Literal["nested_traversal", "path_glob_match"]) -> InstructionReader:
        shared, root = self._shared, self._workspace.root
        reader = InstructionReader(
            root=root,
            # A rule may be above the directory of the session, at the root of the repository.
            extra_roots=tuple(iter_project_directories(shared.project)),
            home=shared.home,
            is_hidden=self._permissions.build_unreadable_file_filter("Read", str(root)),
            max_chars=shared.max_chars,
            exclusions=shared.exclusions,
            reason=reason,
        )
        reader.skip_files(each.path for each in shared.loaded.files)
        reader.skip_files(self._delivered - self._rules.keys())
        return reader

    def _deliver_files(self, reader: InstructionReader) -> tuple[InstructionFile, ...]:
        found = reader.fit_files_to_size_limit()
        self._rules |= {rule.path: rule for rule in found.rules}
        self._delivered |= {each.path for each in found.files}
        return found.files


def describe_instruction_file(file: InstructionFile) -> DeliveredInstructionFile:
    return DeliveredInstructionFile(
        file_path=str(file.path), memory_type=file.memory_type, load_reason=file.reason
    )
