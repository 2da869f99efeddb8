"""The readers of `shoal.wire` that take JSON: files, protocol lines, and answers of programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from shoal.core.errors import BadDefinition, BadName, SettingsError
from shoal.core.hooks import EVENTS, LONGEST_SECONDS
from shoal.core.names import TaskId, TeamName
from shoal.wire import (
    bodies,
    content,
    control,
    definitions,
    foreign,
    hook_output,
    hooks,
    journal,
    json_lines,
    mail,
    mcp,
    outpost,
    papers,
    plugins,
    questions,
    roster,
    settings,
    stream_incoming,
    stream_opening,
    tasks,
    transcript,
    trust,
    worktrees,
)

from . import seeds
from .door import Door, text_of

PLACE = Path("/project/file.json")
TEAM = TeamName("roof")


def _kept(write: Callable[[Any], bytes], read: Callable[[bytes], Any]) -> Callable[[Any], None]:
    """Check that a value is the same after encoding and decoding."""

    def check(value: Any) -> None:
        assert read(write(value)) == value

    return check


def _inbox_is_kept(inbox: Any) -> None:
    if isinstance(inbox, foreign.Invalid):
        return
    mails = [entry.mail for entry in inbox.entries]
    again = mail.read_inbox(mail.inbox_bytes(entry.raw for entry in inbox.entries))
    assert isinstance(again, mail.Inbox)
    assert not again.rejected
    assert [entry.mail for entry in again.entries] == mails
    for entry in inbox.entries:
        _entry_is_kept(entry)


def _entry_is_kept(entry: Any) -> None:
    if isinstance(entry, foreign.Rejected):
        return
    settled = mail.read_entry(mail.settled(entry, read=True))
    assert isinstance(settled, mail.Entry)
    assert settled.mail == msgspec.structs.replace(entry.mail, read=True)
    posted = mail.read_entry(mail.entry_bytes(entry.mail))
    assert isinstance(posted, mail.Entry)
    assert posted.mail == entry.mail


def _task_is_kept(file: Any) -> None:
    if isinstance(file, tasks.TaskFile):
        for written in (file.rewritten(file.task), tasks.task_bytes(file.task)):
            again = tasks.read_task(written, TaskId(file.task.id))
            assert isinstance(again, tasks.TaskFile)
            # JSON has no NaN or infinity: a new file leaves them out.
            assert content.dump(again.task) == content.dump(file.task)


def _team_is_kept(file: Any) -> None:
    if isinstance(file, roster.TeamFile):
        for written in (file.rewritten(file.team), roster.team_bytes(file.team)):
            again = roster.read_team(written, TEAM)
            assert isinstance(again, roster.TeamFile)
            assert again.team == file.team


def _event_is_kept(read: Any) -> None:
    at, event = read
    if not isinstance(event, journal.Unknown):
        assert journal.read_event(journal.journal_line(event, at)) == read


def _body_is_kept(body: Any) -> None:
    if body is not None:
        assert bodies.read_body(bodies.body_text(body)) == body


def _verdicts(data: bytes) -> None:
    text = text_of(data)
    wish = hook_output.let_go(text.partition("\n")[0])
    assert wish is None or wish.seconds is None or 0 < wish.seconds <= LONGEST_SECONDS
    for event in EVENTS:
        try:
            hook_output.verdict_of_text(event, text)
        except hook_output.BadAnswer:
            continue


def _servers(data: bytes) -> mcp.ReadServers:
    return mcp.read_servers(_value(data), lambda name: f"a.json: {name}")


def _servers_are_kept(found: mcp.ReadServers) -> None:
    for server in found.servers:
        assert mcp.read_server(server.name, mcp.written_server(server), server.origin) == server
        try:
            mcp.filled(server, {"HOME": "/home/x", "EMPTY": ""})
        except mcp.UnsetVariable:
            continue


def _value(data: bytes) -> Any:
    """Decode JSON as another reader would; None if it is invalid."""
    value = foreign.value_of(data)
    return None if isinstance(value, foreign.Invalid) else value


def _document(data: bytes) -> settings.Document:
    return settings.read_document(text_of(data), name="settings.json", kind="project", path=PLACE)


def _settings_are_kept(document: settings.Document) -> None:
    list(settings.unknown_keys(document))
    json_lines.lines_in(document.text, ("permissions", "allow"))
    once = settings.known_part(settings.merged([document]))
    assert settings.known_part(settings.merged([document, document])) == once


def _papers_are_kept(read: Any) -> None:
    assert papers.papers_of(papers.command_line(read)) == read


def _trusted(data: bytes) -> bytes:
    trust.said_in(data, "/project", "file")
    trust.with_said(data, "/project", {})
    return data


def _word_is_kept(data: bytes) -> None:
    said = trust.Said(digest="d", trusted=True, at=1)
    assert trust.said_in(trust.with_said(data, "/project", {"a": said}), "/project", "a") == said
    assert trust.said_in(trust.without(data, "/project"), "/project", "file") is None


def _record_is_kept(record: Any) -> None:
    if record is not None:
        assert worktrees.read_record(worktrees.record_bytes(record)) == record


def _strangers_are_kept(data: bytes) -> None:
    value = foreign.value_of(data)
    if isinstance(value, dict):
        again = foreign.value_of(foreign.rewritten(data, {"known": 1, "gone": None}))
        value.pop("gone", None)
        assert json.dumps(again) == json.dumps({**value, "known": 1})


def _message_is_kept(read: Any) -> None:
    if isinstance(read, control.Steering):
        again = control.read_request(control.steering_line(read.message, read.request_id))
    else:
        again = control.read_request(control.request_line(read.request_id, read.command))
    assert again == read


def _wished(said: Any) -> None:
    if isinstance(said, stream_incoming.Control):
        try:
            stream_opening.wishes_in(said.body)
        except stream_incoming.BadLine:
            return


def _hooks(data: bytes) -> None:
    hooks.read_hooks(_value(data), lambda way: f"a.json:{'.'.join(way)}", {"HOME": "/home/x"})


_WRONG = (ValueError,)
_UNSEEDED = (
    Door("content", content.load, _WRONG),
    Door("foreign", lambda data: data, (), check=_strangers_are_kept),
    Door("inbox", mail.read_inbox, (), check=_inbox_is_kept),
    Door("mail", mail.read_entry, (), check=_entry_is_kept),
    Door("task", tasks.read_task, (), check=_task_is_kept),
    Door("roster", lambda data: roster.read_team(data, TEAM), (), check=_team_is_kept),
    Door("journal", journal.read_event, _WRONG, check=_event_is_kept),
    Door("torn-journal", journal.rescued_event),
    Door("transcript", transcript.read_line, _WRONG),
    Door("body", lambda data: bodies.read_body(text_of(data)), (), check=_body_is_kept),
    Door("control-request", control.read_request, (control.NotUnderstood,), check=_message_is_kept),
    Door("control-told", control.read_told, _WRONG),
    Door("stream-json", stream_incoming.incoming, (stream_incoming.BadLine,), check=_wished),
    Door("hook-output", _verdicts),
    Door("hooks", _hooks),
    Door("mcp", _servers, (), check=_servers_are_kept),
    Door("settings", _document, (SettingsError,), check=_settings_are_kept),
    Door("plugin", lambda data: plugins.read_manifest(text_of(data), PLACE), (SettingsError,)),
    Door(
        "papers",
        lambda data: papers.papers_of(text_of(data).split("\n")),
        (ValueError, BadName),
        check=_papers_are_kept,
    ),
    Door("outpost-up", outpost.up, _WRONG, check=_kept(outpost.word, outpost.up)),
    Door("outpost-down", outpost.down, _WRONG, check=_kept(outpost.word, outpost.down)),
    Door(
        "question",
        questions.read_question,
        _WRONG,
        check=_kept(questions.question_file, questions.read_question),
    ),
    Door("answer", questions.read_answer, _WRONG, check=_kept(questions.answer_file, questions.read_answer)),
    Door("suggestions", lambda data: questions.suggestions_in(_value(data))),
    Door("trust", _trusted, _WRONG, check=_word_is_kept),
    Door("worktree", worktrees.read_record, (), check=_record_is_kept),
    Door("given-definitions", lambda data: definitions.read_given(text_of(data)), (BadDefinition,)),
)
DOORS = tuple(door._replace(seeds=seeds.of(door.name)) for door in _UNSEEDED)
