"""`shoal undo` command: restore files, and optionally the conversation, to the state before a turn."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.core.wording import one_line
from shoal.surfaces.cli.printing import json_option, print_json
from shoal.surfaces.terminal.listings import near, undone_lines
from shoal.surfaces.terminal.paint import BOLD, DIM, cut, has_colours, painted

if TYPE_CHECKING:
    from shoal.app.basis.undo import Past, TurnTaken
    from shoal.workspaces.checkpoints import UndoReport

_FILES_SHOWN = 6


@click.command(
    name="undo",
    help="Bring files back to how they were before TURN (default: the last turn that changed files). "
    "What somebody else changed since is left alone.",
)
@click.argument("turn", type=int, required=False)
@click.option("--session", metavar="ID", help="Of this session; else the latest one of this directory.")
@click.option("--conversation", is_flag=True, help="Let the conversation go back, too.")
@click.option("--list", "list_", is_flag=True, help="Only list the turns and what they changed.")
@json_option
@click.option("--yes", is_flag=True, help="Do not ask first.")
def command(
    *, turn: int | None, session: str | None, conversation: bool, list_: bool, as_json: bool, yes: bool
) -> int:
    from shoal.app.basis.undo import turn_to_undo, undo
    from shoal.core.clock import SystemClock

    past = _past(session)
    turns = past.turns()
    if list_:
        _list(turns, as_json=as_json)
        return 0
    chosen = turn_to_undo(turns, turn)
    if not yes and not as_json and not _agreed(turns, chosen, conversation=conversation):
        print("Nothing was changed.", file=sys.stderr)
        return 1
    report = undo(past, chosen, SystemClock(), conversation=conversation)
    if as_json:
        print_json(_as_data(report, past, conversation=conversation))
    else:
        for line, style in undone_lines(report, Path.cwd()):
            _say(line, style)
        if conversation:
            _say(f"The conversation is back before turn {chosen.turn}: shoal --resume {past.session}")
    return 0


def _past(session: str | None) -> Past:
    from shoal.app.basis.undo import Past
    from shoal.app.settings.settings import find_home
    from shoal.core.errors import NoSuchSession
    from shoal.core.ids import SessionId
    from shoal.stores.files.places import transcript_path
    from shoal.stores.files.sessions import find_session, latest_session

    home = find_home(os.environ, Path.cwd())
    if session is not None:
        path = find_session(home, session)
        return Past(home=home, session=SessionId(path.stem), transcript=path)
    latest = latest_session(home, str(Path.cwd()))
    if latest is None:
        raise NoSuchSession(f"No session has worked in {Path.cwd()}. Name one: --session ID.", path=home)
    return Past(home=home, session=latest, transcript=transcript_path(home, str(Path.cwd()), latest))


def _agreed(turns: tuple[TurnTaken, ...], chosen: TurnTaken, *, conversation: bool) -> bool:
    """Ask for confirmation after listing every affected turn: undoing turn 2 of 4 also undoes 3 and 4."""
    for each in turns:
        if each.turn >= chosen.turn and (each.files or conversation):
            _tell_turn(each)
    if not sys.stdin.isatty():
        raise click.UsageError("There is no terminal to ask at whether to undo this. Say so with --yes.")
    what = "these files and the conversation" if conversation else "these files"
    return click.confirm(f"Bring {what} back to before turn {chosen.turn}?", default=True)


def _list(turns: tuple[TurnTaken, ...], *, as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "turn": each.turn,
                    "prompt": each.prompt,
                    "files": [{"path": str(file.path), "how": file.how} for file in each.files],
                }
                for each in turns
            ]
        )
        return
    for each in turns:
        _tell_turn(each)
    if not turns:
        _say("This session has no turns.", DIM)


def _tell_turn(turn: TurnTaken) -> None:
    _say(f"turn {turn.turn}  {cut(one_line(turn.prompt), 60)}", BOLD)
    for file in turn.files[:_FILES_SHOWN]:
        _say(f"    {file.how:<8} {near(file.path, Path.cwd())}")
    if len(turn.files) > _FILES_SHOWN:
        _say(f"    … and {len(turn.files) - _FILES_SHOWN} more", DIM)


def _as_data(report: UndoReport, past: Past, *, conversation: bool) -> dict[str, object]:
    return {
        "session": past.session,
        "turn": report.turn,
        "conversation": conversation,
        "restored": [str(path) for path in report.restored],
        "deleted": [str(path) for path in report.removed],
        "left_alone": [{"path": str(left.path), "why": left.why} for left in report.left_alone],
    }


def _say(text: str, style: str = "") -> None:
    sys.stdout.write(painted(text, style, colours=has_colours(sys.stdout)) + "\n")
