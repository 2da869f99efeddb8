"""`shoal demo`: an agent repairs a small project before one's eyes, offline."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from shoal.surfaces.cli.paint import (
    BOLD,
    BOLD_CYAN,
    BOLD_GREEN,
    BOLD_RED,
    DIM,
    GREEN,
    RED,
    count,
    dollars,
    seconds,
)
from shoal.surfaces.cli.screen import Screen, screen_for

if TYPE_CHECKING:
    from shoal.app.session import Session
    from shoal.core.events import Finished

MINUTES = 120
"""Seconds after which a demo that does not end by itself is ended."""


class _Ran(Struct, frozen=True, kw_only=True):
    finished: Finished
    project: Path
    session: str
    transcript: Path
    kept: bool
    home: Path


@click.command(
    name="demo",
    help="Watch an agent repair a small project: offline, without a key, in about 15 seconds.",
)
@click.option("--fast", is_flag=True, help="Without pauses.")
@click.option("--keep", is_flag=True, help="Keep the project and the transcript, and say where they are.")
@click.option("--home", type=click.Path(path_type=Path), help="Keep the transcript in this home.")
def command(*, fast: bool, keep: bool, home: Path | None) -> int:
    screen = screen_for(sys.stdout)
    try:
        with _place(keep=keep) as place:
            ran = asyncio.run(_run(screen, place, home or place / "home", fast=fast, kept=keep))
            return _summary(screen, ran)
    finally:
        screen.close()


@contextmanager
def _place(*, keep: bool) -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="shoal-demo-")).resolve()
    try:
        yield place
    finally:
        if not keep:
            shutil.rmtree(place, ignore_errors=True)


async def _run(screen: Screen, place: Path, home: Path, *, fast: bool, kept: bool) -> _Ran:
    from shoal.app.demo.harbour import TASK, lay_out
    from shoal.app.demo.mind import mind
    from shoal.app.options import Options
    from shoal.app.session import Session
    from shoal.stores.files.places import transcript_path

    project = place / "project"
    lay_out(project)
    # Python 3.13 and later colours what its tests write when the surroundings force it to.
    os.environ.update(SHOAL_HOME=str(home), PYTHON_COLORS="0")
    options = Options(
        cwd=project,
        model=mind(fast=fast),
        mode="acceptEdits",
        allowed_tools=("Bash(python3 -m unittest:*)",),
        deadline=MINUTES,
    )
    _introduce(screen, TASK)
    async with Session(options) as session:
        finished = await _shown(screen, session, TASK)
        return _Ran(
            finished=finished,
            project=project,
            session=session.id,
            transcript=transcript_path(home, str(session.parts.workspace.root), session.id),
            kept=kept,
            home=home,
        )


def _introduce(screen: Screen, task: str) -> None:
    screen.write("shoal demo", BOLD_CYAN)
    screen.write("  The model's words are scripted. The project, the tools, the edits\n", DIM)
    screen.write("            and the test runs are real. Nothing leaves this machine.\n\n", DIM)
    screen.write("› ", BOLD_CYAN)
    screen.write(f"{task}\n", BOLD)


async def _shown(screen: Screen, session: Session, task: str) -> Finished:
    from shoal.core.events import Finished
    from shoal.surfaces.cli.activity import Activity
    from shoal.surfaces.cli.paint import painted
    from shoal.surfaces.cli.progress import LiveRows
    from shoal.surfaces.cli.telling import Telling

    telling, activity = Telling(screen), Activity(session.agent.clock)
    rows = LiveRows(
        screen, lambda columns: ["", painted(activity.line(columns), DIM, colours=screen.colours)]
    )
    try:
        async for event in session.run(task):
            activity.hear(event)
            telling.hear(event)
            if isinstance(event, Finished):
                return event
    finally:
        rows.close()
    raise AssertionError("a turn ends with Finished")


def _summary(screen: Screen, ran: _Ran) -> int:
    """Looks for itself: what is told here is what is on disk, not what the agent said about it."""
    from shoal.app.demo.harbour import TESTS, changes

    tests = subprocess.run(TESTS, cwd=ran.project, capture_output=True, check=False, text=True)
    passed = tests.returncode == 0 and ran.finished.reason == "done"
    differences = changes(ran.project)
    screen.write("\nWhat changed\n" if differences else "\nNothing changed\n", BOLD)
    for changed in differences:
        screen.write(f"  {changed.path}\n")
        for line in changed.removed:
            screen.write(f"  - {line.strip()}\n", RED)
        for line in changed.added:
            screen.write(f"  + {line.strip()}\n", GREEN)
    screen.write("\n")
    if passed:
        _row(screen, "tests", f"all {tests.stderr.partition('Ran ')[2].split(' ')[0]} pass", BOLD_GREEN)
    else:
        _row(screen, "tests", "still fail", BOLD_RED)
    _row(screen, "took", _taken(ran.finished))
    _whereabouts(screen, ran)
    if not passed:
        screen.write("\nThe demo failed. To look into it, keep what it made: shoal demo --keep\n", RED)
    return 0 if passed else 1


def _taken(finished: Finished) -> str:
    took, tokens = seconds(finished.duration_ms / 1000), count(finished.usage.total_tokens)
    cost = f"{dollars(finished.cost_usd)} at $3 and $15 per million"
    return f"{took} · {finished.requests} requests · {tokens} tokens · {cost}"


def _whereabouts(screen: Screen, ran: _Ran) -> None:
    if ran.kept:
        _row(screen, "project", str(ran.project))
        _row(screen, "record", str(ran.transcript))
        _row(screen, "next", f"cd {ran.project}", BOLD)
        _row(screen, "", f"SHOAL_HOME={ran.home} {_in_a_clone(absolute=True) or 'shoal'} undo", BOLD)
    else:
        lines = len(ran.transcript.read_text(encoding="utf-8").splitlines())
        _row(screen, "record", f"a transcript of {lines} lines, removed with the project (--keep keeps both)")
        own = _in_a_clone()
        doctor = f"{own or 'shoal'} doctor"
        _row(screen, "next", doctor, BOLD, "  which model can be used here, and what to type")
        if own is None:
            _row(screen, "", 'shoal "fix the tests"', BOLD, "  the same, in a project of yours")
        else:
            _row(screen, "", "pip install .", BOLD, '  then, in a project of yours: shoal "fix the tests"')


def _in_a_clone(*, absolute: bool = False) -> str | None:
    """The program as it can be typed where `make demo` runs one that is on nobody's PATH; else None."""
    started = Path(sys.argv[0])
    if started.is_absolute() or started.name != "shoal" or len(started.parts) < 2:
        return None
    return str(started.absolute() if absolute else started)


def _row(screen: Screen, name: str, text: str, style: str = "", remark: str = "") -> None:
    screen.write(f"{name:<9}", DIM)
    screen.write(text, style)
    screen.write(f"{remark}\n", DIM)
