"""`shoal worktree` commands: list, show, merge and remove the worktrees of this repository's agents."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from shoal.core.text.text_format import format_count_with_noun, strip_terminal_codes
from shoal.surfaces.cli import exit_codes
from shoal.surfaces.cli.cli_output import (
    CliTableCell,
    debug_option,
    json_option,
    print_json,
    print_name_value_lines,
    print_table,
)
from shoal.surfaces.terminal.listings import format_time_since
from shoal.surfaces.terminal.text_styles import CYAN, DIM, GREEN, YELLOW

if TYPE_CHECKING:
    from shoal.core.agents.worktrees import RemovedWorktree, RetainedWorktree, WorktreeStatus
    from shoal.workspaces.worktree_service import WorktreeService

ResultT = TypeVar("ResultT")
_SUBJECTS_SHOWN = 10


@click.group("worktree")
def worktree_commands() -> None:
    """Show agents' work in worktrees, merge it into this checkout, and clean up."""


@worktree_commands.command("ls", short_help="List worktrees and unmerged work.")
@json_option
@debug_option
def list_worktrees(*, as_json: bool) -> int:
    """List this repository's worktrees, and work that is kept only under a ref."""
    statuses = _run_with_worktree_service(lambda worktrees: worktrees.list_worktrees())
    if as_json:
        print_json([_worktree_to_dict(each) for each in statuses])
    elif statuses:
        heads = ("NAME", "STATE", "AGE", "COMMITS", "FILES", "AGENT", "BRANCH OR REF")
        print_table(heads, [_build_worktree_row(each) for each in statuses])
    else:
        click.echo("This repository has no agent worktrees.")
    return exit_codes.OK


@worktree_commands.command("show")
@click.argument("name")
@json_option
@debug_option
def show_worktree(*, name: str, as_json: bool) -> int:
    """Show the changes in a worktree, file by file."""
    status, diff_stat = _run_with_worktree_service(
        lambda worktrees: worktrees.show_worktree(_to_worktree_name(name))
    )
    if as_json:
        print_json({**_worktree_to_dict(status), "stat": diff_stat})
        return exit_codes.OK
    record, work = status.record, status.work
    print_name_value_lines(
        (
            ("worktree", status.name),
            ("state", _build_worktree_state_cell(status).text),
            ("path", "" if record is None else str(record.path)),
            ("branch", "" if record is None else record.branch),
            (
                "made",
                "" if record is None else f"{format_time_since(record.made_at)} ago, from {record.base[:12]}",
            ),
            ("agent", "" if record is None else record.agent),
            ("session", "" if record is None else record.owner.session),
            ("process", "" if record is None else _format_owner_process(status)),
            ("kept as", "" if status.ref is None else f"{status.ref} ({status.ref_commit[:12]})"),
            ("commits", "" if work is None else "\n".join(work.subjects[:_SUBJECTS_SHOWN])),
            ("not committed", "" if work is None else "\n".join(work.uncommitted)),
            ("repositories", "" if work is None else "\n".join(work.nested)),
        )
    )
    if diff_stat:
        click.echo()
        click.echo(strip_terminal_codes(diff_stat))
    return exit_codes.OK


@worktree_commands.command("merge", short_help="Merge the work into the current branch of this checkout.")
@click.argument("name")
@json_option
@debug_option
def merge_worktree(*, name: str, as_json: bool) -> int:
    """Merge a worktree's work, committed or not, into the current branch of this checkout, and remove the
    worktree.

    If there is a conflict, Shoal changes nothing and lists the files. Hooks do not run.
    """
    result = _run_with_worktree_service(lambda worktrees: worktrees.merge_worktree(_to_worktree_name(name)))
    if as_json:
        print_json(
            {
                "name": result.name,
                "into": result.into,
                "commit": result.commit,
                "commits": result.commits,
                "files": list(result.files),
            }
        )
    elif result.commits:
        click.echo(
            f"Merged {result.name} into {result.into}: {format_count_with_noun(result.commits, 'commit')}, "
            f"{format_count_with_noun(len(result.files), 'file')}. Removed the worktree."
        )
    else:
        click.echo(f"{result.into} already contains all of {result.name}. Removed the worktree.")
    return exit_codes.OK


