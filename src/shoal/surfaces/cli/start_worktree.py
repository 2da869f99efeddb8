"""The worktree of `--worktree`: entered before a session starts, kept or removed after it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import click

from shoal.surfaces.terminal.user_messages import print_user_message

if TYPE_CHECKING:
    from shoal.app.isolation.lead_worktree import NamedWorktree
    from shoal.workspaces.git_runner import GitRunner

_PATH_FLAGS = ("settings", "agents", "system_prompt_file", "append_system_prompt_file", "json_schema")
"""Flags whose value may be a file path."""


@contextmanager
def enter_start_worktree(flag_values: dict[str, Any], *, headless: bool) -> Iterator[None]:
    """Run the block in the worktree. Paths in flags stay relative to the directory of the start."""
    from shoal.core.clock import SystemClock
    from shoal.core.errors import ShoalError
    from shoal.workspaces.git_runner import GitRunner

    start = Path.cwd()
    try:
        git = GitRunner(os.environ, SystemClock())
        worktree = asyncio.run(_open_worktree(flag_values, start, git))
    except ShoalError as error:
        raise click.ClickException(str(error)) from error
    _make_paths_absolute(flag_values, start)
    verb = "Created" if worktree.base else "Using"
    print_user_message(f"{verb} the worktree {worktree.path} on the branch {worktree.branch}.")
    for note in worktree.notes:
        print_user_message(f"note: {note}")
    os.chdir(worktree.path)
    try:
        yield
    finally:
        os.chdir(start)
        if not headless and worktree.base:
            _offer_removal(worktree, git)


async def _open_worktree(flag_values: Mapping[str, Any], start: Path, git: GitRunner) -> NamedWorktree:
    from shoal.app.isolation.lead_worktree import open_start_worktree
    from shoal.app.isolation.repository_worktrees import read_worktree_options
    from shoal.app.reports.permission_report import create_permission_engine
    from shoal.app.settings.settings import load_settings

    sources = flag_values["setting_sources"]
    settings = load_settings(
        cwd=start,
        given=flag_values["settings"],
        sources=None if sources is None else sources.replace(",", " ").split(),
    )
    is_hidden = create_permission_engine(settings, start).build_unreadable_file_filter("Read", str(start))
    options, notes = read_worktree_options(settings.documents)
    for note in notes:
        print_user_message(f"note: {note}")
    return await open_start_worktree(
        flag_values["worktree"] or f"shoal-{token_hex(3)}", start, options, git, is_hidden
    )


def _make_paths_absolute(flag_values: dict[str, Any], start: Path) -> None:
    for name in _PATH_FLAGS:
        if flag_values[name] is not None:
            flag_values[name] = _make_path_absolute(flag_values[name], start)
    flag_values["mcp_config"] = tuple(_make_path_absolute(each, start) for each in flag_values["mcp_config"])
    for name in ("add_dirs", "plugin_dirs"):
        flag_values[name] = tuple(start / each for each in flag_values[name])
    for name in ("record", "debug_file"):
        if flag_values[name] is not None:
            flag_values[name] = start / flag_values[name]


def _make_path_absolute(value: str, start: Path) -> str:
    """Return the absolute path if the value is a path and not JSON."""
    return value if value.lstrip().startswith(("{", "[")) else str(start / Path(value).expanduser())


def _offer_removal(worktree: NamedWorktree, git: GitRunner) -> None:
    """Remove a new worktree without work; ask about one with work."""
    from shoal.app.isolation.lead_worktree import count_worktree_work, remove_named_worktree
    from shoal.core.errors import WorktreeError
    from shoal.core.text.text_format import format_count_with_noun

    try:
        files, commits = asyncio.run(count_worktree_work(git, worktree.path, worktree.base))
        is_kept = bool(files or commits) and click.confirm(
            f"The worktree {worktree.path} has {format_count_with_noun(files, 'changed file')} and "
            f"{format_count_with_noun(commits, 'new commit')}. Keep it?",
            default=True,
        )
        if not is_kept:
            asyncio.run(remove_named_worktree(git, worktree.top, worktree.path, worktree.branch))
    except WorktreeError as error:
        print_user_message(f"The worktree {worktree.path} is kept: {error}")
        return
    except click.Abort:
        is_kept = True
    print_user_message(f"The worktree {worktree.path} {'is kept' if is_kept else 'was removed'}.")
