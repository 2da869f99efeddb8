"""`shoal undo` command: restore files, and optionally the conversation, to the state before a turn."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.core.ids import LEAD_ID
from shoal.core.text.text_format import to_one_line
from shoal.surfaces.cli.cli_output import json_option, print_json
from shoal.surfaces.terminal.listings import format_path_for_user, format_undo_lines
from shoal.surfaces.terminal.text_styles import BOLD, DIM, apply_style, has_colours, truncate_text

if TYPE_CHECKING:
    from shoal.app.config.undo_history import SessionUndoHistory, UndoableTurn
    from shoal.workspaces.checkpoints import FileUndoReport

_MAX_FILES_SHOWN = 6


@click.command(
    name="undo",
    help=(
        "Restore files to their state before TURN (default: the last turn that changed files). Files that "
        "somebody else has changed since then are left alone."
    ),
)
@click.argument("turn", type=int, required=False)
@click.option("--session", metavar="ID", help="Use this session; default: the latest one in this directory.")
@click.option("--conversation", is_flag=True, help="Rewind the conversation too.")
@click.option("--list", "list_", is_flag=True, help="Only list the turns and their changes.")
@json_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def undo_command(
    *, turn: int | None, session: str | None, conversation: bool, list_: bool, as_json: bool, yes: bool
) -> int:
    from shoal.app.config.undo_history import select_undoable_turn, undo_closed_session
    from shoal.core.clock import SystemClock
    from shoal.surfaces.terminal.user_messages import print_user_message

    history = _open_undo_history(session)
    _report_missing_checkpoints(history)
    turns = history.list_undoable_turns()
    if (damage := history.checkpoints.find_damage()) is not None and (list_ or not turns):
        print_user_message(f"{damage.path}: {damage.why}.")
    if list_:
        _print_turns(turns, as_json=as_json)
        return 0
    chosen_turn = select_undoable_turn(turns, turn)
    if not yes and not as_json and not _confirm_undo(turns, chosen_turn, conversation=conversation):
        print("Nothing was changed.", file=sys.stderr)
        return 1
    report = undo_closed_session(history, chosen_turn, SystemClock(), conversation=conversation)
    if as_json:
        print_json(_undo_report_to_dict(report, history, conversation=conversation))
    else:
        for line, style in format_undo_lines(report, Path.cwd()):
            _print_styled_line(line, style)
        if conversation:
            _print_styled_line(
                f"Rewound the conversation to its state before turn {chosen_turn.turn}. Resume it: shoal "
                f"--resume "
                f"{history.session}"
            )
    return 0


def _open_undo_history(session: str | None) -> SessionUndoHistory:
    from shoal.app.config.undo_history import SessionUndoHistory
    from shoal.app.settings.configured_store import open_home_store
    from shoal.app.settings.settings import find_process_shoal_home
    from shoal.core.errors import SessionNotFound

    home = find_process_shoal_home()
    store = open_home_store(home)
    if session is not None:
        return SessionUndoHistory(store=store.find_session(session))
    try:
        return SessionUndoHistory(store=store.find_latest_session(str(Path.cwd())))
    except SessionNotFound:
        message = f"There is no session in {Path.cwd()}. Specify a session: --session ID."
        raise SessionNotFound(message, path=home) from None


def _report_missing_checkpoints(history: SessionUndoHistory) -> None:
    """Report that the changes of a session in a database may have been made on another machine."""
    from shoal.surfaces.terminal.user_messages import print_user_message

    directory = history.store.directory
    if history.store.get_transcript_path(LEAD_ID) is None and not (directory / "checkpoints").exists():
        print_user_message(
            f"The session {history.session} has no checkpoints in {directory}: it changed no files, or it "
            f"ran on another machine or with another home. Files can be restored only there."
        )


def _confirm_undo(turns: tuple[UndoableTurn, ...], chosen_turn: UndoableTurn, *, conversation: bool) -> bool:
    """Ask for confirmation after listing every affected turn: undoing turn 2 of 4 also undoes 3 and 4."""
    for turn in turns:
        if turn.turn >= chosen_turn.turn and (turn.files or conversation):
            _print_turn(turn)
    if not sys.stdin.isatty():
        raise click.UsageError(
            "Cannot ask for confirmation because standard input is not a terminal. Use --yes."
        )
    scope = "these files and the conversation" if conversation else "these files"
    return click.confirm(f"Restore {scope} to their state before turn {chosen_turn.turn}?", default=True)


def _print_turns(turns: tuple[UndoableTurn, ...], *, as_json: bool) -> None:
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
    for turn in turns:
        _print_turn(turn)
    if not turns:
        _print_styled_line("This session has no turns.", DIM)


def _print_turn(turn: UndoableTurn) -> None:
    _print_styled_line(f"turn {turn.turn}  {truncate_text(to_one_line(turn.prompt), 60)}", BOLD)
    for file in turn.files[:_MAX_FILES_SHOWN]:
        _print_styled_line(f"    {file.how:<8} {format_path_for_user(file.path, Path.cwd())}")
    if len(turn.files) > _MAX_FILES_SHOWN:
        _print_styled_line(f"    … and {len(turn.files) - _MAX_FILES_SHOWN} more", DIM)


def _undo_report_to_dict(
    report: FileUndoReport, history: SessionUndoHistory, *, conversation: bool
) -> dict[str, object]:
    return {
        "session": history.session,
        "turn": report.turn,
        "conversation": conversation,
        "restored": [str(path) for path in report.restored],
        "deleted": [str(path) for path in report.removed],
        "left_alone": [{"path": str(left.path), "why": left.why} for left in report.left_alone],
    }


def _print_styled_line(text: str, style: str = "") -> None:
    sys.stdout.write(apply_style(text, style, colours=has_colours(sys.stdout)) + "\n")