@worktree_commands.command("rm")
@click.argument("name")
@click.option(
    "--force", is_flag=True, help="Remove it even if it has unmerged work, which Shoal keeps under a ref."
)
@json_option
@debug_option
def remove_worktree(*, name: str, force: bool, as_json: bool) -> int:
    """Remove a worktree and its branch. Shoal refuses if the worktree contains unmerged work."""
    removal = _run_with_worktree_service(
        lambda worktrees: worktrees.remove_worktree(_to_worktree_name(name), force=force)
    )
    if as_json:
        print_json({"name": removal.name, "ref": removal.ref})
    elif removal.ref is None:
        click.echo(f"Removed {removal.name}.")
    else:
        click.echo(
            f"Removed {removal.name}. Its work is kept under {removal.ref}.\nMerge it: shoal worktree "
            f"merge {removal.name}\nDelete it for good: git update-ref -d {removal.ref}"
        )
    return exit_codes.OK


@worktree_commands.command("reap", short_help="Clean up after processes that died.")
@json_option
@debug_option
def reap_abandoned_worktrees(*, as_json: bool) -> int:
    """Clean up after processes that died: remove unchanged worktrees and keep all others."""
    reap_results = _run_with_worktree_service(lambda worktrees: worktrees.reap_abandoned_worktrees())
    if as_json:
        print_json([_reap_result_to_dict(each) for each in reap_results])
        return exit_codes.OK
    for reap_result in reap_results:
        row = _reap_result_to_dict(reap_result)
        click.echo(
            f"kept     {reap_result.name}  {row['path']}{'  ' if row['note'] else ''}{row['note']}"
            if row["kept"]
            else f"removed  {reap_result.name}  (it was unchanged)"
        )
    if not reap_results:
        click.echo("There was nothing to clean up.")
    return exit_codes.OK


def _run_with_worktree_service(work: Callable[[WorktreeService], Awaitable[ResultT]]) -> ResultT:
    from shoal.app.isolation.repository_worktrees import open_worktrees
    from shoal.app.settings.settings import find_process_shoal_home
    from shoal.core.clock import SystemClock

    async def run_work_with_service() -> ResultT:
        clock = SystemClock()
        return await work(
            open_worktrees(Path.cwd(), home=find_process_shoal_home(), environ=os.environ, clock=clock)
        )

    return asyncio.run(run_work_with_service())


def _to_worktree_name(name: str) -> str:
    """Return the worktree name for a name or an agent id."""
    return name if name.startswith("agent-") else f"agent-{name[:8]}"


def _build_worktree_row(status: WorktreeStatus) -> tuple[CliTableCell, ...]:
    record, work = status.record, status.work
    return (
        CliTableCell(status.name, CYAN),
        _build_worktree_state_cell(status),
        CliTableCell("-" if record is None else format_time_since(record.made_at)),
        CliTableCell("-" if work is None else str(work.commits)),
        CliTableCell("-" if work is None else str(len(work.files))),
        CliTableCell("-" if record is None else record.agent),
        CliTableCell((status.ref or "-") if record is None else record.branch),
    )


def _build_worktree_state_cell(status: WorktreeStatus) -> CliTableCell:
    record = status.record
    if record is None:
        return CliTableCell("ref only, merged" if status.merged else "ref only", DIM)
    if record.state != "kept":
        return CliTableCell("working", GREEN) if status.alive else CliTableCell("owner dead", YELLOW)
    return CliTableCell("merged", DIM) if status.merged else CliTableCell("kept", YELLOW)


def _format_owner_process(status: WorktreeStatus) -> str:
    assert status.record is not None
    return f"{status.record.owner.pid} ({'running' if status.alive else 'ended'})"


def _worktree_to_dict(status: WorktreeStatus) -> dict[str, Any]:
    record, work = status.record, status.work
    record_fields: dict[str, Any] = (
        {}
        if record is None
        else {
            "path": str(record.path),
            "branch": record.branch,
            "base": record.base,
            "agent": record.agent,
            "session": record.owner.session,
            "pid": record.owner.pid,
            "made_at": record.made_at,
        }
    )
    work_fields: dict[str, Any] = (
        {}
        if work is None
        else {
            "head": work.head,
            "commits": work.commits,
            "subjects": list(work.subjects),
            "files": list(work.files),
            "uncommitted": list(work.uncommitted),
            "repositories": list(work.nested),
        }
    )
    return {
        "name": status.name,
        "state": _build_worktree_state_cell(status).text,
        "alive": status.alive,
        "merged": status.merged,
        "ref": status.ref,
        "ref_commit": status.ref_commit or None,
        **record_fields,
        **work_fields,
    }


def _reap_result_to_dict(result: RetainedWorktree | RemovedWorktree) -> dict[str, Any]:
    from shoal.core.agents.worktrees import RetainedWorktree

    if isinstance(result, RetainedWorktree):
        return {
            "name": result.name,
            "kept": True,
            "path": str(result.path),
            "ref": result.ref,
            "note": result.note,
        }
    return {"name": result.name, "kept": False, "path": None, "ref": result.ref, "note": ""}
