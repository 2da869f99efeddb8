"""Checks whether the content of a state file can be parsed: the JSON, its fields, and each line of a list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import NoneType

import msgspec

from shoal.core.names import TeamName
from shoal.core.text.text_format import format_count_with_noun
from shoal.stores.files.sessions.result_files import parse_result_size
from shoal.stores.files.sessions.state_file_kinds import StateFileKind
from shoal.wire.checkpoint_codec import parse_checkpoint_line
from shoal.wire.foreign_json import InvalidFileContent, parse_foreign_json
from shoal.wire.mail_codec import MailInboxFileEntry, parse_inbox_entry
from shoal.wire.question_codec import parse_answer, parse_question
from shoal.wire.roster_codec import parse_own_member_list, parse_team_roster
from shoal.wire.subagent_metadata_codec import parse_subagent_metadata
from shoal.wire.team_definition_codec import parse_team_definition
from shoal.wire.worktree_codec import parse_worktree_record

_NUL_RUN = b"\0" * 4
"""A text may contain a NUL, but not several in a row."""
_MAIL_FIELD_TYPES: Mapping[str, tuple[type, ...]] = {
    "timestamp": (str, int, float, NoneType),
    "read": (bool, int),
    "msg_id": (str,),
}
"""Types of the fields of stored mail, also of mail from other programs."""
_ANSWER_SUFFIXES = (".answer.json", ".late.json")


def find_content_problem(kind: StateFileKind, path: Path, content: bytes) -> str | None:
    """Return what is wrong with the content of a file of this kind, as part of a sentence."""
    if kind.shape == "text":
        return _find_text_problem(content)
    if (is_readable := LINE_CHECKS.get(kind.name)) is not None:
        count = sum(not is_readable(line) for line in content.splitlines() if line)
        return f"{format_count_with_noun(count, 'line')} cannot be read" if count else None
    if kind.shape == "words":
        check_words = _WORD_LIST_CHECKS.get(kind.name)
        return _find_text_problem(content) or (None if check_words is None else check_words(content))
    try:
        msgspec.json.decode(content)
        check = _OBJECT_CHECKS.get(kind.name)
        return None if check is None else check(path, content)
    except RecursionError:
        return "it is nested too deeply"
    except msgspec.ValidationError as error:
        return f"it has content of another type ({error})"
    except msgspec.DecodeError:
        return "it is not valid JSON"
    except ValueError as error:
        return f"it is not valid ({error})"


def _find_text_problem(content: bytes) -> str | None:
    if _NUL_RUN in content:
        return "it has NUL bytes"
    try:
        content.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return "it is not UTF-8 text"
    return None


def _check_own_member_list(content: bytes) -> str | None:
    is_whole = parse_own_member_list(content) is not None
    return None if is_whole else "its lines are not those that its first line announces"


def _check_team_definition(_: Path, content: bytes) -> None:
    parse_team_definition(content)


def _check_question(path: Path, content: bytes) -> None:
    (parse_answer if path.name.endswith(_ANSWER_SUFFIXES) else parse_question)(content)


def _check_agent_metadata(_: Path, content: bytes) -> None:
    parse_subagent_metadata(content)


def _check_roster(path: Path, content: bytes) -> str | None:
    found = parse_team_roster(content, TeamName(path.parent.name))
    if isinstance(found, InvalidFileContent):
        return found.reason
    return next((f"a member cannot be read: {each.reason}" for each in found.rejected), None)


def _check_worktree_record(_: Path, content: bytes) -> str | None:
    return "it has content of another type" if parse_worktree_record(content) is None else None


def _is_readable_mail(line: bytes) -> bool:
    if not isinstance(parse_inbox_entry(line), MailInboxFileEntry):
        return False
    fields = parse_foreign_json(line)
    # Readers skip fields of other types because other programs write inboxes. Only Shoal writes these files.
    return isinstance(fields, dict) and all(
        type(fields[name]) in types for name, types in _MAIL_FIELD_TYPES.items() if name in fields
    )


_OBJECT_CHECKS: dict[str, Callable[[Path, bytes], str | None]] = {
    "definition of a Python program's team": _check_team_definition,
    "question": _check_question,
    "description of an agent": _check_agent_metadata,
    "copy of the roster": _check_roster,
    "record of a worktree": _check_worktree_record,
}
"""Check of each kind of file with a JSON object: returns what is wrong, or raises ValueError."""
LINE_CHECKS: dict[str, Callable[[bytes], bool]] = {
    "list of file checkpoints": lambda line: parse_checkpoint_line(line).is_whole,
    "list of results": lambda line: parse_result_size(line) is not None,
    "mail that is waiting for space": _is_readable_mail,
    "archive of read mail": _is_readable_mail,
}
"""Check of each line of a list, for kinds whose readers skip lines without a report."""
_WORD_LIST_CHECKS: dict[str, Callable[[bytes], str | None]] = {
    "list of the members that Shoal added": _check_own_member_list
}
"""Check of the lines of a list of words as a whole: returns what is wrong."""
