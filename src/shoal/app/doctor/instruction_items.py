"""Instructions, rules, output styles and other files, with what Shoal does with each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from shoal.app.definitions.instructions import (
    InstructionReader,
    LoadedInstructionFiles,
    list_managed_instruction_files,
    load_instructions,
)
from shoal.app.definitions.output_styles import choose_output_style, list_output_style_files
from shoal.app.definitions.project_memory import read_instruction_exclusions
from shoal.app.doctor.claude_item import ClaudeItem
from shoal.app.settings.claude_keys import KeyUse
from shoal.app.settings.project_directories import iter_project_directories
from shoal.app.settings.settings import Settings
from shoal.core.text.filenames import escape_filename
from shoal.workspaces.git_paths import contains_git_repository
from shoal.workspaces.worktree_extras import INCLUDE_FILE

OTHER_FILES = {
    "keybindings.json": "Shoal's key bindings are fixed",
    "loop.md": "ask the agent to schedule the prompt",
    "scheduled_tasks.json": "ask the agent to schedule the prompts",
    "themes/*.json": "custom themes have no effect",
}
"""Files below `.claude` that Shoal does not read, and what to do."""
_NESTED_ADVICE = "an agent gets it when it uses a file in that directory"
_INSTRUCTIONS_OFF = "shoal.instructions is false"
_SKIPPED_DIRECTORIES = frozenset({"node_modules", "__pycache__", "venv"})
_MAX_DIRECTORIES = 2_000


def load_project_instructions(
    settings: Settings, cwd: Path, is_hidden: Callable[[str], bool]
) -> LoadedInstructionFiles:
    return load_instructions(
        cwd=cwd,
        home=settings.home,
        is_hidden=is_hidden,
        exclusions=read_instruction_exclusions(settings),
        managed=list_managed_instruction_files(),
    )


def list_instruction_items(
    settings: Settings, instructions: LoadedInstructionFiles, advice: str = ""
) -> Iterator[ClaudeItem]:
    """Yield the files that are read, with `advice`, and those that are left out."""
    is_on = settings.own.instructions
    use: KeyUse = "used" if is_on else "not used"
    other_notes = [*instructions.notes]
    for file in instructions.files:
        name = escape_filename(file.path)
        about = [note for note in other_notes if note.startswith((f"{name} ", f"{name}: "))]
        other_notes = [note for note in other_notes if note not in about]
        remark = " ".join(about) or advice
        yield ClaudeItem(
            file=str(file.path), item="instructions", use=use, advice=remark if is_on else _INSTRUCTIONS_OFF
        )
    for rule in instructions.rules:
        remark = f"an agent gets it when it uses a file that matches {', '.join(rule.patterns)}"
        yield ClaudeItem(
            file=str(rule.path), item="rule", use=use, advice=remark if is_on else _INSTRUCTIONS_OFF
        )
    for path in instructions.excluded:
        remark = "claudeMdExcludes excludes it"
        yield ClaudeItem(file=str(path), item="instructions", use="not used", advice=remark)
    for path, imported in instructions.missing_imports:
        remark = "this file does not exist, so nothing is imported"
        yield ClaudeItem(file=str(path), item=f"import @{imported}", use="not used", advice=remark)
    for note in other_notes:
        file_name = note.partition(" is not used as instructions")[0]
        yield ClaudeItem(file=file_name, item="instructions", use="not used", advice=note)


def list_nested_instruction_items(
    settings: Settings, cwd: Path, is_hidden: Callable[[str], bool], loaded: LoadedInstructionFiles
) -> Iterator[ClaudeItem]:
    """Yield the files of subdirectories, each read as if an agent used a file next to it."""
    *_, root = iter_project_directories(cwd)
    exclusions = read_instruction_exclusions(settings)
    listed = [file.path for file in loaded.files]
    for directory in _iter_directories_below(cwd):
        reader = InstructionReader(root=root, home=settings.home, is_hidden=is_hidden, exclusions=exclusions)
        reader.skip_files(listed)
        reader.read_directory(directory)
        reader.read_project_rules(directory)
        found = reader.fit_files_to_size_limit()
        listed += (file.path for file in found.files)
        yield from list_instruction_items(settings, found, _NESTED_ADVICE)
        for path in sorted((directory / ".claude" / "skills").glob("*/SKILL.md")):
            item, advice = f"skill {path.parent.name}", f"start Shoal in {directory} to use it"
            yield ClaudeItem(file=str(path), item=item, use="not used", advice=advice)


def _iter_directories_below(cwd: Path) -> Iterator[Path]:
    for number, (directory, names, _) in enumerate(os.walk(cwd)):
        if number >= _MAX_DIRECTORIES:
            return
        names[:] = sorted(
            name for name in names if not name.startswith(".") and name not in _SKIPPED_DIRECTORIES
        )
        if number:
            yield Path(directory)


def list_output_style_items(
    settings: Settings, cwd: Path, styles: Sequence[tuple[str, Path]]
) -> Iterator[ClaudeItem]:
    chosen = choose_output_style(settings, cwd, styles).name
    for file in list_output_style_files(settings, cwd, styles):
        use: KeyUse = "not used" if file.problem else "used"
        advice = file.problem or ("" if file.name == chosen else "choose it with outputStyle")
        yield ClaudeItem(file=str(file.path), item=f"output style {file.name}", use=use, advice=advice)


def list_other_files(home: Path, cwd: Path) -> Iterator[ClaudeItem]:
    for base in dict.fromkeys((home, cwd / ".claude")):
        for pattern, advice in OTHER_FILES.items():
            for path in sorted(base.glob(pattern)):
                yield ClaudeItem(file=str(path), item="file", use="not used", advice=advice)
    *_, root = iter_project_directories(cwd)
    for directory in dict.fromkeys((cwd, root)):
        if (path := directory / INCLUDE_FILE).is_file():
            is_used = directory == root and contains_git_repository(root)
            advice = "" if is_used else "it applies only in the top directory of a git repository"
            use: KeyUse = "used" if is_used else "not used"
            yield ClaudeItem(file=str(path), item="file", use=use, advice=advice)
