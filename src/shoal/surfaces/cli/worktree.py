"""`shoal worktree` commands: list, show, merge and remove the worktrees of this repository's agents."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from shoal.core.wording import clean, many
from shoal.surfaces.cli import exits
from shoal.surfaces.cli.printing import Cell, debug_option, json_option, print_facts, print_json, print_table
from shoal.surfaces.terminal.listings import age
from shoal.surfaces.terminal.paint import CYAN, DIM, GREEN, YELLOW

if TYPE_CHECKING:
    from shoal.core.worktrees import Kept, Removed, Standing
    from shoal.workspaces.worktrees import Worktrees

Result = TypeVar("Result")
_SUBJECTS_SHOWN = 10


@click.group("worktree")
def command() -> None:
    """See what agents did in worktrees of their own, bring it into this checkout, and clear up."""


@command.command("ls", short_help="List the worktrees, and work that is kept.")
@json_option
@debug_option
def ls(*, as_json: bool) -> int:
    """List the worktrees of this repository, and work that is kept under a ref alone."""
    found = _with(lambda worktrees: worktrees.list())
    if as_json:
        print_json([_data(each) for each in found])
    elif found:
        heads = ("NAME", "STATE", "AGE", "COMMITS", "FILES", "AGENT", "BRANCH OR REF")
        print_table(heads, [_row(each) for each in found])
    else:
        click.echo("This repository has no worktrees of agents.")
    return exits.OK


@command.command("show")
@click.argument("name")
@json_option
@debug_option
def show(*, name: str, as_json: bool) -> int:
    """Show what was done in one, file by file."""
    standing, stat = _with(lambda worktrees: worktrees.show(_whole(name)))
    if as_json:
        print_json({**_data(standing), "stat": stat})
        return exits.OK
    record, work = standing.record, standing.work
    print_facts(
        (
            ("worktree", standing.name),
            ("state", _state(standing).text),
            ("path", "" if record is None else str(record.path)),
            ("branch", "" if record is None else record.branch),
            ("made", "" if record is None else f"{age(record.made_at)} ago, from {record.base[:12]}"),
            ("agent", "" if record is None else record.agent),
            ("session", "" if record is None else record.owner.session),
            ("process", "" if record is None else _process(standing)),
            ("kept as", "" if standing.ref is None else f"{standing.ref} ({standing.ref_commit[:12]})"),
            ("commits", "" if work is None else "\n".join(work.subjects[:_SUBJECTS_SHOWN])),
            ("not committed", "" if work is None else "\n".join(work.uncommitted)),
            ("repositories", "" if work is None else "\n".join(work.nested)),
        )
    )
    if stat:
        click.echo()
        click.echo(clean(stat))
    return exits.OK


@command.command("merge", short_help="Merge its work into the branch of this checkout.")
@click.argument("name")
@json_option
@debug_option
def merge(*, name: str, as_json: bool) -> int:
    """Merge its work, committed or not, into the branch of this checkout, and remove it.

    Where it conflicts, nothing is changed and the files are named. Hooks are not run.
    """
    merged = _with(lambda worktrees: worktrees.merge(_whole(name)))
    if as_json:
        print_json(
            {
                "name": merged.name,
                "into": merged.into,
                "commit": merged.commit,
                "commits": merged.commits,
                "files": list(merged.files),
            }
        )
    elif merged.commits:
        click.echo(
            f"Merged {merged.name} into {merged.into}: {many(merged.commits, 'commit')}, "
            f"{many(len(merged.files), 'file')}. The worktree is removed."
        )
    else:
        click.echo(f"{merged.into} holds all of {merged.name} already. The worktree is removed.")
    return exits.OK


@command.command("rm")
@click.argument("name")
@click.option("--force", is_flag=True, help="Even if work is not merged: it stays under a ref.")
@json_option
@debug_option
def rm(*, name: str, force: bool, as_json: bool) -> int:
    """Remove one with its branch. Refused while it holds work that is not merged."""
    removed = _with(lambda worktrees: worktrees.remove(_whole(name), force=force))
    if as_json:
        print_json({"name": removed.name, "ref": removed.ref})
    elif removed.ref is None:
        click.echo(f"Removed {removed.name}.")
    else:
        click.echo(
            f"Removed {removed.name}. Its work stays under {removed.ref}.\n"
            f"Bring it back: shoal worktree merge {removed.name}\n"
            f"Let it go for good: git update-ref -d {removed.ref}"
        )
    return exits.OK


@command.command("reap", short_help="Clear up after processes that died.")
@json_option
@debug_option
def reap(*, as_json: bool) -> int:
    """Clear up after processes that died: unchanged worktrees go, all others are kept."""
    done = _with(lambda worktrees: worktrees.reap())
    if as_json:
        print_json([_reaped(each) for each in done])
        return exits.OK
    for each in done:
        facts = _reaped(each)
        click.echo(
            f"kept     {each.name}  {facts['path']}{'  ' if facts['note'] else ''}{facts['note']}"
            if facts["kept"]
            else f"removed  {each.name}  (it was unchanged)"
        )
    if not done:
        click.echo("There was nothing to clear up.")
    return exits.OK


def _with(work: Callable[[Worktrees], Awaitable[Result]]) -> Result:
    from shoal.app.quarters.worktrees import worktrees_of
    from shoal.app.settings.settings import home_directory
    from shoal.core.clock import SystemClock

    async def run() -> Result:
        clock = SystemClock()
        return await work(worktrees_of(Path.cwd(), home=home_directory(), environ=os.environ, clock=clock))

    return asyncio.run(run())


def _whole(name: str) -> str:
    """Return the worktree name for a name or an agent id."""
    return name if name.startswith("agent-") else f"agent-{name[:8]}"


def _row(standing: Standing) -> tuple[Cell, ...]:
    record, work = standing.record, standing.work
    return (
        Cell(standing.name, CYAN),
        _state(standing),
        Cell("-" if record is None else age(record.made_at)),
        Cell("-" if work is None else str(work.commits)),
        Cell("-" if work is None else str(len(work.files))),
        Cell("-" if record is None else record.agent),
        Cell((standing.ref or "-") if record is None else record.branch),
    )


def _state(standing: Standing) -> Cell:
    record = standing.record
    if record is None:
        return Cell("ref only, merged" if standing.merged else "ref only", DIM)
    if record.state != "kept":
        return Cell("working", GREEN) if standing.alive else Cell("owner dead", YELLOW)
    return Cell("merged", DIM) if standing.merged else Cell("kept", YELLOW)


def _process(standing: Standing) -> str:
    assert standing.record is not None
    return f"{standing.record.owner.pid} ({'runs' if standing.alive else 'has ended'})"


def _data(standing: Standing) -> dict[str, Any]:
    record, work = standing.record, standing.work
    known: dict[str, Any] = (
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
    done: dict[str, Any] = (
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
        "name": standing.name,
        "state": _state(standing).text,
        "alive": standing.alive,
        "merged": standing.merged,
        "ref": standing.ref,
        "ref_commit": standing.ref_commit or None,
        **known,
        **done,
    }


def _reaped(each: Kept | Removed) -> dict[str, Any]:
    from shoal.core.worktrees import Kept

    if isinstance(each, Kept):
        return {"name": each.name, "kept": True, "path": str(each.path), "ref": each.ref, "note": each.note}
    return {"name": each.name, "kept": False, "path": None, "ref": each.ref, "note": ""}
