"""The readers of `shoal.wire` that take JSON: files, protocol lines, and answers of programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from shoal.core.errors import InvalidAgentDefinition, InvalidName, SettingsError
from shoal.core.events import UnknownJournalEvent
from shoal.core.extensions.hooks import HOOK_EVENTS, MAX_HOOK_SECONDS
from shoal.core.names import TaskId, TeamName
from shoal.wire import (
    agent_definition_codec,
    control_codec,
    foreign_json,
    hook_codec,
    hook_output_codec,
    journal_codec,
    json_codec,
    json_line_numbers,
    launch_args_codec,
    mail_body_codec,
    mail_codec,
    mcp_codec,
    member_channel_codec,
    plugin_manifest_codec,
    question_codec,
    roster_codec,
    settings_codec,
    stream_input_codec,
    task_codec,
    transcript_codec,
    trust_codec,
    workflow_step_codec,
    worktree_codec,
)

from . import seed_documents
from .fuzz_target import FuzzTarget, decode_text

FILE_PATH = Path("/project/file.json")
TEAM = TeamName("roof")


def _check_round_trip(
    encode: Callable[[Any], bytes], decode: Callable[[bytes], Any]
) -> Callable[[Any], None]:
    """Check that a value is the same after encoding and decoding."""

    def check_value(value: Any) -> None:
        assert decode(encode(value)) == value

    return check_value


def _read_script_message(data: bytes) -> workflow_step_codec.ScriptMessage:
    header = data[: workflow_step_codec.HEADER_BYTES].ljust(workflow_step_codec.HEADER_BYTES, b"\0")
    workflow_step_codec.parse_frame_length(header)
    return workflow_step_codec.parse_script_message(data[workflow_step_codec.HEADER_BYTES :])


def _check_inbox(inbox: Any) -> None:
    if isinstance(inbox, foreign_json.InvalidFileContent):
        return
    mails = [entry.mail for entry in inbox.entries]
    again = mail_codec.parse_inbox(mail_codec.encode_inbox(entry.raw for entry in inbox.entries))
    assert isinstance(again, mail_codec.ParsedMailInboxFile)
    assert not again.rejected
    assert [entry.mail for entry in again.entries] == mails
    for entry in inbox.entries:
        _check_entry(entry)


def _check_entry(entry: Any) -> None:
    if isinstance(entry, foreign_json.RejectedFileEntry):
        return
    settled = mail_codec.parse_inbox_entry(mail_codec.encode_updated_inbox_entry(entry, read=True))
    assert isinstance(settled, mail_codec.MailInboxFileEntry)
    assert settled.mail == msgspec.structs.replace(entry.mail, read=True)
    posted = mail_codec.parse_inbox_entry(mail_codec.encode_inbox_entry(entry.mail))
    assert isinstance(posted, mail_codec.MailInboxFileEntry)
    assert posted.mail == entry.mail


def _check_task(file: Any) -> None:
    if isinstance(file, task_codec.ParsedTaskFile):
        for written in (file.encode_task(file.task), task_codec.encode_new_task(file.task)):
            again = task_codec.parse_task(written, TaskId(file.task.id))
            assert isinstance(again, task_codec.ParsedTaskFile)
            # JSON has no NaN or infinity: a new file leaves them out.
            assert json_codec.encode_json(again.task) == json_codec.encode_json(file.task)


def _check_team(file: Any) -> None:
    if isinstance(file, roster_codec.ParsedTeamRosterFile):
        for written in (
            file.encode_changed_roster(file.team),
            roster_codec.encode_new_team_roster(file.team),
        ):
            again = roster_codec.parse_team_roster(written, TEAM)
            assert isinstance(again, roster_codec.ParsedTeamRosterFile)
            assert again.team == file.team


def _check_event(read: Any) -> None:
    at, event = read
    if not isinstance(event, UnknownJournalEvent):
        assert journal_codec.parse_journal_line(journal_codec.encode_journal_line(event, at)) == read


def _check_body(body: Any) -> None:
    if body is not None:
        assert mail_body_codec.parse_mail_body(mail_body_codec.encode_mail_body(body)) == body


def _check_hook_output(data: bytes) -> None:
    text = decode_text(data)
    wish = hook_output_codec.parse_async_hook_request(text.partition("\n")[0])
    assert wish is None or wish.seconds is None or 0 < wish.seconds <= MAX_HOOK_SECONDS
    for event in HOOK_EVENTS:
        try:
            hook_output_codec.parse_hook_output_text(event, text)
        except hook_output_codec.InvalidHookOutputError:
            continue


def _read_servers(data: bytes) -> mcp_codec.ParsedMcpServers:
    return mcp_codec.parse_mcp_servers(_decode_value(data), lambda name: f"a.json: {name}")


def _check_servers(found: mcp_codec.ParsedMcpServers) -> None:
    for server in found.servers:
        try:
            mcp_codec.expand_mcp_server_variables(server, {"HOME": "/home/x", "EMPTY": ""})
        except mcp_codec.UnsetMcpConfigVariableError:
            continue


def _decode_value(data: bytes) -> Any:
    """Decode JSON as another reader would; None if it is invalid."""
    value = foreign_json.parse_foreign_json(data)
    return None if isinstance(value, foreign_json.InvalidFileContent) else value


def _read_document(data: bytes) -> settings_codec.SettingsDocument:
    return settings_codec.parse_settings_document(
        decode_text(data), name="settings.json", kind="project", path=FILE_PATH
    )


def _check_settings(document: settings_codec.SettingsDocument) -> None:
    list(settings_codec.describe_unknown_shoal_settings(document))
    json_line_numbers.find_json_list_entry_lines(document.text, ("permissions", "allow"))
    once = settings_codec.convert_to_settings_schema(settings_codec.merge_settings_documents([document]))
    assert (
        settings_codec.convert_to_settings_schema(
            settings_codec.merge_settings_documents([document, document])
        )
        == once
    )


def _check_launch_args(read: Any) -> None:
    assert (
        launch_args_codec.parse_member_launch_flags(launch_args_codec.build_member_launch_flags(read)) == read
    )


def _check_trust(data: bytes) -> bytes:
    trust_codec.parse_trust_decision(data, "/project", "file")
    trust_codec.update_trust_decisions(data, "/project", {})
    return data


def _check_trust_decision(data: bytes) -> None:
    said = trust_codec.TrustDecision(digest="d", trusted=True, at=1)
    assert (
        trust_codec.parse_trust_decision(
            trust_codec.update_trust_decisions(data, "/project", {"a": said}), "/project", "a"
        )
        == said
    )
    assert (
        trust_codec.parse_trust_decision(
            trust_codec.remove_project_trust(data, "/project"), "/project", "file"
        )
        is None
    )


def _check_worktree_record(record: Any) -> None:
    if record is not None:
        assert worktree_codec.parse_worktree_record(worktree_codec.encode_worktree_record(record)) == record


def _check_unknown_fields(data: bytes) -> None:
    value = foreign_json.parse_foreign_json(data)
    if isinstance(value, dict):
        again = foreign_json.parse_foreign_json(
            foreign_json.update_json_fields(data, {"known": 1, "gone": None})
        )
        value.pop("gone", None)
        assert json.dumps(again) == json.dumps({**value, "known": 1})


def _check_control_message(read: Any) -> None:
    if isinstance(read, control_codec.SteeringMessage):
        again = control_codec.parse_control_request(
            control_codec.encode_steering_message(read.message, read.request_id)
        )
    else:
        again = control_codec.parse_control_request(
            control_codec.encode_control_request(read.request_id, read.command)
        )
    assert again == read


def _check_initialize(line: Any) -> None:
    if isinstance(line, stream_input_codec.ControlRequestInputStreamLine):
        try:
            stream_input_codec.parse_stream_initialize_request(line.body)
        except stream_input_codec.InvalidInputStreamLineError:
            return


def _read_hooks(data: bytes) -> None:
    hook_codec.parse_hooks_setting(
        _decode_value(data), lambda way: f"a.json:{'.'.join(way)}", {"HOME": "/home/x"}
    )


_VALUE_ERRORS = (ValueError,)
_UNSEEDED = (
    FuzzTarget("content", json_codec.decode_json, _VALUE_ERRORS),
    FuzzTarget("foreign", lambda data: data, (), check_value=_check_unknown_fields),
    FuzzTarget("inbox", mail_codec.parse_inbox, (), check_value=_check_inbox),
    FuzzTarget("mail", mail_codec.parse_inbox_entry, (), check_value=_check_entry),
    FuzzTarget("task", task_codec.parse_task, (), check_value=_check_task),
    FuzzTarget(
        "roster", lambda data: roster_codec.parse_team_roster(data, TEAM), (), check_value=_check_team
    ),
    FuzzTarget("journal", journal_codec.parse_journal_line, _VALUE_ERRORS, check_value=_check_event),
    FuzzTarget("torn-journal", journal_codec.split_torn_line),
    FuzzTarget("transcript", transcript_codec.parse_transcript_line, _VALUE_ERRORS),
    FuzzTarget(
        "body", lambda data: mail_body_codec.parse_mail_body(decode_text(data)), (), check_value=_check_body
    ),
    FuzzTarget(
        "control-request",
        control_codec.parse_control_request,
        (control_codec.InvalidControlRequestError,),
        check_value=_check_control_message,
    ),
    FuzzTarget(
        "script-step",
        _read_script_message,
        (workflow_step_codec.ScriptProtocolError,),
        check_value=msgspec.json.encode,
    ),
    FuzzTarget("control-told", control_codec.parse_control_output, _VALUE_ERRORS),
    FuzzTarget(
        "stream-json",
        stream_input_codec.parse_stream_input_line,
        (stream_input_codec.InvalidInputStreamLineError,),
        check_value=_check_initialize,
    ),
    FuzzTarget("hook-output", _check_hook_output),
    FuzzTarget("hooks", _read_hooks),
    FuzzTarget("mcp", _read_servers, (), check_value=_check_servers),
    FuzzTarget("settings", _read_document, (SettingsError,), check_value=_check_settings),
    FuzzTarget(
        "plugin",
        lambda data: plugin_manifest_codec.parse_plugin_manifest(decode_text(data), FILE_PATH),
        (SettingsError,),
    ),
    FuzzTarget(
        "papers",
        lambda data: launch_args_codec.parse_member_launch_flags(decode_text(data).split("\n")),
        (ValueError, InvalidName),
        check_value=_check_launch_args,
    ),
    FuzzTarget(
        "outpost-up",
        member_channel_codec.parse_message_from_member,
        _VALUE_ERRORS,
        check_value=_check_round_trip(
            member_channel_codec.encode_member_channel_message, member_channel_codec.parse_message_from_member
        ),
    ),
    FuzzTarget(
        "outpost-down",
        member_channel_codec.parse_message_from_lead,
        _VALUE_ERRORS,
        check_value=_check_round_trip(
            member_channel_codec.encode_member_channel_message, member_channel_codec.parse_message_from_lead
        ),
    ),
    FuzzTarget(
        "question",
        question_codec.parse_question,
        _VALUE_ERRORS,
        check_value=_check_round_trip(question_codec.encode_question, question_codec.parse_question),
    ),
    FuzzTarget(
        "answer",
        question_codec.parse_answer,
        _VALUE_ERRORS,
        check_value=_check_round_trip(question_codec.encode_answer, question_codec.parse_answer),
    ),
    FuzzTarget("suggestions", lambda data: question_codec.parse_permission_suggestions(_decode_value(data))),
    FuzzTarget("trust", _check_trust, _VALUE_ERRORS, check_value=_check_trust_decision),
    FuzzTarget("worktree", worktree_codec.parse_worktree_record, (), check_value=_check_worktree_record),
    FuzzTarget(
        "given-definitions",
        lambda data: agent_definition_codec.parse_json_agent_definitions(decode_text(data)),
        (InvalidAgentDefinition,),
    ),
)
TARGETS = tuple(door._replace(seeds=seed_documents.get_seeds(door.name)) for door in _UNSEEDED)
